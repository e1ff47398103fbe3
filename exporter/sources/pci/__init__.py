"""Source `pci`: PCI functions of network and RDMA devices."""
