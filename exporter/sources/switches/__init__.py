"""Ethernet switches: what is common to all, and a reader for each way to ask one."""
