"""Netlink codecs: rtnetlink, ethtool, RDMA, DCB and queueing disciplines."""
