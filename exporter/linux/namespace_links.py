"""Reads the links of another network namespace by one socket that was opened in it.

The socket keeps the namespace alive: close it as soon as nothing else leads to it, since the devices of a namespace
return to the host only when it ends.
"""

import os
import socket

from exporter.linux.netlink.namespace_ids import GET_NAMESPACE_ID, namespace_id_request, parse_namespace_id
from exporter.linux.netlink.netlink_socket import NetlinkSocket
from exporter.linux.netlink.rtnetlink import GET_LINKS, LINKS_REQUEST, NetworkLink, parse_links
from exporter.linux.network_namespaces import OWN


class NamespaceLinks:
    """Reads from the kernel, in the network namespace of the thread that makes this object."""

    def __init__(self) -> None:
        self._socket = NetlinkSocket(socket.NETLINK_ROUTE)

    def links(self) -> list[NetworkLink]:
        """Return all devices of the namespace; one thread at a time."""
        return parse_links(self._socket.dump(GET_LINKS, LINKS_REQUEST))

    def own_namespace_id(self) -> int | None:
        """Return the id that the namespace of this process has in this one; None if it has none yet."""
        descriptor = os.open(OWN, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return parse_namespace_id(self._socket.request(GET_NAMESPACE_ID, namespace_id_request(descriptor)))
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Close the socket; idempotent."""
        self._socket.close()
