"""Source `rdma`: RDMA ports of this host."""
