"""Arista eAPI: client and parsers."""
