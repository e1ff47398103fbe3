"""Arista eAPI: reader."""
