"""Cumulus Linux NVUE: reader and rows."""
