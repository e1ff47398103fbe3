"""What lines of NCCL's log can say: one type for each kind of fact; none of them a text to be shown as it stands.

Bandwidths are bytes per second, durations seconds. Addresses and names are as the job sees them, in its container.
"""

from typing import Literal

import msgspec


class _Fact(msgspec.Struct, frozen=True, gc=False):
    """A fact of one line."""


class Version(_Fact, frozen=True, gc=False):
    """NCCL's version; `cuda` is empty where the build does not tell it. `library` is NCCL or RCCL."""

    version: str
    cuda: str = ""
    library: str = "NCCL"


class Adapter(_Fact, frozen=True, gc=False):
    """One adapter and port in use.

    Attributes:
        index: NCCL's number, as in the network of channels; of merged adapters that of the virtual one.
        device: mlx5_0 …
        port: From 1.
        link: IB or RoCE.
        sharp: Whether SHARP can be used through it.
    """

    index: int
    device: str
    port: int
    link: str
    sharp: bool = False


class Adapters(_Fact, frozen=True):
    """Adapters that the process uses, in order; empty means none.

    Attributes:
        adapters: All of them.
        relaxed_ordering: Whether PCI relaxed ordering is on.
        control: Interface of the control connections; empty where not told.
    """

    adapters: tuple[Adapter, ...]
    relaxed_ordering: bool
    control: str

    @property
    def mixed(self) -> bool:
        """Whether both InfiniBand and Ethernet are among them."""
        return len({adapter.link for adapter in self.adapters}) > 1


class NoAdapters(_Fact, frozen=True, gc=False):
    """No adapter is used: `no_device`, or `no_library` where libibverbs could not be opened."""

    why: Literal["no_device", "no_library"]


class Interfaces(_Fact, frozen=True):
    """Interfaces that TCP goes through; `plugin` is Socket or FastSocket."""

    plugin: str
    interfaces: tuple[str, ...]


class Network(_Fact, frozen=True, gc=False):
    """The network that was chosen: IB, IBext_v8, Socket, AWS Libfabric and others."""

    name: str

    @property
    def tcp(self) -> bool:
        """Whether this is TCP."""
        return self.name in {"Socket", "FastSocket"}


class Channel(_Fact, frozen=True, gc=False):
    """How one channel goes from one rank to another.

    Attributes:
        channel: Its number.
        source: Rank that sends.
        source_gpu: nvmlDev of it from 2.17 on, its bus before; as it stands.
        target: Rank that receives.
        target_gpu: Likewise.
        direction: send or receive, by who wrote the line; empty within a node.
        transport: NET, P2P or SHM.
        network: Of NET, IB …; of others what follows ("IPC", "CUMEM"); empty if nothing.
        adapter: NCCL's number of the adapter; None but for NET.
        gdr: Whether data goes between GPU and adapter directly; None but for NET.
        proxy_rank: Rank whose adapter it goes through (PXN); None if its own.
    """

    channel: int
    source: int
    source_gpu: str
    target: int
    target_gpu: str
    direction: str
    transport: str
    network: str
    adapter: int | None
    gdr: bool | None
    proxy_rank: int | None


class RingSummary(_Fact, frozen=True, gc=False):
    """All rings are connected; whether through other GPUs' adapters and with GPUDirect, None before 2.24.3."""

    pxn: bool | None
    gdr: bool | None


class AdapterGdr(_Fact, frozen=True, gc=False):
    """Whether an adapter can do GPUDirect RDMA."""

    enabled: bool
    index: int
    device: str


class GpuGdr(_Fact, frozen=True, gc=False):
    """Whether GPUDirect RDMA is done between a GPU and an adapter.

    Attributes:
        enabled: Whether it is.
        gpu: Bus of the GPU, as NCCL writes it.
        index: NCCL's number of the adapter.
        distance: 0 to 9, near to far, by the scale of the version.
        limit: The farthest at which it is done.
    """

    enabled: bool
    gpu: str
    index: int
    distance: int
    limit: int


