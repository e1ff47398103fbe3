"""Where numbers come from: one module a source, which declares its own metrics as data."""
