"""How an InfiniBand fabric is found, followed and counted by management datagrams."""
