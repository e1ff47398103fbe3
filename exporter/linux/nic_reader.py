"""Everything the exporter asks network devices that is not a file: from the kernel, or from a folder of recordings.

A recording is what `record` makes of one device; `nic_recording` gives its form.
"""

import errno
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec

from exporter.linux.ethtool import (
    Driver,
    Ethtool,
    LinkSettings,
    Statistics,
)
from exporter.linux.netlink.dcb import Dcb, DcbSocket
from exporter.linux.netlink.ethtool import (
    EthtoolNetlink,
    Fec,
    LinkModes,
    LinkState,
    Pause,
)
from exporter.linux.netlink.qdisc import Queueing, QueueingSocket
from exporter.linux.netlink.rtnetlink import (
    Event,
    EventSocket,
    Link,
    LinkSocket,
)
from exporter.linux.recordings.folder import Recordings, given, path_of
from exporter.linux.recordings.module_memory import record_memory
from exporter.linux.recordings.nic import failure_name, pairs, parse


class NicReader(Protocol):
    """What is asked of network devices. All but the events may block and belong in a worker thread.

    Every request may raise OSError. ENODEV: there is no such device (now). EOPNOTSUPP: the driver has no such thing,
    which is normal.
    """

    def links(self) -> list[Link]:
        """Give all devices of the network namespace; one thread at a time."""

    def left_out(self) -> dict[str, OSError]:
        """Give what the last `links` could not read: devices, and why; none of them is among the links."""

    def queueing(self, links: Collection[Link]) -> Mapping[int, Queueing | OSError]:
        """Give how these devices queue what they send, by index, or why it is not known; one thread at a time.

        All are asked at once; of some nothing is told. EOPNOTSUPP: nothing ever is.
        """

    def driver(self, device: str) -> Driver:
        """Give the driver's name, version and firmware, and the device's bus address."""

    def statistics(self, device: str) -> Statistics:
        """Give the driver's statistics."""

    def settings(self, device: str) -> LinkSettings:
        """Give speed, duplex, autonegotiation and the kind of port."""

    def link_modes(self, device: str) -> LinkModes:
        """Give speed, duplex, autonegotiation, lanes, and what the device can do."""

    def link_state(self, device: str) -> LinkState:
        """Tell whether the link is up, and why not."""

    def pause(self, device: str) -> Pause:
        """Give the settings and counts of pause frames."""

    def fec(self, device: str) -> Fec:
        """Give the forward error correction in use and what it corrected."""

    def standard_statistics(self, device: str) -> dict[str, int]:
        """Give the statistics that standards define, of those the ones that the driver sets; there may be none."""

    def dcb(self, device: str) -> Dcb:
        """Give the configuration of priorities."""

    def module_page(self, device: str, *, page: int, bank: int, offset: int, length: int, address: int = 0x50) -> bytes:
        """Read from the memory of the module in the port; see EthtoolNetlink."""

    def forget(self, device: str) -> None:
        """Drop what is kept for a device that is gone or is no longer read."""

    def event_fd(self) -> int | None:
        """Give the descriptor that is readable when there are events; None: there are never any."""

    def events(self) -> list[Event]:
        """Take the events that have arrived, without waiting."""

    def close(self) -> None:
        """Give back what the system lent; closing twice does no harm."""


class KernelNic:
    """Asks the kernel, in the network namespace of the thread that makes this object."""

    def __init__(self) -> None:
        with ExitStack() as stack:
            self._links = stack.enter_context(LinkSocket())
            self._events = stack.enter_context(EventSocket())
            self._queueing = stack.enter_context(QueueingSocket())
            self._ethtool = stack.enter_context(Ethtool())
            self._netlink = stack.enter_context(EthtoolNetlink())
            self._dcb = stack.enter_context(DcbSocket())
            self._open = stack.pop_all()

    def links(self) -> list[Link]:
        """See NicReader."""
        return self._links.dump()

    def left_out(self) -> dict[str, OSError]:
        """See NicReader; what the kernel says of a link is not in parts that could be broken."""
        return {}

    def queueing(self, links: Collection[Link]) -> Mapping[int, Queueing | OSError]:
        """See NicReader."""
        return self._queueing.queueing({link.ifindex for link in links})

    def driver(self, device: str) -> Driver:
        """See NicReader."""
        return self._ethtool.driver(device)

    def statistics(self, device: str) -> Statistics:
        """See NicReader."""
        return self._ethtool.statistics(device)

    def settings(self, device: str) -> LinkSettings:
        """See NicReader."""
        return self._ethtool.settings(device)

    def link_modes(self, device: str) -> LinkModes:
        """See NicReader."""
        return self._netlink.link_modes(device)

    def link_state(self, device: str) -> LinkState:
        """See NicReader."""
        return self._netlink.link_state(device)

    def pause(self, device: str) -> Pause:
        """See NicReader."""
        return self._netlink.pause(device)

    def fec(self, device: str) -> Fec:
        """See NicReader."""
        return self._netlink.fec(device)

    def standard_statistics(self, device: str) -> dict[str, int]:
        """See NicReader."""
        return self._netlink.standard_statistics(device)

    def dcb(self, device: str) -> Dcb:
        """See NicReader."""
        return self._dcb.dcb(device)

    def module_page(self, device: str, *, page: int, bank: int, offset: int, length: int, address: int = 0x50) -> bytes:
        """See NicReader."""
        return self._netlink.module_page(device, page=page, bank=bank, offset=offset, length=length, address=address)

    def forget(self, device: str) -> None:
        """See NicReader."""
        self._ethtool.forget(device)

    def event_fd(self) -> int | None:
        """See NicReader."""
        return self._events.fileno()

    def events(self) -> list[Event]:
        """See NicReader."""
        return self._events.read()

    def close(self) -> None:
        """See NicReader."""
        self._open.close()


