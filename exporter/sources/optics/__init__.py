"""Source `optics`: optical modules and cables of this host."""
