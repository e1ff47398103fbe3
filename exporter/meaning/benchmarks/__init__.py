"""Judgements of benchmarks that are run before jobs (nccl-tests, perftest): which nodes and links are slow or wrong."""
