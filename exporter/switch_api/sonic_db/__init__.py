"""SONiC databases (redis): client and parsers."""
