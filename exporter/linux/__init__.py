"""Codecs and readers for what the Linux kernel says about network devices, beside its files."""
