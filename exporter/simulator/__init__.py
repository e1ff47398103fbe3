"""Simulated devices that speak the real protocols: the demo and the end-to-end tests use the same ones."""
