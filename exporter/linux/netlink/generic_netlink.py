"""Generic netlink: families that the kernel registers by name, each with commands of its own.

Layouts: include/uapi/linux/genetlink.h. A message consists of the command (genlmsghdr) and attributes; the id of a
family is requested from the controller (nlctrl) by its name.
"""

import errno
import os
import struct
from typing import Self

from exporter.linux.netlink.messages import (
    NetlinkError,
    attribute_text,
    attributes,
    number,
)
from exporter.linux.netlink.netlink_socket import SharedNetlinkSockets

_NETLINK_GENERIC = 16  # the socket module has no name for it
_HEADER = struct.Struct("=BBxx")  # genlmsghdr: command, version

_CONTROL = 16
_GETFAMILY = 3
_FAMILY_ID = 1
_FAMILY_NAME = 2


def parse_family_id(answer: bytes) -> int | None:
    """Parse the id of a family from the answer to CTRL_CMD_GETFAMILY; None if it has none."""
    return number(dict(attributes(answer, _HEADER.size)).get(_FAMILY_ID))


class GenericNetlinkFamily:
    """Sends the commands of one family.

    Threads may share it; the sockets stay in the network namespace of the thread that makes this object.
    """

    def __init__(self, name: str, version: int = 1) -> None:
        """Open the sockets; whether the kernel has the family is known after the first request.

        Raises:
            OSError: This process has no resources for more sockets.
        """
        self._name = name
        self._version = version
        self._family_id: int | None = None
        self._sockets = SharedNetlinkSockets(_NETLINK_GENERIC)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the sockets; idempotent."""
        self._sockets.close()

    def request(self, command: int, body: bytes) -> bytes:
        """Send a command with these attributes; return the attributes of the answer.

        Raises:
            OSError: The kernel refused: EOPNOTSUPP if it has no such family or command.
        """
        if self._family_id is None:
            self._family_id = self._request_family_id()
        return self._sockets.request(self._family_id, _HEADER.pack(command, self._version) + body)[_HEADER.size :]

    def _request_family_id(self) -> int:
        request = _HEADER.pack(_GETFAMILY, 1) + attribute_text(_FAMILY_NAME, self._name)
        try:
            family_id = parse_family_id(self._sockets.request(_CONTROL, request))
        except NetlinkError as error:
            if error.errno != errno.ENOENT:
                raise
            raise OSError(errno.EOPNOTSUPP, f"the kernel has no netlink family {self._name!r}") from None
        if family_id is None:
            raise OSError(errno.EPROTO, f"netlink family {self._name!r}: {os.strerror(errno.EPROTO)}")
        return family_id
