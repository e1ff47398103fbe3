"""Source `bursts`: utilisation of RDMA ports at a fixed tick."""
