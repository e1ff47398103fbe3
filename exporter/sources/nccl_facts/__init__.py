"""Source `nccl_facts`: what NCCL logs, Inspector text files and the RAS service report beside timings."""
