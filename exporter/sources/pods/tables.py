"""Tables of the NICs of pods, and of the virtual functions of ports."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from exporter.core.table import LabelValues, RowKeeper, Table, TableBuilder, Value
from exporter.linux.netlink.rtnetlink import NetworkLink
from exporter.sources.pods.cni_results import Attachment
from exporter.sources.pods.host_facts import HostFacts
from exporter.sources.pods.metrics import COUNTERS, FUNCTIONS, INFO, NIC
from exporter.sources.pods.model import PodOwner
from exporter.sources.pods.pod_links import CARDS, HOST_DEVICE, HOST_NETWORK, IPOIB, SR_IOV, SUBFUNCTION, lower_device
from exporter.sources.pods.virtual_functions import Function

FUNCTION_COUNTERS = frozenset(ending for ending in COUNTERS if not ending.endswith("_errors_total"))
"""Counters that a port has of its virtual functions."""


MAX_NICS = 16_384
"""NICs of all namespaces that have series; a node has a few hundred pods with some NICs each."""


class PodNic(NamedTuple):
    """A NIC in a namespace.

    Attributes:
        netns: Name of the namespace.
        link: Its link.
        attachment: How it is attached.
        host_device: The device of the host below it, or its name on the host; empty where not known.
        function: The virtual function that it is, if it is one of a known port.
    """

    netns: str
    link: NetworkLink
    attachment: str
    host_device: str
    function: Function | None = None


class PodNamespace(NamedTuple):
    """A namespace with its NICs.

    Attributes:
        serial: Its number, which no other has.
        nics: Its NICs.
        time: Monotonic seconds of the reading.
        owner: The pod; None if it is not known.
        attachments: The interfaces of libcni.
    """

    serial: int
    nics: Sequence[PodNic]
    time: float
    owner: PodOwner | None
    attachments: Sequence[Attachment] = ()


def host_device_of(
    link: NetworkLink, attachment: str, host_id: int | None, facts: HostFacts
) -> tuple[str, Function | None]:
    """Return the host's device of a NIC that is no card moved as a whole, and the virtual function that it is."""
    if attachment in {SR_IOV, SUBFUNCTION}:
        function = facts.functions.functions.get(link.parent_dev_name or "")
        return ("" if function is None else function.port), function
    return lower_device(link, host_id, facts.links), None


def within_limit(namespaces: Sequence[PodNamespace]) -> Sequence[PodNamespace]:
    """Return namespaces with MAX_NICS together: those with the fewest NICs first, as one user may make many."""
    if sum(len(one.nics) for one in namespaces) <= MAX_NICS:
        return namespaces
    kept, room = set[int](), MAX_NICS
    for one in sorted(namespaces, key=lambda one: len(one.nics)):
        room -= len(one.nics)
        if room < 0:
            break
        kept.add(one.serial)
    return [one for one in namespaces if one.serial in kept]


class PodTables:
    """Makes the tables, and reuses the text of their rows from poll to poll."""

    def __init__(self, host: str) -> None:
        """Store the host's name."""
        self._host = host
        self._keepers = {schema: RowKeeper(schema.labels) for schema in (NIC, INFO, FUNCTIONS)}

    def make(
        self,
        namespaces: Sequence[PodNamespace],
        host_pods: Sequence[PodOwner],
        counters: Mapping[Function, Mapping[str, int]],
        facts: HostFacts,
        now: float,
    ) -> list[Table]:
        """Make the tables.

        Args:
            namespaces: The namespaces.
            host_pods: The pods in the namespace of the host.
            counters: Counters of virtual functions by their ports.
            facts: What the host knows.
            now: Time of the first reading.
        """
        nics, infos = TableBuilder(NIC), TableBuilder(INFO)
        epochs, times = [], []
        used: Counter[str] = Counter()
        by_name = {link.name: link for link in facts.links.values()}
        for one in namespaces:
            owner = one.owner or PodOwner("", "")
            for nic in one.nics:
                counted = _counted(nic.function, counters, facts)
                info = self._info(one, nic, by_name, facts, has_function_counters=counted is not None)
                place = (nic.netns, nic.link.name)
                infos.row((*place, owner.pod_namespace, owner.pod_name, owner.container), {"info": info})
                used[nic.host_device] += nic.function is not None
                if nic.attachment != HOST_DEVICE:
                    nics.row(place, _values(nic.link, counted))
                    epochs.append((one.serial, nic.link.ifindex, counted is None))
                    times.append(one.time)
        for key in dict.fromkeys(("", "", pod.pod_namespace, pod.pod_name, "") for pod in host_pods if pod.pod_name):
            infos.row(key, {"info": self._host_network(facts)})
        tables = [
            nics.table(self._keepers[NIC], now, epochs=epochs, times=times),
            infos.table(self._keepers[INFO], now),
            _functions(facts, used).table(self._keepers[FUNCTIONS], now),
        ]
        return [table for table in tables if len(table.rows)]

    def _host_network(self, facts: HostFacts) -> LabelValues:
        """Return the labels of a pod in the namespace of the host: all devices of the host are its own too."""
        return (self._host, HOST_NETWORK, *([""] * 7), "shared" if facts.rdma else "", "")

    def _info(
        self,
        namespace: PodNamespace,
        nic: PodNic,
        host_links: Mapping[str, NetworkLink],
        facts: HostFacts,
        *,
        has_function_counters: bool,
    ) -> LabelValues:
        link = nic.link
        is_card = nic.attachment in CARDS
        rdma = facts.rdma_of(link if is_card else host_links.get(nic.host_device))
        network = next((one.network for one in namespace.attachments if one.interface == link.name), "")
        traffic = "" if nic.attachment == HOST_DEVICE else "function" if has_function_counters else "kernel"
        return (
            self._host,
            nic.attachment,
            network,
            nic.host_device,
            link.parent_dev_name or "" if link.parent_dev_bus_name == "pci" else "",
            "" if nic.function is None else str(nic.function.number),
            link.mac or "",
            "" if link.partition is None or nic.attachment != IPOIB else f"0x{link.partition:04x}",
            rdma,
            "" if not rdma else "own" if is_card else "shared",
            traffic,
        )


def _counted(
    function: Function | None, counters: Mapping[Function, Mapping[str, int]], facts: HostFacts
) -> Mapping[str, int] | None:
    """Return the counters of a virtual function by its port: empty if they could not be read, None if it has none.

    The kernel's count less: in the place of those that could not be read they would look like a reset.
    """
    port = None if function is None else facts.functions.ports.get(function.port)
    return counters.get(function, {}) if function is not None and port is not None and port.has_statistics else None


def _functions(facts: HostFacts, used: Mapping[str, int]) -> TableBuilder:
    """Return the rows of ports with virtual functions; `used` is the number of those in pods by port."""
    made = TableBuilder(FUNCTIONS)
    for port in facts.functions.ports.values():
        values = (port.enabled, port.limit, used.get(port.device, 0))
        endings = ("virtual_functions", "virtual_functions_limit", "virtual_functions_in_pods")
        made.row((port.device,), dict(zip(endings, values, strict=True)))
    return made


def _values(link: NetworkLink, counted: Mapping[str, int] | None) -> dict[str, Value | None]:
    """Return the values of one NIC by ending: those of its virtual function where its port counts them."""
    values: dict[str, Value | None] = {ending: link.stats.get(name) for ending, name in COUNTERS.items()}
    if counted is not None:
        values |= {ending: counted.get(COUNTERS[ending]) for ending in FUNCTION_COUNTERS}
    return values | {"link_up": int(link.carrier and link.operstate in {None, "up", "unknown"})}
