"""Open sockets in network namespaces, which are closed as soon as the namespace has gone.

A socket keeps its namespace alive, and with it every device that was moved into it. No file of a namespace stays open.
"""

import errno
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from exporter.core.source import Failure
from exporter.linux.namespace_links import NamespaceLinks
from exporter.linux.netlink.rtnetlink import NetworkLink
from exporter.linux.network_namespaces import NamespaceKey, in_namespaces
from exporter.linux.nic_reader import KernelNic, NicReader
from exporter.linux.rdma_reader import KernelRdma, RdmaReader
from exporter.sources.common.failures import failure_of
from exporter.sources.pods.model import NamespaceRef
from exporter.sources.pods.namespaces import label_of, number_of

RIGHTS = "entering network namespaces needs CAP_SYS_ADMIN"

_THREAD = "pods-namespaces"


class Closable(Protocol):
    """What has sockets."""

    def close(self) -> None:
        """Close them."""


class LinkSockets(Closable, Protocol):
    """Sockets that read the links of a namespace; see NamespaceLinks."""

    def links(self) -> list[NetworkLink]:
        """Return all devices of the namespace."""

    def own_namespace_id(self) -> int | None:
        """Return the id that the namespace of this process has there."""


Sockets = TypeVar("Sockets", bound=Closable)

Enter: TypeAlias = Callable[[Mapping[NamespaceKey, str], Callable[[], Any], str], Mapping[NamespaceKey, Any]]
"""Makes a call in namespaces; see in_namespaces."""


class Guarded(Generic[Sockets]):
    """Sockets that one thread uses at a time, and that are not closed under a running call but when it returns."""

    def __init__(self, sockets: Sockets) -> None:
        self._sockets = sockets
        self._lock = threading.Lock()
        self._is_closing = self._is_closed = False

    @contextmanager
    def use(self) -> Iterator[Sockets]:
        """Give the sockets for the time of a call.

        Raises:
            OSError: ENODEV: they are closed.
        """
        try:
            with self._lock:
                if self._is_closing:
                    raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), "network namespace")
                yield self._sockets
        finally:
            if self._is_closing:
                self.close()

    def close(self) -> None:
        """Close them now, or at the end of the running call; never waits."""
        self._is_closing = True
        if self._lock.acquire(blocking=False):
            try:
                if not self._is_closed:
                    self._is_closed = True
                    self._sockets.close()
            finally:
                self._lock.release()


class OpenNamespace:
    """A namespace with its sockets.

    Attributes:
        ref: The namespace.
        label: Its name, unique among the open ones.
        serial: Its number, which no other ever has: the kernel uses the inodes of namespaces again.
        links: Reads its links.
        cards: Reads its network cards; None while it has none.
        rdma: Reads its RDMA devices; None while all namespaces share them.
        host_id: The id that links in it have for the namespace of the host; None if not known.
    """

    def __init__(self, ref: NamespaceRef, label: str, serial: int, links: LinkSockets) -> None:
        self.ref = ref
        self.label = label
        self.serial = serial
        self.links = Guarded(links)
        self.cards: Guarded[NicReader] | None = None
        self.rdma: Guarded[RdmaReader] | None = None
        self.host_id: int | None = None

    def close(self) -> None:
        """Close all sockets."""
        self.links.close()
        for sockets in (self.cards, self.rdma):
            if sockets is not None:
                sockets.close()


def open_rdma() -> RdmaReader:
    """Open the reader of RDMA devices in the namespace of the calling thread: its first request opens the socket."""
    reader = KernelRdma()
    try:
        reader.devices()
    except BaseException:
        reader.close()
        raise
    return reader


