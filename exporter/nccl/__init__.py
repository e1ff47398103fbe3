"""Codecs of collective timings, of NCCL's logs and of its RAS service; no I/O."""
