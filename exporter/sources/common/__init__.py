"""Code that several sources share."""
