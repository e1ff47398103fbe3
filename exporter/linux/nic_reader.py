"""Readers of network devices by netlink and ioctl: of the kernel, or of a folder of recordings.

`recordings.nic_recording` describes the form of a recording, and `recordings.recorder` makes them.
"""

import errno
import socket
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from exporter.linux.ethtool_ioctl import (
    DriverInfo,
    EthtoolIoctl,
    LinkSettings,
    Statistics,
)
from exporter.linux.netlink.data_center_bridging import Dcb, DcbSocket
from exporter.linux.netlink.ethtool_netlink import (
    EthtoolNetlink,
    Fec,
    LinkModes,
    LinkState,
    Pause,
)
from exporter.linux.netlink.netlink_socket import NetlinkSocket
from exporter.linux.netlink.queueing_disciplines import QueueingDiscipline, QueueingDisciplineSocket
from exporter.linux.netlink.rtnetlink import (
    GET_LINKS,
    LINK_GROUP,
    LINKS_REQUEST,
    LinkEvent,
    NetworkLink,
    parse_link_events,
    parse_links,
)
from exporter.linux.recordings.nic_recording import parse_nic_recording
from exporter.linux.recordings.recording_folder import Recordings, value_or_raise


class NicReader(Protocol):
    """Requests to network devices. All but the events may block and belong in a worker thread.

    Every request may raise OSError. ENODEV: there is no such device (any more). EOPNOTSUPP: the driver does not support
    it, which is normal.
    """

    def links(self) -> list[NetworkLink]:
        """Return all devices of the network namespace; one thread at a time."""

    def unreadable_links(self) -> dict[str, OSError]:
        """Return the devices whose link the last `links` could not read, with the error."""

    def queueing_disciplines(self, links: Collection[NetworkLink]) -> Mapping[int, QueueingDiscipline | OSError]:
        """Return the root qdiscs of these devices, by index, or why one is not known; one thread at a time.

        All are read at once; some devices have none. EOPNOTSUPP: the kernel has no qdiscs.
        """

    def driver(self, device: str) -> DriverInfo:
        """Return the driver's name, version and firmware version, and the device's bus address."""

    def statistics(self, device: str) -> Statistics:
        """Return the driver's statistics."""

    def settings(self, device: str) -> LinkSettings:
        """Return speed, duplex, autonegotiation and port type."""

    def link_modes(self, device: str) -> LinkModes:
        """Return speed, duplex, autonegotiation, lanes, and the highest supported speed."""

    def link_state(self, device: str) -> LinkState:
        """Return whether the link is up, and the reason if it is not."""

    def pause(self, device: str) -> Pause:
        """Return the pause settings and pause frame counters."""

    def fec(self, device: str) -> Fec:
        """Return the active FEC and its counters."""

    def standard_statistics(self, device: str) -> dict[str, int]:
        """Return the standard statistics (IEEE 802.3, RFC 2819) that the driver fills in, possibly none."""

    def dcb(self, device: str) -> Dcb:
        """Return the Data Center Bridging configuration."""

    def module_page(self, device: str, *, page: int, bank: int, offset: int, length: int, address: int = 0x50) -> bytes:
        """Return bytes of the module EEPROM; see EthtoolNetlink."""

    def forget(self, device: str) -> None:
        """Drop the cache of a device that is gone or no longer read."""

    def event_fd(self) -> int | None:
        """Return the descriptor that is readable when there are events; None: there are never any."""

    def events(self) -> list[LinkEvent]:
        """Return the events received so far, without waiting."""

    def close(self) -> None:
        """Close the sockets; idempotent."""


