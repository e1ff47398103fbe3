"""The commands of the command line, one module each.

Each module has a one-line `HELP`, `add_flags(parser)` and `run(arguments)`, which returns the exit status. All are
imported for every command line, so each imports at module level only what its flags need; `run` imports the rest.
"""
