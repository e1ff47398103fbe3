"""Source `nccl_facts`: facts from NCCL's logs, Inspector's text files and the RAS service, beside timings."""
