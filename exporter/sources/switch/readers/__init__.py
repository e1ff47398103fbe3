"""Readers of one switch, one package per protocol: `reader` polls it, `rows` converts what was read to rows."""
