"""Source `switch`: Ethernet switches."""