class NamespaceSockets:
    """The open namespaces, by identity.

    A call that hung opens its sockets later, beside other calls: so a lock guards all changes.

    Attributes:
        namespaces: The open ones; never changed in place.
    """

    def __init__(
        self,
        open_links: Callable[[], LinkSockets] = NamespaceLinks,
        open_cards: Callable[[], NicReader] = lambda: KernelNic(with_events=False),
        enter: Enter = in_namespaces,
        open_rdma: Callable[[], RdmaReader] = open_rdma,
    ) -> None:
        """Open nothing yet.

        Args:
            open_links: Opens the socket for links in the namespace of the calling thread.
            open_cards: Opens those for network cards there.
            enter: Makes a call in each of some namespaces.
            open_rdma: Opens those for RDMA devices, likewise.
        """
        self._open_links, self._enter = open_links, enter
        self._open_cards, self._open_rdma = open_cards, open_rdma
        self._serials = count()
        self._lock = threading.Lock()
        self._is_closed = False
        self.namespaces: Mapping[NamespaceKey, OpenNamespace] = {}

    def close_all_but(self, listed: Mapping[NamespaceKey, NamespaceRef]) -> bool:
        """Close those that are not listed; return whether there was any. Those with another path keep their sockets."""
        with self._lock:
            before = self.namespaces
            self.namespaces = {key: one for key, one in before.items() if key in listed}
            for key, one in self.namespaces.items():
                one.ref = listed[key]
        gone = before.keys() - listed.keys()
        for key in gone:
            before[key].close()
        return bool(gone)

    def open_new(self, listed: Mapping[NamespaceKey, NamespaceRef]) -> list[Failure]:
        """Open sockets in the listed namespaces that have none; blocks."""
        new = {key: ref for key, ref in listed.items() if key not in self.namespaces}
        opened = self._visit({key: ref.path for key, ref in new.items()}, self._open_links)
        failures = []
        made: dict[NamespaceKey, LinkSockets] = {}
        for key, result in opened.items():
            if not isinstance(result, OSError):
                made[key] = result
            elif not isinstance(result, FileNotFoundError):
                failures.append(_failure_to_enter(label_of(new[key]), result))
        self._add(new, made)
        return _once(failures)

    def open_cards(self, wanted: Mapping[NamespaceKey, OpenNamespace]) -> list[Failure]:
        """Open the sockets for network cards in namespaces that have some; blocks."""

        def store(one: OpenNamespace, reader: NicReader) -> None:
            one.cards = Guarded(reader)

        return self._open_more({key: one for key, one in wanted.items() if one.cards is None}, self._open_cards, store)

    def open_rdma(self, wanted: Mapping[NamespaceKey, OpenNamespace]) -> list[Failure]:
        """Open the sockets for RDMA devices in namespaces that may have some; blocks."""

        def store(one: OpenNamespace, reader: RdmaReader) -> None:
            one.rdma = Guarded(reader)

        return self._open_more({key: one for key, one in wanted.items() if one.rdma is None}, self._open_rdma, store)

    def _open_more(
        self,
        missing: Mapping[NamespaceKey, OpenNamespace],
        open_sockets: Callable[[], Sockets],
        store: Callable[[OpenNamespace, Sockets], None],
    ) -> list[Failure]:
        opened = self._visit({key: one.ref.path for key, one in missing.items()}, open_sockets)
        failures = []
        for key, result in opened.items():
            if isinstance(result, OSError):
                failures.append(_failure_to_enter(missing[key].label, result))
                continue
            with self._lock:
                if self.namespaces.get(key) is missing[key]:
                    store(missing[key], result)
                    continue
            result.close()  # it ended meanwhile
        return _once(failures)

    def close(self) -> None:
        """Close all sockets, also those that a running call is about to open."""
        with self._lock:
            self._is_closed = True
        self.close_all_but({})

    def _add(self, refs: Mapping[NamespaceKey, NamespaceRef], made: Mapping[NamespaceKey, LinkSockets]) -> None:
        """Add namespaces by their names; one whose name another one in another folder has, by its number."""
        with self._lock:
            labels = {one.label for one in self.namespaces.values()}
            added = {}
            for key, sockets in made.items():
                label = label_of(refs[key])
                label = number_of(refs[key]) if label in labels else label
                labels.add(label)
                added[key] = OpenNamespace(refs[key], label, next(self._serials), sockets)
            if not self._is_closed:
                self.namespaces = {**self.namespaces, **added}
                return
        for one in added.values():
            one.close()

    def _visit(
        self, paths: Mapping[NamespaceKey, str], call: Callable[[], Sockets]
    ) -> Mapping[NamespaceKey, Sockets | OSError]:
        return self._enter(paths, call, _THREAD) if paths and not self._is_closed else {}


def _failure_to_enter(label: str, error: OSError) -> Failure:
    if error.errno == errno.EPERM:
        return Failure("", "eperm", f"{RIGHTS}: {error}")
    return failure_of(label, error, label)


def _once(failures: list[Failure]) -> list[Failure]:
    """Return one failure for each device and reason: what all namespaces lack is one failure."""
    return list({(one.device, one.reason): one for one in failures}.values())
