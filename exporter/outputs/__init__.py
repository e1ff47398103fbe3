"""Outputs: the text formats of Prometheus, the status page, and the HTTP server."""
