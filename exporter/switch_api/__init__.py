"""Codecs and clients of devices that answer HTTP: bytes in, values out, no policy."""
