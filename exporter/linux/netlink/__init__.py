"""Netlink: messages, sockets, and the codecs of rtnetlink, generic netlink, ethtool and RDMA."""
