"""Network cards and RDMA devices of this host that are in the network namespaces of pods.

A card that is moved into a namespace leaves /sys/class/net and the links of the host, and usually gets another name.
The source `pods` finds it there; `nic` reads it, under the name that it has on the host. Likewise `rdma` reads RDMA
devices, which leave the host in the exclusive mode of namespaces only, and keep their names.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, suppress
from typing import NamedTuple, Protocol, TypeAlias

from exporter.core.source import SourceError
from exporter.linux.netlink.rdma import RdmaDevice
from exporter.linux.netlink.rtnetlink import NetworkLink
from exporter.linux.nic_reader import NicReader
from exporter.linux.rdma_reader import RdmaReader

FIND_SECONDS = 1.0
"""Seconds that a search may take: what is read beside moved cards must not wait for it."""

MAX_NAMES = 1024
"""Names of devices that are remembered; a host has a few dozens."""

MAX_NAME = 15
"""Characters of the name of a network device (IFNAMSIZ, with its NUL)."""

Identity: TypeAlias = tuple[str, str, str, str]
"""Bus and address of the parent device, name of the physical port, permanent MAC address: the same in all namespaces
and under all names."""


def identity_of(link: NetworkLink) -> Identity:
    """Return what identifies a network card, whatever its name and namespace."""
    return (link.parent_dev_bus_name or "", link.parent_dev_name or "", link.phys_port_name or "", link.mac or "")


class MovedDevice(NamedTuple):
    """A card in another namespace.

    Attributes:
        link: Its link there.
        use: Gives its reader for the time of a call; OSError (ENODEV) where the namespace has ended.
    """

    link: NetworkLink
    use: Callable[[], AbstractContextManager[NicReader]]


class MovedRdmaDevice(NamedTuple):
    """An RDMA device in another namespace.

    Attributes:
        device: The device.
        use: Gives its reader for the time of a call; OSError (ENODEV) where the namespace has ended.
    """

    device: RdmaDevice
    use: Callable[[], AbstractContextManager[RdmaReader]]


class Finder(Protocol):
    """Finds cards in other namespaces."""

    async def moved_devices(self, *, search: bool) -> Sequence[MovedDevice]:
        """Return the cards that are in other namespaces now.

        Args:
            search: Look in all namespaces, also in new ones; otherwise where cards were before.
        """

    async def moved_rdma_devices(self, *, search: bool) -> Sequence[MovedRdmaDevice]:
        """Return the RDMA devices that are in other namespaces, and not on the host; see `moved_devices`."""


class MovedDevices:
    """Joins the source that finds moved cards with those that read them, and remembers their names on the host."""

    def __init__(self) -> None:
        self._finder: Finder | None = None
        self._last: Sequence[MovedDevice] = ()
        self._last_rdma: Sequence[MovedRdmaDevice] = ()
        self._names: dict[Identity, str] = {}

    def provide(self, finder: Finder) -> None:
        """Let cards be found by this finder from now on."""
        self._finder = finder

    def withdraw(self, finder: Finder) -> None:
        """End what `provide` began; without effect after another one was provided."""
        if self._finder is finder:
            self._finder, self._last, self._last_rdma = None, (), ()

    @property
    def is_provided(self) -> bool:
        """Whether moved cards can be found."""
        return self._finder is not None

    async def find(self, *, search: bool) -> Sequence[MovedDevice]:
        """Return the cards in other namespaces; see Finder. If they cannot be found in time, those of the last time."""
        if self._finder is None:
            return ()
        with suppress(TimeoutError, SourceError):  # the finder's own reads report it
            async with asyncio.timeout(FIND_SECONDS):
                self._last = await self._finder.moved_devices(search=search)
        return self._last

    async def find_rdma(self, *, search: bool) -> Sequence[MovedRdmaDevice]:
        """Return the RDMA devices in other namespaces, in the same way."""
        if self._finder is None:
            return ()
        with suppress(TimeoutError, SourceError):
            async with asyncio.timeout(FIND_SECONDS):
                self._last_rdma = await self._finder.moved_rdma_devices(search=search)
        return self._last_rdma

    def remember(self, link: NetworkLink) -> None:
        """Remember the name of a card on the host."""
        key = identity_of(link)
        if self._names.get(key) != link.name:
            self._names.pop(key, None)
            self._names[key] = link.name
            if len(self._names) > MAX_NAMES:
                del self._names[next(iter(self._names))]

    def host_name(self, link: NetworkLink, taken: Collection[str] = ()) -> str:
        """Return the name of a moved card on the host.

        It is the one that it was seen with. If it was moved before this process began, it is its alias, in which the
        CNI plugin host-device keeps that name; else the address of its parent device, and the name of its port.

        Args:
            link: Its link.
            taken: Names of other devices.
        """
        address = "/".join(part for part in (link.parent_dev_name, link.phys_port_name) if part)
        alias = link.alias or ""
        if not 0 < len(alias) <= MAX_NAME or not alias.isascii() or not alias.isprintable() or {*" /:"} & {*alias}:
            alias = ""
        names = (self._names.get(identity_of(link), ""), alias, address)
        return next((name for name in names if name and name not in taken), address)
