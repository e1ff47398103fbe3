"""The configuration: typed options, a strict YAML reader, units, secrets, and errors that name place and remedy."""
