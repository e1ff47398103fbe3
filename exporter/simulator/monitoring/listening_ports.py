"""The ports on which programs listen that start later: nothing else may take them until then."""

import random
import socket
from pathlib import Path
from typing import Self

ADDRESS = "127.0.0.1"

LOWEST = 10_000
"""Lowest of the free ports; well-known services of a host are below."""

EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""Where Linux shows the range from which outgoing connections get their ports."""

EPHEMERAL_LOWEST = 32_768
"""Start of that range by default."""

NARROWEST = 1_000
"""Fewest ports below that range from which free ones are chosen; where there are fewer, any port may be chosen."""


class ListeningPorts:
    """Consecutive ports, or free ones that are reserved until the end of the block.

    A free port is outside of the ephemeral range, so that no connection gets it before its program starts. The same
    port of UDP is bound meanwhile: another process that chooses a port by this class chooses another one. It is used
    with `with`.
    """

    def __init__(self, first: int = 0) -> None:
        """Args: first: The first of consecutive ports; 0 for free ones."""
        self._next = first
        self._reserved: list[socket.socket] = []

    def take(self) -> int:
        """Return the next port."""
        if self._next:
            self._next += 1
            return self._next - 1
        ports = _candidates()
        while not self._reserve(port := random.choice(ports)):
            pass
        return port

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Give up the reservations."""
        for one in self._reserved:
            one.close()
        self._reserved.clear()

    def _reserve(self, port: int) -> bool:
        reserved = socket.socket(type=socket.SOCK_DGRAM)
        try:
            reserved.bind((ADDRESS, port))
            with socket.socket() as probe:
                probe.bind((ADDRESS, port))
        except OSError:
            reserved.close()
            return False
        self._reserved.append(reserved)
        return True


def free_port() -> int:
    """Return a port of loopback on which nothing listens, by TCP and by UDP, for a program that starts at once."""
    with ListeningPorts() as ports:
        return ports.take()


def _candidates() -> range:
    try:
        lowest = int(EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        lowest = EPHEMERAL_LOWEST
    return range(LOWEST, lowest if lowest >= LOWEST + NARROWEST else 2**16)
