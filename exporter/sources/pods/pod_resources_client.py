"""Calls of kubelet's pod-resources API: gRPC over a Unix socket that only root may open.

One channel is kept; gRPC connects it again after kubelet was restarted. The library is an extra of the package, and is
imported at the first call.
"""

import asyncio
import errno
import os
from pathlib import Path
from types import MappingProxyType
from typing import Any

from exporter.core.source import Failure
from exporter.sources.common.failures import failure_of

METHOD = "/v1.PodResourcesLister/List"

MAX_REPLY = 16 << 20
"""Bytes of a reply; that of a node of 500 pods has less than one."""

CALL_SECONDS = 10.0
"""Time for a call."""

RECONNECT_MILLISECONDS = (500, 10_000)
"""Shortest and longest pause before gRPC connects again: kubelet is back within seconds."""

_REASONS = MappingProxyType(
    {
        "DEADLINE_EXCEEDED": "timeout",
        "RESOURCE_EXHAUSTED": "too_large_or_too_often",
        "UNAVAILABLE": "unavailable",
        "UNIMPLEMENTED": "unsupported",
    }
)
"""Reasons of failures by the status of a call; RESOURCE_EXHAUSTED is also what kubelet answers to too many calls."""


class PodResourcesClient:
    """Lists the devices of all containers."""

    def __init__(self, socket: Path) -> None:
        """Connect to nothing yet."""
        self._socket = socket
        self._channel: Any = None
        self._list: Any = None

    async def list_pods(self) -> bytes | Failure | None:
        """Return a ListPodResourcesResponse, why there is none, or None where there is no socket."""
        try:
            await asyncio.to_thread(_check_access, self._socket)
        except FileNotFoundError:
            return None
        except OSError as error:
            return failure_of("kubelet", error, f"{self._socket}: needs root")
        try:
            await asyncio.to_thread(_import_library)
        except ImportError:
            detail = "grpcio is not installed: pip install 'fabric-exporter[pods]'"
            return Failure("kubelet", "no_library", detail)
        self._open()
        return await self._call()

    async def close(self) -> None:
        """Close the channel."""
        channel, self._channel, self._list = self._channel, None, None
        if channel is not None:
            await channel.close()

    def _open(self) -> None:
        """Create the channel."""
        if self._channel is not None:
            return
        import grpc.aio  # noqa: PLC0415  # an extra, of twenty megabytes in memory

        shortest, longest = RECONNECT_MILLISECONDS
        options = [
            ("grpc.max_receive_message_length", MAX_REPLY),
            ("grpc.initial_reconnect_backoff_ms", shortest),
            ("grpc.min_reconnect_backoff_ms", shortest),
            ("grpc.max_reconnect_backoff_ms", longest),
            ("grpc.enable_http_proxy", 0),
        ]
        self._channel = grpc.aio.insecure_channel(f"unix:{self._socket}", options=options)
        self._list = self._channel.unary_unary(METHOD)

    async def _call(self) -> bytes | Failure:
        import grpc  # noqa: PLC0415  # as in _open

        try:
            reply: bytes = await self._list(b"", timeout=CALL_SECONDS)
        except grpc.RpcError as error:
            code, text = error.code().name, error.details() or ""
            detail = f"{self._socket}: {METHOD}: {code}: {text[:200]}"
            return Failure("kubelet", _REASONS.get(code, "failed"), detail)
        return reply


def _import_library() -> None:
    """Import the library, which takes some tenths of a second.

    Raises:
        ImportError: It is not installed.
    """
    # Else it writes to standard error, past the log, whenever kubelet closes a connection.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    import grpc.aio  # noqa: F401, PLC0415  # an extra


def _check_access(socket: Path) -> None:
    """Find out whether the socket may be opened: gRPC would retry for ever where it may not.

    Raises:
        FileNotFoundError: There is none.
        PermissionError: It may not be opened.
    """
    socket.stat()
    if not os.access(socket, os.W_OK, effective_ids=True):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
