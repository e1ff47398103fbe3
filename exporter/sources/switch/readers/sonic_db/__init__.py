"""SONiC databases (redis): reader and rows."""
