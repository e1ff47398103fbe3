"""Network namespaces that are values: for tests of the source `pods` without rights, and with devices that none has."""

import errno
import os
from pathlib import Path

from exporter.core.source import Host
from exporter.linux.netlink.rtnetlink import NetworkLink
from exporter.linux.network_namespaces import NamespaceKey
from exporter.sources.common.moved_devices import MovedDevices
from exporter.sources.pods.identity import IdentityPlaces, PodIdentities
from exporter.sources.pods.model import NamespaceRef
from exporter.sources.pods.namespace_sockets import NamespaceSockets
from exporter.sources.pods.namespaces import Listing
from exporter.sources.pods.options import PodsOptions
from exporter.sources.pods.source import Access, PodsSource
from exporter.sources.pods.virtual_functions import FunctionCounters
from tests.helpers.fake_nic_reader import FakeNicReader

OWN = NamespaceRef("/proc/self/ns/net", 4, 1)

HOST_ID = 7
"""The id of the host's namespace in all others."""


class FakeNamespace:
    """One namespace: its cards are those of its reader, its links those of the cards and further ones."""

    def __init__(self, name, inode):
        self.name, self.ref = name, NamespaceRef(f"/run/netns/{name}", 4, inode)
        self.cards = FakeNicReader()
        self.more = []
        self.rdma = None
        self.error = self.entry_error = None
        self.opened = self.closed = 0

    @property
    def key(self):
        return NamespaceKey(self.ref.device, self.ref.inode)

    def links(self):
        if self.error:
            raise self.error
        return [*self.cards.devices.values(), *self.more]

    def own_namespace_id(self):
        return HOST_ID

    def close(self):
        self.closed += 1

    def add(self, name, ifindex, kind="macvlan", lower=2, **more):
        link = NetworkLink(ifindex, name, kind=kind, lower=lower, lower_namespace=HOST_ID, **more)
        self.more.append(link)
        return link


class FakeNamespaces:
    """All namespaces of a host, and the host's own devices in `host`."""

    def __init__(self):
        self.host = FakeNicReader()
        self.all = {}
        self.current = None
        self.listings = 0
        self.failures = []
        self.function_answers = {}
        self.shares_rdma = None

    def close(self):
        """Close the socket that `request` is of."""

    def add(self, name, inode=None):
        one = FakeNamespace(name, inode or 1000 + len(self.all))
        self.all[one.key] = one
        return one

    def remove(self, one):
        del self.all[one.key]

    def list_all(self):
        self.listings += 1
        return Listing(OWN, {key: one.ref for key, one in self.all.items()}, list(self.failures))

    def enter(self, paths, call, _name):
        results = {}
        for key, path in paths.items():
            self.current = self.all.get(key)
            if self.current is None:
                results[key] = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            else:
                results[key] = self.current.entry_error or call()
        return results

    def open_links(self):
        self.current.opened += 1
        return self.current

    def open_cards(self):
        return self.current.cards.open()

    def access(self):
        sockets = NamespaceSockets(self.open_links, self.open_cards, self.enter, self.open_rdma)
        counters = FunctionCounters(lambda: self)
        return Access(self.list_all, sockets, self.host.open, counters, lambda: self.shares_rdma)

    def open_rdma(self):
        if self.current.rdma is None:
            raise OSError(errno.EPROTONOSUPPORT, os.strerror(errno.EPROTONOSUPPORT))
        return self.current.rdma

    def request(self, kind, body):
        """Answer a request for the virtual functions of a port."""
        assert kind == 18  # RTM_GETLINK
        return self.function_answers[body]

    def source(self, moved=None, sysfs="/nowhere", **options):
        """Make the source; nothing of it opens a file but those of sysfs."""
        return PodsSource(
            PodsOptions(enabled=True, **options),
            Host("gpu-1", Path(sysfs), Path("/nowhere")),
            moved or MovedDevices(),
            PodIdentities(IdentityPlaces((), None, None)),
            self.access(),
        )


def virtual_function(sysfs, address, port, number, rdma=""):
    """Make a virtual function in sysfs, of the port at another address, and its RDMA device."""
    devices = sysfs / "bus" / "pci" / "devices"
    folder, above = devices / address, devices / port
    folder.mkdir(parents=True)
    (folder / "physfn").symlink_to(above)
    (above / f"virtfn{number}").symlink_to(folder)
    if rdma:
        place = sysfs / "class" / "infiniband" / rdma
        place.mkdir(parents=True)
        (place / "device").symlink_to(folder)


def port_with_functions(sysfs, address, driver="mlx5_core", enabled=2, limit=8, rdma=""):
    """Make the PCI function of a port that can have virtual ones."""
    folder = sysfs / "bus" / "pci" / "devices" / address
    folder.mkdir(parents=True)
    (folder / "uevent").write_text(f"DRIVER={driver}\n")
    (folder / "sriov_numvfs").write_text(f"{enabled}\n")
    (folder / "sriov_totalvfs").write_text(f"{limit}\n")
    if rdma:
        place = sysfs / "class" / "infiniband" / rdma
        place.mkdir(parents=True)
        (place / "device").symlink_to(folder)
