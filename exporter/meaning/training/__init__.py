"""Steps for collective timings: alignment, stragglers, verdicts, causes and step budget of training jobs."""
