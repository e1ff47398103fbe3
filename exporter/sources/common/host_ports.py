"""What the sources of this host's ports do alike: what they list, read and leave out, how rails are numbered."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from exporter.core import vocabulary
from exporter.core.blocking import HungError, Serial
from exporter.core.source import (
    Host,
    Options,
    SourceError,
    exports,
)
from exporter.core.table import Schema
from exporter.linux.netlink.rtnetlink import NetworkLink
from exporter.linux.nic_reader import KernelNic, NicReader, ReplayNic
from exporter.linux.pci import bus_order

APART = 0.05
"""Seconds between the first and the last row's reading from which each has a time of its own: one before it hung."""

SCAN = "/"
"""Name of the call that lists the devices of a place; no device can be named so. All sources of a place name it alike,
since where listing hangs for one, it hangs for all."""

FEEDS = frozenset({*vocabulary.RATES, vocabulary.SPEED, vocabulary.MAX_SPEED})
"""Endings from which other metrics are made: they are read even where they are details that nobody is shown."""

_ARPHRD_INFINIBAND = 32

_REPRESENTOR = re.compile(r"(c\d+)?pf\d+(vf|sf)\d+")

Listed = TypeVar("Listed")


class PortOptions(Options, frozen=True):
    """Configuration of a source of ports; include and exclude are names of devices.

    Attributes:
        rails: Rail of each device, for nodes where the order of the PCI addresses does not tell.
    """

    rails: dict[str, str] = {}  # noqa: RUF012  # msgspec copies mutable defaults

    def unread(self, *schemas: Schema) -> frozenset[str]:
        """Give the endings of the details that nobody is shown, for which nothing has to be read.

        All that is no detail is read even where it is dropped, for the sake of what is made of it.
        """
        return frozenset(
            ending
            for schema in schemas
            for ending, metric in schema.metrics.items()
            if metric.detail and ending not in FEEDS and not exports(metric, self.drop, self.keep)
        )


def nic_place(host: Host) -> tuple[str, object]:
    """Give the place of all calls into network devices, which must not overlap, whatever source makes them."""
    return ("nic", host.nic_replay)


def nic_reader(host: Host) -> Callable[[], NicReader]:
    """Give what opens the reader of network devices: of the kernel, or of recordings."""
    return KernelNic if host.nic_replay is None else partial(ReplayNic, host.nic_replay)


async def listed(serial: Serial, name: str, call: Callable[[], Listed], what: str = "") -> Listed:
    """Make the call that lists what there is to read.

    Args:
        serial: Makes it.
        name: Its name.
        call: Lists.
        what: What is asked, for the log, where the call's error does not name it.

    Raises:
        SourceError: It hangs, or failed.
    """
    found = (await serial.run([(name, call)]))[name]
    if isinstance(found, Exception):
        raise not_listed(found, what)
    return found


def not_listed(error: object, what: str = "") -> SourceError:
    """Say that nothing can be read, since the call that lists what there is hangs or failed: `error` tells."""
    reason = "timeout" if isinstance(error, HungError) else "unreadable"
    return SourceError(reason, f"{what}: {error}" if what else str(error))


def is_hardware(link: NetworkLink) -> bool:
    """Tell a network device that is a piece of hardware, or a function of one, from all that stands for others.

    IP over InfiniBand is none, though it names the card as its parent: `is_infiniband_port` tells it.
    """
    of_card = bool(link.parent_dev_name) and not link.kind and not _is_over_infiniband(link)
    return of_card and not is_representor(link.phys_port_name or "")


def is_infiniband_port(link: NetworkLink) -> bool:
    """Tell the device for IP over a port of InfiniBand from those of its partitions, which are on top of it."""
    return _is_over_infiniband(link) and bool(link.parent_dev_name) and link.lower is None


def _is_over_infiniband(link: NetworkLink) -> bool:
    """Tell IP over InfiniBand, which some drivers outside of Linux do not name as its kind."""
    return link.kind == "ipoib" or (not link.kind and link.hardware == _ARPHRD_INFINIBAND)


def is_representor(phys_port_name: str) -> bool:
    """Tell by the name of its port what only stands here for a virtual function or subfunction."""
    return _REPRESENTOR.fullmatch(phys_port_name) is not None


class Seat(NamedTuple):
    """Where a port sits: its siblings are those of its kind; `number` is that of the port in its device."""

    kind: str | None
    pci: str
    device: str
    number: int = 0


def number_rails(seats: Sequence[Seat], configured: Mapping[str, str]) -> list[str]:
    """Give the rail of each port.

    Args:
        seats: The ports.
        configured: Rails by device, which win.

    Returns:
        The place of each among the ports of its kind in the order of their PCI addresses, from 0; empty for a port of
        no kind.
    """
    rails = [""] * len(seats)
    counted: Counter[str] = Counter()
    order = sorted(
        range(len(seats)),
        key=lambda place: (bus_order(seats[place].pci, seats[place].device), seats[place].number),
    )
    for place in order:
        seat = seats[place]
        if seat.kind is not None:
            rails[place] = str(counted[seat.kind])
            counted[seat.kind] += 1
        rails[place] = configured.get(seat.device, rails[place])
    return rails


def own_times(time: float, times: Sequence[float]) -> Sequence[float] | None:
    """Give the time of each row's reading where some came long after the table's own `time`; else None."""
    return times if max(times) - time > APART else None
