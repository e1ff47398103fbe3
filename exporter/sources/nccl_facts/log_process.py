"""Network configuration of one process, from its log: devices, transports, GPUDirect RDMA, NVLS and SHARP."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from exporter.nccl import log_facts as facts

MAX_ADAPTERS = 64
"""NIC ports of one process."""

MAX_COMMUNICATORS = 256
"""Communicators of one process."""

TCP = frozenset({"Socket", "FastSocket"})
"""Networks that use TCP."""

RECORDED_SETTINGS = frozenset(
    {"NCCL_IB_DISABLE", "NCCL_IB_TIMEOUT", "NCCL_NET_GDR_LEVEL", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"}
)
"""Environment variables whose values are recorded."""


class LoggedCommunicator(NamedTuple):
    """A communicator of a process.

    Attributes:
        rank: Rank of the process.
        n_ranks: Number of ranks.
        comm_id: Hash of the communicator.
        complete: Whether its initialisation is complete.
        last_seen: Monotonic time of the last line about it since the start; None if all lines are older.
    """

    rank: int
    n_ranks: int
    comm_id: str
    complete: bool
    last_seen: float | None


@dataclass(slots=True)
class LoggedProcess:
    """Network configuration of one process as far as logged; what is unknown is empty or None.

    Attributes:
        path: Its log.
        host: Its host, as logged.
        first_seen: Monotonic time of its first line.
        version: Version of NCCL.
        library: NCCL or RCCL.
        network: The selected network.
        channel_networks: Networks of its channels.
        provider: Provider of libfabric.
        adapters: NIC ports that it may use; None if unknown.
        missing: Why it has no NIC.
        used: NIC indices of its channels.
        received: Receiving channels over a NIC, by whether they use GPUDirect RDMA.
        sent: Likewise sending channels, and channels without direction.
        ring_gdr: Whether rings use GPUDirect RDMA.
        gdr_adapters: Whether a device supports GPUDirect RDMA.
        gdr_pairs: Whether pairs of GPU and NIC use GPUDirect RDMA.
        too_far: Whether a GPU exceeds the maximum distance to its NIC for GPUDirect RDMA.
        pxn: Whether PXN is used: the NIC of another GPU.
        nvls: `used`, `unused` or `unavailable`.
        sharp: `used` or `unused`.
        crosses_cpu: Whether every path from a GPU to a NIC crosses a CPU.
        ece: Whether enhanced connection establishment is used.
        protection_errors: Whether a work completion had a local protection error with vendor error 81 or 83.
        settings: Values of RECORDED_SETTINGS.
        failed: NICs that failed and did not recover.
        nodes: Nodes of its largest communicator.
        communicators: Communicators by their address in the process.
    """

    path: str
    host: str
    first_seen: float
    version: str = ""
    library: str = ""
    network: str = ""
    channel_networks: set[str] = field(default_factory=set)
    provider: str = ""
    adapters: tuple[facts.Adapter, ...] | None = None
    missing: str = ""
    used: set[int] = field(default_factory=set)
    received: Counter[bool] = field(default_factory=Counter)
    sent: Counter[bool] = field(default_factory=Counter)
    ring_gdr: bool | None = None
    gdr_adapters: dict[str, bool] = field(default_factory=dict)
    gdr_pairs: set[bool] = field(default_factory=set)
    too_far: bool | None = None
    pxn: bool | None = None
    nvls: str = ""
    sharp: str = ""
    crosses_cpu: bool | None = None
    ece: bool | None = None
    protection_errors: bool = False
    settings: dict[str, str] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    nodes: int | None = None
    communicators: dict[str, LoggedCommunicator] = field(default_factory=dict)

    @property
    def effective_network(self) -> str:
        """The selected network, else the only one of its channels; empty if unknown."""
        return self.network or (next(iter(self.channel_networks)) if len(self.channel_networks) == 1 else "")

    @property
    def crosses_nodes(self) -> bool | None:
        """Whether it communicates with other nodes; None if that is not logged."""
        return True if self.channel_networks else (None if self.nodes is None else self.nodes > 1)

    @property
    def tcp(self) -> bool | None:
        """Whether it uses TCP between nodes; None if unknown, and on one node, where NCCL selects a network too."""
        if not self.effective_network or self.crosses_nodes is False:
            return None
        return self.effective_network in TCP

    @property
    def gdr(self) -> str:
        """GPUDirect RDMA: `on`, `off` or `partial`; empty if unknown, with TCP, and on one node.

        Receiving channels decide: sending through host memory is normal with some generations of GPUs.
        """
        if self.tcp or self.crosses_nodes is False:
            return ""
        channels = self.received or self.sent
        if channels:
            return "partial" if len(channels) > 1 else ("on" if True in channels else "off")
        if self.ring_gdr is not None:
            return "on" if self.ring_gdr else "off"
        able = {*self.gdr_adapters.values(), *self.gdr_pairs}
        return "off" if able == {False} else ""


def _version(process: LoggedProcess, fact: facts.Version) -> None:
    process.version, process.library = fact.version, fact.library


def _adapters(process: LoggedProcess, fact: facts.Adapters) -> None:
    process.adapters = fact.adapters[:MAX_ADAPTERS]


def _no_adapters(process: LoggedProcess, fact: facts.NoAdapters) -> None:
    process.missing = fact.why


def _network(process: LoggedProcess, fact: facts.Network) -> None:
    process.network = fact.name


def _provider(process: LoggedProcess, fact: facts.Provider) -> None:
    process.provider = fact.name


def _channel(process: LoggedProcess, fact: facts.Channel) -> None:
    if fact.transport != "NET" or fact.gdr is None:
        return
    if len(process.channel_networks) < 4:
        process.channel_networks.add(fact.network)
    if fact.network in TCP:
        return
    (process.received if fact.direction == "receive" else process.sent)[fact.gdr] += 1
    if fact.adapter is not None and fact.adapter < MAX_ADAPTERS:
        process.used.add(fact.adapter)
    if fact.proxy_rank is not None:
        process.pxn = True


def _rings(process: LoggedProcess, fact: facts.RingSummary) -> None:
    if fact.gdr is not None:
        process.ring_gdr = fact.gdr
    if fact.pxn is not None and process.pxn is None:
        process.pxn = fact.pxn


def _adapter_gdr(process: LoggedProcess, fact: facts.AdapterGdr) -> None:
    if len(process.gdr_adapters) < MAX_ADAPTERS or fact.device in process.gdr_adapters:
        process.gdr_adapters[fact.device] = fact.enabled


def _gpu_gdr(process: LoggedProcess, fact: facts.GpuGdr) -> None:
    process.gdr_pairs.add(fact.enabled)
    process.too_far = bool(process.too_far) or (not fact.enabled and fact.distance > fact.limit)


def _counts(process: LoggedProcess, fact: facts.ChannelCounts) -> None:
    # A small communicator may not use what a larger one of the same process does.
    if fact.nvls is not None and process.nvls != "used":
        process.nvls = "used" if fact.nvls else process.nvls or "unused"
    if fact.collnet is not None and process.sharp != "used":
        process.sharp = "used" if fact.collnet else "unused"


def _nvls_tree(process: LoggedProcess, _fact: facts.NvlsTree) -> None:
    process.nvls = "used"


def _nvls_support(process: LoggedProcess, fact: facts.NvlsSupport) -> None:
    if not fact.available and process.nvls != "used":
        process.nvls = "unavailable"


def _shape(process: LoggedProcess, fact: facts.CommShape) -> None:
    process.nodes = max(process.nodes or 1, fact.n_nodes)


def _failover(process: LoggedProcess, fact: facts.Failover) -> None:
    if fact.adapter < MAX_ADAPTERS:
        process.failed.add(fact.adapter)


def _recovery_failure(process: LoggedProcess, fact: facts.RecoveryFailure) -> None:
    if fact.adapter < MAX_ADAPTERS:
        process.failed.add(fact.adapter)


def _recovered(process: LoggedProcess, fact: facts.Recovered) -> None:
    process.failed.discard(fact.adapter)


def _setting(process: LoggedProcess, fact: facts.Setting) -> None:
    if fact.name in RECORDED_SETTINGS:
        process.settings[fact.name] = fact.value


def _ece(process: LoggedProcess, fact: facts.Ece) -> None:
    process.ece = bool(process.ece) or fact.supported


def _paths(process: LoggedProcess, fact: facts.Paths) -> None:
    if fact.origin.startswith("GPU/"):
        process.crosses_cpu = bool(process.crosses_cpu) or all(
            path.kind in {"PHB", "NODE", "SYS"} for path in fact.adapters
        )


def _completion(process: LoggedProcess, fact: facts.Completion) -> None:
    process.protection_errors |= fact.status == 4 and fact.vendor in {81, 83}


UPDATES: Mapping[type, Callable[[LoggedProcess, Any], None]] = MappingProxyType(
    {
        facts.Version: _version,
        facts.Adapters: _adapters,
        facts.NoAdapters: _no_adapters,
        facts.Network: _network,
        facts.Provider: _provider,
        facts.Channel: _channel,
        facts.RingSummary: _rings,
        facts.AdapterGdr: _adapter_gdr,
        facts.GpuGdr: _gpu_gdr,
        facts.ChannelCounts: _counts,
        facts.NvlsTree: _nvls_tree,
        facts.NvlsSupport: _nvls_support,
        facts.CommShape: _shape,
        facts.Failover: _failover,
        facts.RecoveryFailure: _recovery_failure,
        facts.Recovered: _recovered,
        facts.Setting: _setting,
        facts.Ece: _ece,
        facts.Paths: _paths,
        facts.Completion: _completion,
    }
)
"""How each type of fact updates the process that logged it."""


def add_communicator(process: LoggedProcess, fact: facts.CommInit, last_seen: float | None) -> None:
    """Add or update a communicator; beyond MAX_COMMUNICATORS, new ones are ignored."""
    if fact.comm in process.communicators or len(process.communicators) < MAX_COMMUNICATORS:
        complete = fact.phase != "START"
        process.communicators[fact.comm] = LoggedCommunicator(
            fact.rank, fact.n_ranks, fact.comm_id, complete, last_seen
        )
