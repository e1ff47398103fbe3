"""Meaning of collective timings: alignment, stragglers, verdicts, causes and the step budget."""
