"""SONiC RESTCONF (OpenConfig): client and parsers."""
