"""What the numbers mean: pure steps, state and table in, state and tables out. They know tables and words only."""
