"""Cisco NX-API: client and parsers."""
