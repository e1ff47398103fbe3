"""Source `pods`: NICs in the network namespaces of pods, read by sockets that stay in them.

A namespace is entered once, by a thread that opens a socket in it and ends. One dump a poll then returns its links with
their counters. A card that was moved into a namespace as a whole is read by the source `nic`, under its name on the
host. When mounts change the namespaces are listed again at once: the sockets in one that has gone are closed, which
lets it end, and its devices return.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from exporter.core.blocking import BlockingCalls
from exporter.core.definition import Context, Definition
from exporter.core.source import Failure, Host, Reading, Source, SourceError
from exporter.linux.mount_events import MountEvents
from exporter.linux.nic_reader import KernelNic, NicReader
from exporter.sources.common.blocking_call import make_call
from exporter.sources.common.failures import failure_of
from exporter.sources.common.moved_devices import MovedDevice, MovedDevices, MovedRdmaDevice
from exporter.sources.pods.assigned_tables import AssignedTables
from exporter.sources.pods.host_facts import HostFacts, read_host_facts, read_rdma_sharing
from exporter.sources.pods.identity import IdentityPlaces, PodIdentities
from exporter.sources.pods.metrics import ASSIGNED, FUNCTIONS, INFO, NIC, SHARES
from exporter.sources.pods.model import PodOwner
from exporter.sources.pods.namespace_readings import NamespaceReading, NamespaceReadings
from exporter.sources.pods.namespace_sockets import NamespaceSockets, OpenNamespace
from exporter.sources.pods.namespaces import Listing, list_namespaces
from exporter.sources.pods.options import PodsOptions
from exporter.sources.pods.pod_links import HOST_DEVICE
from exporter.sources.pods.tables import MAX_NICS, PodNamespace, PodNic, PodTables, host_device_of, within_limit
from exporter.sources.pods.virtual_functions import FunctionCounters, FunctionReadings

CALL_DEADLINE = 2.0
"""Seconds for the links of one namespace, or for listing all; one that hangs does not delay the others."""

FACTS_MAX_AGE = 60.0
"""Seconds after which what the host knows is read again, unless a device in a pod appeared before."""

OWNERS_WAIT = 1.0
"""Seconds that a read waits for the owners of namespaces; those that come later are used by the next."""

SETTLE_SECONDS = 0.1
"""Seconds between a change of mounts and the listing: a change seldom comes alone."""

LISTING_SHARE = 0.1
"""Share of the time that listings take at most while mounts change all the time."""

MIN_READ_GAP = 1.0
"""Seconds between two reads at least, when namespaces come and go."""

FOLLOW_SECONDS = (1.0, 3.0)
"""Seconds after a change at which everything is read again: plugins move devices into a namespace after it is made."""


class Access(NamedTuple):
    """How namespaces and the devices of the host are read.

    Attributes:
        list_all: Lists the namespaces; blocks.
        sockets: Opens sockets in them.
        open_host: Opens the reader of the devices of the host.
        counters: Reads the counters of virtual functions.
        read_sharing: Returns whether all namespaces see all RDMA devices; blocks.
    """

    list_all: Callable[[], Listing]
    sockets: NamespaceSockets
    open_host: Callable[[], NicReader]
    counters: FunctionCounters
    read_sharing: Callable[[], bool | None] = read_rdma_sharing


def kernel_access(options: PodsOptions, host: Host) -> Access:
    """Return access to the namespaces of this kernel."""
    procfs = host.procfs if options.processes else None
    return Access(
        partial(list_namespaces, options.namespaces, procfs),
        NamespaceSockets(),
        lambda: KernelNic(with_events=False),
        FunctionCounters(),
    )


class PodsSource:
    """Reads the NICs of pods, and finds the cards that the source `nic` reads there."""

    name = "pods"
    target = ""

    def __init__(
        self,
        options: PodsOptions,
        host: Host,
        moved: MovedDevices,
        identities: PodIdentities,
        access: Access,
    ) -> None:
        """Open nothing yet.

        Args:
            options: The configuration.
            host: This host.
            moved: Where the source `nic` gets cards in namespaces from.
            identities: Which pod a namespace belongs to.
            access: How namespaces and the devices of the host are read.
        """
        self.interval = float(options.interval)
        self.changed: asyncio.Event | None = asyncio.Event()
        self.settings = self._options = options
        self._host, self._moved, self._identities, self._access = host, moved, identities, access
        self._calls = BlockingCalls("pods", min(CALL_DEADLINE, self.interval / 2))
        self._all = NamespaceReadings(access.sockets, self._calls, access.list_all, host.sysfs)
        self._tables, self._assigned = PodTables(host.name), AssignedTables(host.name)
        self._facts, self._facts_until = HostFacts(), 0.0
        self._seen: frozenset[tuple[int, int]] = frozenset()
        self._host_reader: NicReader | None = None
        self._mounts: MountEvents | None = None
        self._has_changed = False  # mounts, since the last listing began
        self._look: asyncio.Task[None] | None = None
        self._owners: asyncio.Task[Sequence[Failure]] | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._last_read = 0.0
        self._is_closed = False

    async def applies(self) -> bool:
        """Return True: the source is off unless it is configured, and namespaces may come at any time."""
        return True

    async def read(self) -> Reading:
        """Read all namespaces; the failure of one does not affect the others."""
        self._watch_mounts()
        self._moved.provide(self)
        now = self._last_read = monotonic()
        owners = asyncio.ensure_future(self._refresh_owners())
        await self._all.read_all()
        failures = [*self._all.failures, *await self._refresh_facts(now), *await owners]
        taken = {link.name for link in self._facts.links.values()}
        found = [self._pod(one, reading, taken) for one, reading in self._read_namespaces()]
        namespaces = within_limit(found)
        if len(namespaces) < len(found):
            failures.append(Failure("", "too_many_nics", f"more than {MAX_NICS} NICs of pods; others have no series"))
        counters, more = await self._read_functions(namespaces)
        tables = self._tables.make(namespaces, self._host_pods(), counters, self._facts, now)
        assigned = self._assigned.make(self._identities.holders(), self._identities.shares(), now)
        return Reading([*tables, *assigned], [*failures, *more])

    async def moved_devices(self, *, search: bool) -> Sequence[MovedDevice]:
        """Return the cards in namespaces; see Finder."""
        if search:
            await self._all.read_all()
            self._read_soon()
        else:
            await self._all.read_moved()
        return self._all.moved_devices()

    async def moved_rdma_devices(self, *, search: bool) -> Sequence[MovedRdmaDevice]:
        """Return the RDMA devices in namespaces; see Finder."""
        if search and self._all.reads_rdma:
            await self._all.read_all()
        return await self._all.moved_rdma_devices()

    async def close(self) -> None:
        """Close all sockets."""
        self._is_closed = True
        self._moved.withdraw(self)
        for timer in self._timers:
            timer.cancel()
        for task in (self._look, self._owners):
            if task is not None:
                task.cancel()
        if self._mounts is not None:
            asyncio.get_running_loop().remove_reader(self._mounts.fileno())
            self._mounts.close()
            self._mounts = None
        self._all.close()
        self._calls.close()
        self._access.counters.close()
        if self._host_reader is not None:
            self._host_reader.close()
        await self._identities.close()

    # --- changes of mounts ---------------------------------------------------------------------------------------

    def _watch_mounts(self) -> None:
        """Begin to watch mounts, if this kernel can; else namespaces are listed at the interval only."""
        if self._mounts is None and not self._is_closed:
            try:
                self._mounts = MountEvents()
            except OSError:
                return
            asyncio.get_running_loop().add_reader(self._mounts.fileno(), self._on_mounts)

    def _on_mounts(self) -> None:
        if self._mounts is not None:
            self._mounts.clear()
        self._has_changed = True
        if self._look is None or self._look.done():
            self._look = asyncio.ensure_future(self._look_again())

    async def _look_again(self) -> None:
        """List the namespaces, close the sockets in those that have gone, and request a read if any came or went.

        A change during a listing may not be in it, so there is another one.
        """
        while self._has_changed:
            ended, seconds = self._all.listed
            pause = min(ended + seconds / LISTING_SHARE - monotonic(), self.interval)  # a listing may have hung
            await asyncio.sleep(max(SETTLE_SECONDS, pause))
            self._has_changed = False
            with suppress(SourceError):  # the next read reports it
                if await self._all.close_gone():
                    self._read_soon()

    def _read_soon(self) -> None:
        """Request a read now, unless one was made just now, and some that follow."""
        loop, changed = asyncio.get_running_loop(), self.changed
        if changed is None or self._is_closed:
            return
        for timer in self._timers:
            timer.cancel()
        first = max(0.0, self._last_read + MIN_READ_GAP - monotonic())
        self._timers = [loop.call_later(first + after, changed.set) for after in (0.0, *FOLLOW_SECONDS)]

    # --- what is known of the host and of pods -------------------------------------------------------------------

    async def _refresh_owners(self) -> Sequence[Failure]:
        """Refresh the owners of namespaces; what takes longer goes on, and is used by a later read."""
        task = self._owners = self._owners or asyncio.ensure_future(self._identities.refresh())
        await asyncio.wait([task], timeout=OWNERS_WAIT)
        if not task.done():
            return ()
        if self._owners is task:  # a read that failed meanwhile waited for it too
            self._owners = None
        error = task.exception()
        if isinstance(error, Exception):
            return [failure_of("", error, "owners of namespaces")]
        return task.result()

    async def _refresh_facts(self, now: float) -> Sequence[Failure]:
        """Read what the host knows, if a device in a pod appeared, or if it is too old."""
        seen = frozenset(
            (one.serial, link.ifindex) for one, reading in self._read_namespaces() for link, _ in reading.nics
        )
        if seen <= self._seen and now < self._facts_until:
            return ()
        try:
            self._facts = await make_call(self._calls, "/host", self._read_facts, "rtnetlink")
        except SourceError as error:
            return [Failure("", error.reason, str(error))]
        self._seen, self._facts_until = seen, now + FACTS_MAX_AGE
        self._all.reads_rdma = self._facts.shares_rdma is False
        return ()

    def _read_facts(self) -> HostFacts:
        if self._host_reader is None:
            self._host_reader = self._access.open_host()
        return read_host_facts(self._host.sysfs, self._host_reader, self._access.read_sharing)

    async def _read_functions(self, namespaces: Sequence[PodNamespace]) -> FunctionReadings:
        """Read the counters of virtual functions, of ports that have some in pods."""
        used = {nic.host_device for one in namespaces for nic in one.nics if nic.function is not None}
        ports = [port for port in self._facts.functions.ports.values() if port.has_statistics and port.device in used]
        if not ports:
            return {}, ()
        result = (await self._calls.run([("/functions", partial(self._access.counters.read, ports))]))["/functions"]
        return ({}, [failure_of("", result, "virtual functions")]) if isinstance(result, Exception) else result

    def _read_namespaces(self) -> list[tuple[OpenNamespace, NamespaceReading]]:
        open_ones, readings = self._all.namespaces, self._all.readings
        return [(open_ones[key], reading) for key, reading in readings.items() if key in open_ones]

    def _host_pods(self) -> Sequence[PodOwner]:
        """Return the pods in the namespace of this process, which is that of the host."""
        return () if self._all.own is None else self._identities.pods_in(self._all.own)

    def _pod(self, one: OpenNamespace, reading: NamespaceReading, taken: set[str]) -> PodNamespace:
        """Add to a reading what the host and the owners know; names of cards on the host are added to those `taken`."""
        nics, addresses = [], []
        for link, attachment in reading.nics:
            if not self._options.matches(link.name):
                continue
            if attachment == HOST_DEVICE:
                device, function = self._moved.host_name(link, taken), None
                taken.add(device)
            else:
                device, function = host_device_of(link, attachment, one.host_id, self._facts)
            if link.parent_dev_bus_name in {"pci", "auxiliary"} and link.parent_dev_name:
                addresses.append(link.parent_dev_name)
            nics.append(PodNic(one.label, link, attachment, device, function))
        owner = self._identities.owner(one.ref, addresses)
        return PodNamespace(one.serial, nics, reading.time, owner, self._identities.attachments(one.ref))


def _build(options: PodsOptions, context: Context) -> list[Source]:
    host = context.host
    places = IdentityPlaces(
        cni=[Path(one) for one in options.results],
        logs=Path(options.logs) if options.logs else None,
        kubelet=Path(options.kubelet) if options.kubelet else None,
        processes=options.processes,
        procfs=host.procfs,
        sysfs=host.sysfs,
    )
    return [
        PodsSource(options, host, context.shared.get(MovedDevices), PodIdentities(places), kernel_access(options, host))
    ]


DEFINITION = Definition("pods", PodsOptions, (NIC, INFO, FUNCTIONS, ASSIGNED, SHARES), _build)
"""Reads namespaces other than that of the host only where it is switched on: it needs CAP_SYS_ADMIN."""