class ReplayNic:
    """Answers from a folder of recordings. There are no events.

    What is broken costs its own device alone: its requests fail with EBADMSG, and it is missing among the links if
    that part is unreadable.
    """

    def __init__(self, folder: Path) -> None:
        self._recordings = Recordings(folder, parse)
        self._left_out: dict[str, OSError] = {}

    def links(self) -> list[Link]:
        """See NicReader."""
        links, left_out = [], {}
        for device in self._recordings.names():
            try:
                links.append(given(self._recordings.get(device).link, device))
            except OSError as error:
                if error.errno not in {errno.ENODEV, errno.EOPNOTSUPP}:  # gone since, or recorded without a link
                    left_out[device] = error
        self._left_out = left_out
        return sorted(links, key=lambda link: link.ifindex)

    def left_out(self) -> dict[str, OSError]:
        """See NicReader."""
        return self._left_out

    def queueing(self, links: Collection[Link]) -> Mapping[int, Queueing | OSError]:
        """See NicReader."""
        found: dict[int, Queueing | OSError] = {}
        for link in links:
            try:
                found[link.ifindex] = given(self._recordings.get(link.name).queueing, link.name)
            except OSError as error:
                if error.errno not in {errno.ENODEV, errno.EOPNOTSUPP}:
                    found[link.ifindex] = error
        return found

    def driver(self, device: str) -> Driver:
        """See NicReader."""
        return given(self._recordings.get(device).driver, device)

    def statistics(self, device: str) -> Statistics:
        """See NicReader."""
        return given(self._recordings.get(device).statistics, device)

    def settings(self, device: str) -> LinkSettings:
        """See NicReader."""
        return given(self._recordings.get(device).settings, device)

    def link_modes(self, device: str) -> LinkModes:
        """See NicReader."""
        return given(self._recordings.get(device).link_modes, device)

    def link_state(self, device: str) -> LinkState:
        """See NicReader."""
        return given(self._recordings.get(device).link_state, device)

    def pause(self, device: str) -> Pause:
        """See NicReader."""
        return given(self._recordings.get(device).pause, device)

    def fec(self, device: str) -> Fec:
        """See NicReader."""
        return given(self._recordings.get(device).fec, device)

    def standard_statistics(self, device: str) -> dict[str, int]:
        """See NicReader."""
        return given(self._recordings.get(device).standard_statistics, device)

    def dcb(self, device: str) -> Dcb:
        """See NicReader."""
        return given(self._recordings.get(device).dcb, device)

    def module_page(self, device: str, *, page: int, bank: int, offset: int, length: int, address: int = 0x50) -> bytes:
        """See NicReader."""
        memory = given(self._recordings.get(device).module, device)
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

    def events(self) -> list[Event]:
        """See NicReader."""
        return []

    def close(self) -> None:
        """See NicReader."""
        self._recordings.clear()


def record(reader: NicReader, folder: Path, *, module: bool = False) -> None:
    """Write what a reader answers for all its devices as a folder that ReplayNic reads.

    The folder is made if need be; each file appears, or replaces the one before, in one piece.

    Args:
        reader: What is recorded.
        folder: Where the files go.
        module: Whether the memory of the modules in the ports is read too, which takes a second a port and disturbs
            the traffic of some devices.

    Raises:
        OSError: The links cannot be read, or a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    links = reader.links()
    queueing = _queueing(reader, links)
    for link in links:
        device = link.name
        path = path_of(folder, device)
        answers = {
            "link": link,
            "driver": _ask(reader.driver, device),
            "statistics": _ask(lambda name: pairs(reader.statistics(name)), device),
            "settings": _ask(reader.settings, device),
            "link_modes": _ask(reader.link_modes, device),
            "link_state": _ask(reader.link_state, device),
            "pause": _ask(reader.pause, device),
            "fec": _ask(reader.fec, device),
            "standard_statistics": _ask(reader.standard_statistics, device),
            "dcb": _ask(reader.dcb, device),
            "queueing": queueing.get(link.ifindex),
            "module": _ask(partial(_memory, reader), device) if module else None,
        }
        kept = {part: _said(answer) for part, answer in answers.items() if answer is not None}
        del kept["link"]["name"]  # it is the file's
        new = path.with_name(f".{path.name}.new")
        new.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=2) + b"\n")
        new.replace(path)


def _ask(request: Callable[[str], object], device: str) -> object:
    """Give an answer or its error as a recording has it; None for what the device does not support."""
    try:
        return request(device)
    except OSError as error:
        return failure_name(error)


def _queueing(reader: NicReader, links: Collection[Link]) -> dict[int, object]:
    """Give how each device queues, or the error, as a recording has it."""
    try:
        found = reader.queueing(links)
    except OSError as error:
        found = {link.ifindex: error for link in links}
    return {index: failure_name(one) if isinstance(one, OSError) else one for index, one in found.items()}


def _memory(reader: NicReader, device: str) -> object:
    return record_memory(partial(reader.module_page, device), failure_name)


def _said(answer: object) -> Any:  # noqa: ANN401 - as JSON has it
    """Give an answer without those of its fields that say nothing."""
    plain = msgspec.to_builtins(answer)
    return {k: v for k, v in plain.items() if v not in (None, {}, "")} if isinstance(plain, dict) else plain
