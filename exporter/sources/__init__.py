"""Sources: one package for each kind of device, file or protocol; it reads, and declares its metrics as data."""
