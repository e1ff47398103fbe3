"""Access to the local port: how it is found and opened, and the name of its subnet."""

from typing import Protocol

from exporter.linux.mad import umad
from exporter.linux.mad.datagram import Attribute, Request, Result, Route
from exporter.linux.mad.subnet import parse_sm_info
from exporter.linux.mad.umad import LocalPort, UmadPort
from exporter.linux.mad.window import Endpoint, RequestWindow
from exporter.sources.ibfabric.model import format_guid
from exporter.sources.ibfabric.options import PortChoice


class OpenPort(Endpoint, Protocol):
    """An open port."""

    def close(self) -> None:
        """Close it."""


class PortOpener(Protocol):
    """Finds and opens local ports."""

    def local(self, choice: PortChoice) -> LocalPort:
        """Return the current state of the chosen port; raises UmadError."""

    def open(self, port: LocalPort) -> OpenPort:
        """Open a port; raises UmadError."""


class UmadPortOpener:
    """Finds and opens ports through libibumad."""

    def local(self, choice: PortChoice) -> LocalPort:
        """Return the current state of the chosen port."""
        return umad.select_port(umad.local_ports(), choice.device, choice.port)

    def open(self, port: LocalPort) -> OpenPort:
        """Open a port."""
        return UmadPort(port.device, port.number)


def read_sm_guid(window: RequestWindow, local: LocalPort) -> int | None:
    """Read the PortGUID of the subnet manager; None where there is none, or it does not respond. Blocks."""
    found: list[int] = []

    def on_sm_info(_: object, result: Result) -> None:
        if isinstance(result, bytes):
            found.append(parse_sm_info(result).guid)

    if local.sm_lid:
        window.run([Request("sm", Route(local.sm_lid), Attribute.SM_INFO, on_sm_info)])
    return found[0] if found else None


def subnet_name(local: LocalPort, sm_guid: int | None) -> str:
    """Return the name of a subnet, the same at all its hosts: GID prefix and PortGUID of the subnet manager."""
    return f"{format_guid(local.gid_prefix)}-{'unmanaged' if sm_guid is None else format_guid(sm_guid)}"
