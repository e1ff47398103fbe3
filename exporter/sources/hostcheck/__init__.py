"""Source `hostcheck`: checks of the configuration of this host."""
