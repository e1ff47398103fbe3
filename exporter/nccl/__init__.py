"""Codecs of the files, logs and answers in which timings and facts of NCCL's collectives exist; no I/O in them."""
