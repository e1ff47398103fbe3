"""Source `nccl`: timings of the collectives of training jobs on this host."""
