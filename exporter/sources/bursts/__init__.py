"""Source `bursts`: utilization of RDMA ports at a fixed tick."""
