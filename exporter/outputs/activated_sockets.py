"""Listening sockets that systemd passes to a service, by the protocol of sd_listen_fds(3).

`LISTEN_PID` is the process that they are meant for, and `LISTEN_FDS` their number; they begin at descriptor 3.
"""

import os
import socket
from collections.abc import MutableMapping

from exporter.config.errors import UserError

FIRST_DESCRIPTOR = 3
MAX_SOCKETS = 64

FLAG = "--web.systemd-socket"


def activated_sockets(environment: MutableMapping[str, str]) -> list[socket.socket]:
    """Return the sockets, and remove the variables: no program that is started later takes them for its own.

    Raises:
        UserError: There is none, or one that HTTP cannot be served on.
    """
    values = {name: environment.pop(name, "") for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")}
    count = values["LISTEN_FDS"]
    if values["LISTEN_PID"] != str(os.getpid()) or not count.isascii() or not count.isdigit() or int(count[:9]) == 0:
        raise UserError(f"{FLAG}: systemd passed no socket; start the service by its socket unit, or omit the flag")
    if len(count) > len(str(MAX_SOCKETS)) or int(count) > MAX_SOCKETS:
        raise UserError(f"{FLAG}: systemd passed {count[:20]} sockets; give the socket unit at most {MAX_SOCKETS}")
    return [_listening_socket(FIRST_DESCRIPTOR + number) for number in range(int(count))]


def _listening_socket(descriptor: int) -> socket.socket:
    """Return the socket of a descriptor, which it then owns."""
    try:
        os.set_inheritable(descriptor, False)
        sock = socket.socket(fileno=descriptor)
    except OSError as error:
        raise UserError(f"{FLAG}: descriptor {descriptor} is no socket: {error.strerror}") from None
    is_stream = sock.family in {socket.AF_INET, socket.AF_INET6} and sock.type == socket.SOCK_STREAM
    if not is_stream or not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        sock.detach()  # it stays open, as systemd passed it
        text = "is no listening TCP socket; use ListenStream=PORT or ADDRESS:PORT"
        raise UserError(f"{FLAG}: descriptor {descriptor} {text}")
    sock.setblocking(False)
    return sock
