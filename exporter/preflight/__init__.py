"""Checks of the configuration of a host: facts that readers found, and pure functions that compare them."""
