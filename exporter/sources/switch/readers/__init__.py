"""Readers of one switch: one module or package per protocol."""
