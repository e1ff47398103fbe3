"""Source `nccl`: timings of NCCL collectives of the training jobs on this host."""
