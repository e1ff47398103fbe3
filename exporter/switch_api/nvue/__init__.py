"""Cumulus Linux NVUE: client and parsers."""
