"""Source `nic`: network devices of this host."""
