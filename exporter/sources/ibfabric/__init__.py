"""Source `ibfabric`: every port of an InfiniBand subnet, by management datagrams."""
