"""Recorded answers of the kernel, one JSON file per device, which replace the kernel in tests, dumps and the demo."""
