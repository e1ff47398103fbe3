"""SONiC RESTCONF (OpenConfig): reader."""
