"""The running daemon: it builds, starts, reloads and stops all other parts, and may import all but `commands`."""
