"""Source `lldp`: LLDP neighbours of this host."""
