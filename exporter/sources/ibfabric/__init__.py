"""Source `ibfabric`: counters and links of every port of an InfiniBand subnet, read by management datagrams."""
