"""How fast and how surely faults are detected: makes the table of docs/detection.md."""
