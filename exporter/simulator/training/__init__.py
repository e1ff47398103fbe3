"""Simulation of training jobs: streams of GPUs, collectives that overlap with computing, and what hosts report."""
