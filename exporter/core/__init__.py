"""Shared by all packages: tables, declarations of metrics, the interface of a source, the poller, blocking calls."""
