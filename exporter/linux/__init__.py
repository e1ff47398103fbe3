"""Codecs and readers of the Linux kernel's interfaces to network and RDMA devices: netlink, ioctl, sysfs, MADs."""
