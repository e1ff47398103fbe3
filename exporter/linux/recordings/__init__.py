"""Recordings of the kernel's answers, one JSON file per device; they replace the kernel in tests, replays and demos."""