class ChannelCounts(_Fact, frozen=True, gc=False):
    """How many channels of each sort; `nvls` is None where not told."""

    coll: int
    collnet: int | None
    nvls: int | None
    p2p: int


class NvlsTree(_Fact, frozen=True, gc=False):
    """NVLS trees are connected: switches of NVLink reduce."""


class NvlsSupport(_Fact, frozen=True, gc=False):
    """Whether NVLink's switches can reduce for a GPU."""

    available: bool
    gpu: int


class CollnetPlugin(_Fact, frozen=True, gc=False):
    """A plugin for reduction by switches was loaded, such as SHARP."""

    name: str


class CommInit(_Fact, frozen=True, gc=False):
    """A communicator is being made, or was.

    Attributes:
        comm: Address in the process, by which other lines name it.
        rank: In the communicator.
        n_ranks: Its ranks.
        cuda_dev: GPU as the job numbers them.
        nvml_dev: GPU as the host numbers them; None in old versions.
        bus_id: PCI address of the GPU, as "0000:c8:00.0"; empty where not told.
        comm_id: Hash of the communicator; empty in old versions.
        phase: START or COMPLETE; empty where not told.
    """

    comm: str
    rank: int
    n_ranks: int
    cuda_dev: int | None
    nvml_dev: int | None
    bus_id: str
    comm_id: str
    phase: str


class CommShape(_Fact, frozen=True, gc=False):
    """How the ranks of a communicator lie on nodes; fields as of `CommInit`."""

    comm: str
    rank: int
    n_ranks: int
    n_nodes: int
    local_ranks: int
    local_rank: int


class InitTime(_Fact, frozen=True, gc=False):
    """Seconds that making a communicator took."""

    rank: int
    n_ranks: int
    seconds: float


class AsyncEvent(_Fact, frozen=True, gc=False):
    """An adapter reported something by itself.

    Attributes:
        device: Adapter; empty up to 2.18, which do not tell.
        port: Its port; None likewise.
        event: "port error", "GID table changed" …, as it stands.
        fatal: Whether NCCL takes it for fatal; None where not told.
    """

    device: str
    port: int | None
    event: str
    fatal: bool | None

    @property
    def port_error(self) -> bool:
        """Whether a port lost its link."""
        return "port error" in self.event

    @property
    def port_active(self) -> bool:
        """Whether a port has its link again."""
        return "port active" in self.event


class SpeedChange(_Fact, frozen=True, gc=False):
    """The speed of an adapter's port changed; in megabits per second, the new one as a text ("unknown")."""

    device: str
    port: int | None
    before_mbps: int
    after_mbps: str


class Completion(_Fact, frozen=True, gc=False):
    """A transfer failed.

    Attributes:
        status: Number of libibverbs: 12 no answer after all retries, 4 local protection, 9 remote invalid request,
            10 remote access, 13 receiver not ready, 5 flushed.
        vendor: Number of the vendor; None where not told.
        peer: Address of the other end, without port; empty where not told.
        device: Adapter; empty before 2.23.
        direction: Send or Recv; empty where not told.
    """

    status: int
    vendor: int | None
    peer: str
    device: str
    direction: str

    @property
    def consequence(self) -> bool:
        """Whether this only follows from another error: the queue was flushed."""
        return self.status == 5


class VerbsFailure(_Fact, frozen=True, gc=False):
    """A call of libibverbs failed.

    Attributes:
        call: ibv_modify_qp …
        error: "Connection timed out" …; empty where not told.
        device: Adapter; empty where not told.
        port: Its port; None where not told.
        states: From and to which state a queue pair was to go ("INIT", "RTR"); empty where not told.
    """

    call: str
    error: str
    device: str
    port: int | None
    states: tuple[str, str] | tuple[()]


class Failover(_Fact, frozen=True, gc=False):
    """An adapter was given up; the job goes on with the others at less bandwidth, and without saying so again.

    Attributes:
        adapter: NCCL's number of it.
        recovering: Whether NCCL will try to get it back.
    """

    adapter: int
    recovering: bool


