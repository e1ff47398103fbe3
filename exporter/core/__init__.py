"""What every part is built on: the Table, metric names, sources and their polling, calls that may block."""
