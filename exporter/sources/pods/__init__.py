"""NICs that pods hold in network namespaces of their own, and which pod each belongs to."""
