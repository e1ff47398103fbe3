"""LLDP: codec of its frames, and the packet socket that receives them."""
