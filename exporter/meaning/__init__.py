"""Steps that derive metrics from the tables of sources, such as rates and verdicts: `step(state, table)`, no I/O."""
