"""The running daemon: it builds, starts, reloads and stops everything else; only it may import all of it."""
