"""Reads the links of all namespaces, and keeps their sockets open while the namespaces exist."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from exporter.core.blocking import BlockingCalls
from exporter.core.source import Failure
from exporter.linux.netlink.rtnetlink import NetworkLink
from exporter.linux.network_namespaces import NamespaceKey
from exporter.sources.common.blocking_call import make_call
from exporter.sources.common.failures import failure_of
from exporter.sources.common.moved_devices import MovedDevice, MovedRdmaDevice
from exporter.sources.pods.model import NamespaceRef
from exporter.sources.pods.namespace_sockets import NamespaceSockets, OpenNamespace
from exporter.sources.pods.namespaces import Listing
from exporter.sources.pods.pod_links import CARDS, HOST_DEVICE, attachment_of

LISTING, OPENING, OPENING_CARDS, OPENING_RDMA = "/namespaces", "/open namespaces", "/open cards", "/open RDMA devices"
"""Names of calls; those that read a namespace are named by its number."""

MAX_NICS = 64
"""NICs of a namespace that are read: a process that may administer one can add devices to it without end."""


class NamespaceReading(NamedTuple):
    """The NICs of a namespace, each with how it is attached, the time of the reading, and how many are left out."""

    nics: Sequence[tuple[NetworkLink, str]]
    time: float
    excess: int = 0


class NamespaceReadings:
    """The links of all namespaces as they were read last.

    Attributes:
        own: The own namespace; None before it was listed.
        readings: By namespace.
        failures: What could not be listed, entered or read lately.
        reads_rdma: Whether RDMA devices are in namespaces of their own, and so are looked for.
        listed: Monotonic time at which the last listing ended, and the seconds that it took.
    """

    def __init__(
        self, sockets: NamespaceSockets, calls: BlockingCalls, list_all: Callable[[], Listing], sysfs: Path
    ) -> None:
        """Read nothing yet.

        Args:
            sockets: Opens sockets in namespaces.
            calls: Makes the calls that may block.
            list_all: Lists the namespaces; blocks.
            sysfs: Root of sysfs.
        """
        self.own: NamespaceRef | None = None
        self.readings: dict[NamespaceKey, NamespaceReading] = {}
        self.failures: Sequence[Failure] = ()
        self.reads_rdma = False
        self.listed = 0.0, 0.0
        self._known: Collection[NamespaceKey] = ()  # as of the last listing, also those that cannot be entered
        # Few of the namespaces: the sources that read cards look here at each of their polls.
        self._with_cards: Mapping[NamespaceKey, OpenNamespace] = {}
        self._with_rdma: Sequence[OpenNamespace] = ()
        self._sockets, self._calls, self._list_all, self._sysfs = sockets, calls, list_all, sysfs

    @property
    def namespaces(self) -> Mapping[NamespaceKey, OpenNamespace]:
        """The namespaces whose sockets are open."""
        return self._sockets.namespaces

    async def close_gone(self) -> bool:
        """List the namespaces, and close the sockets in those that have gone; return whether any came or went.

        Raises:
            SourceError: They cannot be listed.
        """
        known = self._known
        listing = await make_call(self._calls, LISTING, self._list)
        has_gone = self._close_gone(listing)
        return has_gone or bool(listing.namespaces.keys() - known)

    async def read_all(self) -> None:
        """List the namespaces, and read the links of all.

        Raises:
            SourceError: They cannot be listed.
        """
        listing = await make_call(self._calls, LISTING, self._list)
        self._close_gone(listing)
        failures = list(listing.failures)
        failures += await make_call(self._calls, OPENING, partial(self._sockets.open_new, listing.namespaces))
        failures += await self._read(self._sockets.namespaces)
        failures += await self._open_cards()
        failures += await self._open_rdma()
        self.failures = failures

    async def read_moved(self) -> None:
        """Read the links of the namespaces that had cards before."""
        if self._with_cards:
            await self._read({key: one for key, one in self._with_cards.items() if key in self._sockets.namespaces})

    def moved_devices(self) -> list[MovedDevice]:
        """Return the cards that were moved as a whole, and can be read."""
        return [
            MovedDevice(link, namespace.cards.use)
            for key, namespace in self._with_cards.items()
            if key in self.readings and namespace.cards is not None
            for link, attachment in self.readings[key].nics
            if attachment == HOST_DEVICE
        ]

    async def moved_rdma_devices(self) -> list[MovedRdmaDevice]:
        """Read the RDMA devices that are in a namespace other than the own one."""
        if not self._with_rdma:
            return []
        calls = [(f"RDMA {one.serial}", partial(_rdma_devices, one)) for one in self._with_rdma]
        results = await self._calls.run(calls)
        return [one for found in results.values() if not isinstance(found, Exception) for one in found]

    def close(self) -> None:
        """Close all sockets."""
        self._sockets.close()
        self.readings.clear()

    def _list(self) -> Listing:
        """List the namespaces; blocks."""
        begun = monotonic()
        listing = self._list_all()
        self.listed = (ended := monotonic()), ended - begun
        return listing

    def _close_gone(self, listing: Listing) -> bool:
        self.own, self._known = listing.own, listing.namespaces.keys()
        has_gone = self._sockets.close_all_but(listing.namespaces)
        for key in self.readings.keys() - listing.namespaces.keys():
            del self.readings[key]
        return has_gone

    async def _read(self, namespaces: Mapping[NamespaceKey, OpenNamespace]) -> list[Failure]:
        """Read the links of some namespaces; one that could not be read has none."""
        asked = dict(namespaces)
        calls = [(_call_name(key), partial(_read_namespace, one, self._sysfs)) for key, one in asked.items()]
        results = await self._calls.run(calls)
        failures = []
        for key, one in asked.items():
            result = results[_call_name(key)]
            if self._sockets.namespaces.get(key) is not one:
                continue  # it ended meanwhile
            if isinstance(result, Exception):
                self.readings.pop(key, None)
                failures.append(failure_of(one.label, result, one.label))
            else:
                self.readings[key] = result
                if result.excess:
                    detail = f"{one.label}: {result.excess} NICs more than {MAX_NICS}; cards and the oldest are read"
                    failures.append(Failure(one.label, "too_many_nics", detail))
        return failures

    async def _open_cards(self) -> list[Failure]:
        """Open sockets for cards where there are some, and close those where there are none any more."""
        wanted = {
            key: one
            for key, one in self._sockets.namespaces.items()
            if key in self.readings and any(attachment == HOST_DEVICE for _, attachment in self.readings[key].nics)
        }
        for key in self._with_cards.keys() - wanted.keys():
            one = self._with_cards[key]
            if one.cards is not None:
                one.cards.close()
                one.cards = None
        self._with_cards = wanted
        if all(one.cards is not None for one in wanted.values()):
            return []
        return await make_call(self._calls, OPENING_CARDS, partial(self._sockets.open_cards, wanted))

    async def _open_rdma(self) -> list[Failure]:
        """Open sockets for RDMA devices where there are cards."""
        wanted = {
            key: one
            for key, one in self._sockets.namespaces.items()
            if key in self.readings and any(attachment in CARDS for _, attachment in self.readings[key].nics)
        }
        if not self.reads_rdma:
            return []
        failures = []
        if any(one.rdma is None for one in wanted.values()):
            failures = await make_call(self._calls, OPENING_RDMA, partial(self._sockets.open_rdma, wanted))
        self._with_rdma = [one for one in wanted.values() if one.rdma is not None]
        return failures


def _call_name(key: NamespaceKey) -> str:
    return f"net:[{key.inode}]"


def _rdma_devices(one: OpenNamespace) -> list[MovedRdmaDevice]:
    """Return the RDMA devices of one namespace; blocks."""
    if one.rdma is None:
        return []
    with one.rdma.use() as reader:
        return [MovedRdmaDevice(device, one.rdma.use) for device in reader.devices()]


def _read_namespace(one: OpenNamespace, sysfs: Path) -> NamespaceReading:
    """Read the NICs of one namespace; blocks.

    Names are unique: of two devices with one name, as while they are renamed during the dump, the last counts.
    """
    now = monotonic()
    with one.links.use() as reader:
        links = {link.name: link for link in reader.links()}.values()
        found = [(link, attachment_of(link, sysfs)) for link in links]
        nics = [(link, attachment) for link, attachment in found if attachment]
        nics, excess = _first(nics), max(0, len(nics) - MAX_NICS)
        if one.host_id is None and any(link.lower_namespace is not None for link, _ in nics):
            one.host_id = reader.own_namespace_id()
    return NamespaceReading(nics, now, excess)


def _first(nics: list[tuple[NetworkLink, str]]) -> list[tuple[NetworkLink, str]]:
    """Return at most MAX_NICS: cards, then those that were made first."""
    if len(nics) <= MAX_NICS:
        return nics
    return sorted(nics, key=lambda one: (one[1] not in CARDS, one[0].ifindex))[:MAX_NICS]
