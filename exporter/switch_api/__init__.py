"""Clients and parsers of the management APIs of Ethernet switches, one package per API; no policy."""
