"""Timings of the collectives of training jobs on this host: one module for each way in which they are told."""