class Recovered(_Fact, frozen=True, gc=False):
    """An adapter that was given up is used again."""

    adapter: int


class FatalError(_Fact, frozen=True, gc=False):
    """An error of an adapter that could not be survived."""

    error: str


class Setting(_Fact, frozen=True, gc=False):
    """A variable of the environment that concerns networks, as NCCL echoes it."""

    name: str
    value: str


class Provider(_Fact, frozen=True, gc=False):
    """The provider that libfabric chose."""

    name: str

    @property
    def tcp(self) -> bool:
        """Whether this is TCP, on which a plugin for EFA falls back without a word."""
        return self.name.startswith("tcp") or "sockets" in self.name


class Ece(_Fact, frozen=True, gc=False):
    """Whether enhanced connection establishment is used."""

    supported: bool


class PathToAdapter(_Fact, frozen=True, gc=False):
    """A path of the topology.

    Attributes:
        adapter: NCCL's number.
        hops: How many.
        bandwidth: Bytes per second that NCCL takes it for.
        kind: PIX and PXB within PCIe switches; PHB, NODE and SYS cross a processor.
    """

    adapter: int
    hops: int
    bandwidth: float
    kind: str


class Paths(_Fact, frozen=True):
    """Paths from one part of a host (GPU/8F000) to its adapters."""

    origin: str
    adapters: tuple[PathToAdapter, ...]


class PeerClosed(_Fact, frozen=True, gc=False):
    """The other end of a TCP connection closed it: look there for the reason."""

    peer: str


class RasListening(_Fact, frozen=True, gc=False):
    """Where RAS listens in this process."""

    address: str
    port: int


class Tuning(_Fact, frozen=True, gc=False):
    """What NCCL chose for an operation: names, or numbers in old versions."""

    operation: str
    size: int
    algorithm: str
    protocol: str


class WatchdogTimeout(_Fact, frozen=True, gc=False):
    """PyTorch's watchdog gave a collective up.

    Attributes:
        rank: Rank in the group; None where not told.
        sequence: Number in the group.
        operation: ALLREDUCE …, as it stands.
        seconds: How long it had run.
        elements: That the rank handed in; None up to PyTorch 2.0.
    """

    rank: int | None
    sequence: int
    operation: str
    seconds: float
    elements: int | None


class WatchdogStatus(_Fact, frozen=True, gc=False):
    """How far a rank had come when the watchdog looked: who enqueued least is the suspect.

    Attributes:
        rank: Rank in the group; None where not told.
        group: Its description; empty where not told.
        last_enqueued: Number in the group.
        last_completed: Likewise.
    """

    rank: int | None
    group: str
    last_enqueued: int
    last_completed: int


Fact = (
    Version
    | Adapters
    | NoAdapters
    | Interfaces
    | Network
    | Channel
    | RingSummary
    | AdapterGdr
    | GpuGdr
    | ChannelCounts
    | NvlsTree
    | NvlsSupport
    | CollnetPlugin
    | CommInit
    | CommShape
    | InitTime
    | AsyncEvent
    | SpeedChange
    | Completion
    | VerbsFailure
    | Failover
    | Recovered
    | FatalError
    | Setting
    | Provider
    | Ece
    | Paths
    | PeerClosed
    | RasListening
    | Tuning
    | WatchdogTimeout
    | WatchdogStatus
)


class Entry(msgspec.Struct, frozen=True):
    """One line that says something.

    Attributes:
        fact: What it says.
        host: Host that wrote it; empty where the line lacks it.
        pid: Its process; None likewise.
        gpu: cudaDev of it; None likewise.
        task: Task or rank in the job by what mpirun or srun put before the line; None where they did not.
        stamp: Time as it stands in the line, local and without zone; empty where it has none.
    """

    fact: Fact
    host: str
    pid: int | None
    gpu: int | None
    task: int | None
    stamp: str
