"""Readers of the facts that checks compare: one module for each kind of object, read-only."""