class KernelNic:
    """Reads from the kernel, in the network namespace of the thread that makes this object."""

    def __init__(self, *, with_events: bool = True) -> None:
        """Open the sockets; without events, `events` never returns any."""
        with ExitStack() as stack:
            self._links = stack.enter_context(NetlinkSocket(socket.NETLINK_ROUTE))
            self._events = (
                stack.enter_context(NetlinkSocket(socket.NETLINK_ROUTE, groups=LINK_GROUP)) if with_events else None
            )
            self._queueing_disciplines = stack.enter_context(QueueingDisciplineSocket())
            self._ethtool_ioctl = stack.enter_context(EthtoolIoctl())
            self._ethtool_netlink = stack.enter_context(EthtoolNetlink())
            self._dcb = stack.enter_context(DcbSocket())
            self._open = stack.pop_all()

    def links(self) -> list[NetworkLink]:
        """See NicReader."""
        return parse_links(self._links.dump(GET_LINKS, LINKS_REQUEST))

    def unreadable_links(self) -> dict[str, OSError]:
        """See NicReader; a dump of the kernel is complete or fails."""
        return {}

    def queueing_disciplines(self, links: Collection[NetworkLink]) -> Mapping[int, QueueingDiscipline | OSError]:
        """See NicReader."""
        return self._queueing_disciplines.read({link.ifindex for link in links})

    def driver(self, device: str) -> DriverInfo:
        """See NicReader."""
        return self._ethtool_ioctl.driver(device)

    def statistics(self, device: str) -> Statistics:
        """See NicReader."""
        return self._ethtool_ioctl.statistics(device)

    def settings(self, device: str) -> LinkSettings:
        """See NicReader."""
        return self._ethtool_ioctl.settings(device)

    def link_modes(self, device: str) -> LinkModes:
        """See NicReader."""
        return self._ethtool_netlink.link_modes(device)

    def link_state(self, device: str) -> LinkState:
        """See NicReader."""
        return self._ethtool_netlink.link_state(device)

    def pause(self, device: str) -> Pause:
        """See NicReader."""
        return self._ethtool_netlink.pause(device)

    def fec(self, device: str) -> Fec:
        """See NicReader."""
        return self._ethtool_netlink.fec(device)

    def standard_statistics(self, device: str) -> dict[str, int]:
        """See NicReader."""
        return self._ethtool_netlink.standard_statistics(device)

    def dcb(self, device: str) -> Dcb:
        """See NicReader."""
        return self._dcb.dcb(device)

    def module_page(self, device: str, *, page: int, bank: int, offset: int, length: int, address: int = 0x50) -> bytes:
        """See NicReader."""
        return self._ethtool_netlink.module_page(
            device, page=page, bank=bank, offset=offset, length=length, address=address
        )

    def forget(self, device: str) -> None:
        """See NicReader."""
        self._ethtool_ioctl.forget(device)

    def event_fd(self) -> int | None:
        """See NicReader."""
        return None if self._events is None else self._events.fileno()

    def events(self) -> list[LinkEvent]:
        """See NicReader."""
        return [] if self._events is None else parse_link_events(self._events.notifications())

    def close(self) -> None:
        """See NicReader."""
        self._open.close()


class ReplayNic:
    """Reads from a folder of recordings. There are no events.

    A malformed answer affects only its device: the request fails with EBADMSG, and the device is missing among the
    links if the malformed answer is its link.
    """

    def __init__(self, folder: Path) -> None:
        self._recordings = Recordings(folder, parse_nic_recording)
        self._unreadable_links: dict[str, OSError] = {}

    def links(self) -> list[NetworkLink]:
        """See NicReader."""
        links, unreadable = [], {}
        for device in self._recordings.names():
            try:
                links.append(value_or_raise(self._recordings.get(device).link, device))
            except OSError as error:
                if error.errno not in {errno.ENODEV, errno.EOPNOTSUPP}:  # removed since, or recorded without a link
                    unreadable[device] = error
        self._unreadable_links = unreadable
        return sorted(links, key=lambda link: link.ifindex)

    def unreadable_links(self) -> dict[str, OSError]:
        """See NicReader."""
        return self._unreadable_links

    def queueing_disciplines(self, links: Collection[NetworkLink]) -> Mapping[int, QueueingDiscipline | OSError]:
        """See NicReader."""
        found: dict[int, QueueingDiscipline | OSError] = {}
        for link in links:
            try:
                found[link.ifindex] = value_or_raise(self._recordings.get(link.name).queueing, link.name)
            except OSError as error:
                if error.errno not in {errno.ENODEV, errno.EOPNOTSUPP}:
                    found[link.ifindex] = error
        return found

    def driver(self, device: str) -> DriverInfo:
        """See NicReader."""
        return value_or_raise(self._recordings.get(device).driver, device)

    def statistics(self, device: str) -> Statistics:
        """See NicReader."""
        return value_or_raise(self._recordings.get(device).statistics, device)

    def settings(self, device: str) -> LinkSettings:
        """See NicReader."""
        return value_or_raise(self._recordings.get(device).settings, device)

    def link_modes(self, device: str) -> LinkModes:
        """See NicReader."""
        return value_or_raise(self._recordings.get(device).link_modes, device)

    def link_state(self, device: str) -> LinkState:
        """See NicReader."""
        return value_or_raise(self._recordings.get(device).link_state, device)

    def pause(self, device: str) -> Pause:
        """See NicReader."""
        return value_or_raise(self._recordings.get(device).pause, device)

    def fec(self, device: str) -> Fec:
        """See NicReader."""
        return value_or_raise(self._recordings.get(device).fec, device)

    def standard_statistics(self, device: str) -> dict[str, int]:
        """See NicReader."""
        return value_or_raise(self._recordings.get(device).standard_statistics, device)

    def dcb(self, device: str) -> Dcb:
        """See NicReader."""
        return value_or_raise(self._recordings.get(device).dcb, device)

    def module_page(self, device: str, *, page: int, bank: int, offset: int, length: int, address: int = 0x50) -> bytes:
        """See NicReader."""
        memory = value_or_raise(self._recordings.get(device).module, device)
        try:
            return memory.read(page=page, bank=bank, offset=offset, length=length, address=address)
        except OSError as error:
            raise OSError(error.errno, error.strerror, device) from None

    def forget(self, device: str) -> None:
        """See NicReader."""
        self._recordings.forget(device)

    def event_fd(self) -> int | None:
        """See NicReader."""
        return None

    def events(self) -> list[LinkEvent]:
        """See NicReader."""
        return []

    def close(self) -> None:
        """See NicReader."""
        self._recordings.clear()
