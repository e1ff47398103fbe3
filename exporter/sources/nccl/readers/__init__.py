"""Readers of collective timings: one module per format."""
