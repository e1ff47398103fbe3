"""Model of a cluster that can go wrong: a job's flows over its links, and the counters of both ends of each link.

No I/O and no clock of its own: `model.FabricModel` is advanced by simulated seconds, and the same seed gives the same
counters. A fault (`faults`) changes the conditions of links, adapters or ranks and nothing else; how long a collective
takes and what every device counts both follow from these.
"""
