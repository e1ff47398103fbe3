"""Readers of collective timings: one module per format, and what they share."""
