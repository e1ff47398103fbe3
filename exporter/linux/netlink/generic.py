"""Generic netlink: families that the kernel names, each with commands of its own.

Layouts: include/uapi/linux/genetlink.h. A message carries the command, then attributes; the number of a family is
asked for by its name.
"""

import errno
import os
import struct
from typing import Self

from exporter.linux.netlink.protocol import (
    NetlinkError,
    SharedRequests,
    attribute_text,
    attributes,
    number,
)

_NETLINK_GENERIC = 16  # socket has no name for it
_HEADER = struct.Struct("=BBxx")  # genlmsghdr: command, version

_CONTROL = 16
_GETFAMILY = 3
_FAMILY_ID = 1
_FAMILY_NAME = 2


def parse_family(answer: bytes) -> int | None:
    """Read the number of a family from the answer to a request for it; None where there is none."""
    return number(dict(attributes(answer, _HEADER.size)).get(_FAMILY_ID))


class GenericFamily:
    """Asks one family. Threads may share it; the sockets are of the namespace of the thread that makes this object."""

    def __init__(self, name: str, version: int = 1) -> None:
        """Take the family's name; whether the kernel has it shows at the first request.

        Raises:
            OSError: The process has no room for more sockets.
        """
        self._name = name
        self._version = version
        self._number: int | None = None
        self._sockets = SharedRequests(_NETLINK_GENERIC)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the sockets; closing twice does no harm."""
        self._sockets.close()

    def ask(self, command: int, body: bytes) -> bytes:
        """Carry out a command with these attributes; give the attributes of the answer.

        Raises:
            OSError: The kernel refused: EOPNOTSUPP if it knows no such family or command.
        """
        if self._number is None:
            self._number = self._find()
        return self._sockets.ask(self._number, _HEADER.pack(command, self._version) + body)[_HEADER.size :]

    def _find(self) -> int:
        request = _HEADER.pack(_GETFAMILY, 1) + attribute_text(_FAMILY_NAME, self._name)
        try:
            found = parse_family(self._sockets.ask(_CONTROL, request))
        except NetlinkError as error:
            if error.errno != errno.ENOENT:
                raise
            raise OSError(errno.EOPNOTSUPP, f"the kernel has no netlink family {self._name!r}") from None
        if found is None:
            raise OSError(errno.EPROTO, f"netlink family {self._name!r}: {os.strerror(errno.EPROTO)}")
        return found
