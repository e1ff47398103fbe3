"""LLDP (IEEE 802.1AB): the parser of its frames, and the packet socket that receives them."""
