"""NVIDIA Onyx JSON API: client and parsers."""
