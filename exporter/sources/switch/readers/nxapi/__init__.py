"""Cisco NX-API: reader."""
