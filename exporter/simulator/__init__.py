"""Simulated devices with the real protocols, for the demo and the end-to-end tests."""
