"""NVIDIA Onyx JSON API: reader and rows."""
