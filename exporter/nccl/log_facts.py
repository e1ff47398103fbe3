"""Facts of NCCL's debug log: one type per kind of line. Long because it is one table of types.

Bandwidths are in bytes per second, durations in seconds. Addresses and names are those of the job's container. Text is
untrusted and not fit to be exported unchanged.
"""

from typing import Literal

import msgspec


class _Fact(msgspec.Struct, frozen=True, gc=False):
    """A fact from one line."""


class Version(_Fact, frozen=True, gc=False):
    """Library version. `cuda` is empty where the build does not include it; `library` is NCCL or RCCL."""

    version: str
    cuda: str = ""
    library: str = "NCCL"


class Adapter(_Fact, frozen=True, gc=False):
    """One NIC port in use.

    Attributes:
        index: NCCL's NIC index, as used by channels; for merged NICs that of the virtual NIC.
        device: mlx5_0 …
        port: Port number, from 1.
        link: IB or RoCE.
        sharp: Whether it supports SHARP.
    """

    index: int
    device: str
    port: int
    link: str
    sharp: bool = False


class Adapters(_Fact, frozen=True):
    """NICs that the process uses, in order; empty means none."""

    adapters: tuple[Adapter, ...]


class NoAdapters(_Fact, frozen=True, gc=False):
    """No NIC is used: `no_device`, or `no_library` where libibverbs could not be opened."""

    why: Literal["no_device", "no_library"]


class Network(_Fact, frozen=True, gc=False):
    """The selected network: IB, IBext_v8, Socket, AWS Libfabric and others."""

    name: str

    @property
    def tcp(self) -> bool:
        """Whether it is TCP."""
        return self.name in {"Socket", "FastSocket"}


class Channel(_Fact, frozen=True, gc=False):
    """The transport of one channel between two ranks.

    Attributes:
        channel: Channel number.
        source: Sending rank.
        source_gpu: Its nvmlDev from 2.17 on, its busId before, empty up to 2.4; unchanged.
        target: Receiving rank.
        target_gpu: Likewise.
        direction: send or receive, from the point of view of the writer; empty within a node.
        transport: NET, P2P or SHM.
        network: For NET: IB …; for the others their variant ("IPC", "CUMEM"); empty if none.
        adapter: NCCL's NIC index; None except for NET.
        gdr: Whether GPUDirect RDMA is used; None except for NET.
        proxy_rank: Rank whose NIC is used (PXN); None for its own.
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
    """All rings are connected; whether they use PXN and GPUDirect RDMA, None before 2.24.3."""

    pxn: bool | None
    gdr: bool | None


class AdapterGdr(_Fact, frozen=True, gc=False):
    """Whether a NIC supports GPUDirect RDMA."""

    enabled: bool
    index: int
    device: str


class GpuGdr(_Fact, frozen=True, gc=False):
    """Whether GPUDirect RDMA is used between a GPU and a NIC.

    Attributes:
        enabled: Whether it is used.
        gpu: busId or rank of the GPU, unchanged.
        index: NCCL's NIC index; wrong from ten on in 2.6 to 2.20, which print it in decimal in otherwise equal lines.
        distance: 0 to 9, near to far; the scale depends on the release.
        limit: Maximum distance at which it is used.
    """

    enabled: bool
    gpu: str
    index: int
    distance: int
    limit: int


class ChannelCounts(_Fact, frozen=True, gc=False):
    """Number of channels of each type; `collnet` and `nvls` are None where absent."""

    coll: int
    collnet: int | None
    nvls: int | None
    p2p: int


class NvlsTree(_Fact, frozen=True, gc=False):
    """NVLS trees are connected: NVSwitches do the reduction."""


class NvlsSupport(_Fact, frozen=True, gc=False):
    """Whether NVLS multicast is available for a GPU."""

    available: bool
    gpu: int


class CommInit(_Fact, frozen=True, gc=False):
    """Initialisation of a communicator.

    Attributes:
        comm: Address in the process, which other lines refer to.
        rank: Rank in the communicator.
        n_ranks: Number of ranks.
        nvml_dev: NVML device number; None in old releases.
        bus_id: PCI address of the GPU, such as "0000:c8:00.0"; empty where absent.
        comm_id: Hash of the communicator; empty in old releases.
        phase: START or COMPLETE; empty where absent.
    """

    comm: str
    rank: int
    n_ranks: int
    nvml_dev: int | None
    bus_id: str
    comm_id: str
    phase: str


class CommShape(_Fact, frozen=True, gc=False):
    """Distribution of the ranks of a communicator over nodes; fields as in `CommInit`."""

    comm: str
    rank: int
    n_ranks: int
    n_nodes: int


class AsyncEvent(_Fact, frozen=True, gc=False):
    """An asynchronous event of a NIC.

    Attributes:
        device: RDMA device; empty up to 2.18.
        port: Port number; None up to 2.18.
        event: "port error", "GID table changed" …, unchanged.
        fatal: Whether NCCL treats it as fatal; None where absent.
    """

    device: str
    port: int | None
    event: str
    fatal: bool | None


class SpeedChange(_Fact, frozen=True, gc=False):
    """A change of a port's speed."""

    device: str
    port: int | None


class Completion(_Fact, frozen=True, gc=False):
    """A work completion with an error.

    Attributes:
        status: ibv_wc_status: 12 transport retries exceeded, 4 local protection, 9 remote invalid request, 10 remote
            access, 13 RNR retries exceeded, 5 flushed.
        vendor: Vendor error; None where absent.
        peer: Address of the peer, without port; empty where absent.
        device: RDMA device; empty before 2.23.
        direction: Send or Recv; empty where absent.
    """

    status: int
    vendor: int | None
    peer: str
    device: str
    direction: str

    @property
    def consequence(self) -> bool:
        """Whether the work request was flushed, which only follows from another error."""
        return self.status == 5


class VerbsFailure(_Fact, frozen=True, gc=False):
    """A failed call of libibverbs.

    Attributes:
        call: ibv_modify_qp …
        error: "Connection timed out" …; empty where absent.
        device: RDMA device; empty where absent.
        port: Port number; None where absent.
        states: Current and next QP state ("INIT", "RTR"); empty where absent.
    """

    call: str
    error: str
    device: str
    port: int | None
    states: tuple[str, str] | tuple[()]


class Failover(_Fact, frozen=True, gc=False):
    """A NIC of a connection failed, and NCCL failed over to the others, with less bandwidth.

    Attributes:
        adapter: Index of the NIC in the connection.
    """

    adapter: int


class RecoveryFailure(_Fact, frozen=True, gc=False):
    """NCCL could not recover a failed NIC, and no longer tries."""

    adapter: int


class Recovered(_Fact, frozen=True, gc=False):
    """A failed NIC is used again."""

    adapter: int


class FatalError(_Fact, frozen=True, gc=False):
    """A fatal error of the network: its text, or the function that detected it."""

    error: str


class Setting(_Fact, frozen=True, gc=False):
    """A network-related environment variable, as NCCL logs it."""

    name: str
    value: str


class Provider(_Fact, frozen=True, gc=False):
    """The provider that libfabric selected."""

    name: str

    @property
    def tcp(self) -> bool:
        """Whether it is TCP, to which the EFA plugin falls back without a warning."""
        return self.name.startswith("tcp") or "sockets" in self.name


class Ece(_Fact, frozen=True, gc=False):
    """Whether enhanced connection establishment (ECE) is used."""

    supported: bool


class PathToAdapter(_Fact, frozen=True, gc=False):
    """A path of the topology.

    Attributes:
        adapter: NCCL's NIC index.
        hops: Number of hops.
        bandwidth: NCCL's estimate in bytes per second.
        kind: PIX and PXB stay within PCIe switches; PHB, NODE and SYS cross a CPU.
    """

    adapter: int
    hops: int
    bandwidth: float
    kind: str


class Paths(_Fact, frozen=True):
    """Paths from one device of a host (GPU/8F000) to its NICs."""

    origin: str
    adapters: tuple[PathToAdapter, ...]


class SocketFailure(_Fact, frozen=True, gc=False):
    """A failed operation of a TCP connection.

    Attributes:
        operation: connect, accept, receive, send, poll, create, listen, resolve (of a name), or interface (there is
            none, or none that reaches the peer).
        peer: Address of the peer, without port; empty where absent.
        error: "No route to host" …; empty where absent.
        number: Its errno; None where it is neither printed nor known.
        retried: Whether NCCL tries again.
    """

    operation: str
    peer: str
    error: str
    number: int | None
    retried: bool


class LibfabricFailure(_Fact, frozen=True, gc=False):
    """A request or call of libfabric that failed, from aws-ofi-nccl.

    Attributes:
        operation: send, receive, write, read, flush, connect or request (another one) for a request that completed with
            an error; post, completion_queue, memory, connect or setup for a call that failed.
        code: Error of libfabric: errno, or 256 and above for its own; None where absent.
        error: Text of the provider, which may contain addresses; empty where absent.
        peer: EFA address of the peer; empty where absent.
    """

    operation: str
    code: int | None
    error: str
    peer: str


class PeerClosed(_Fact, frozen=True, gc=False):
    """A TCP connection closed by the peer, whose log has the reason; the address is empty up to 2.9."""

    peer: str


class WatchdogTimeout(_Fact, frozen=True, gc=False):
    """A collective that PyTorch's watchdog timed out; the same line is printed several times.

    Attributes:
        process: Rank of the process in the job; None where the line does not begin with it.
        rank: Rank in the process group; None where absent.
        sequence: Sequence number in the process group; None in old releases of PyTorch.
        operation: ALLREDUCE …, unchanged.
        seconds: How long it had run.
        elements: Input elements of the rank; None up to PyTorch 2.0, and where the operation has none.
    """

    process: int | None
    rank: int | None
    sequence: int | None
    operation: str
    seconds: float
    elements: int | None


class WatchdogStall(_Fact, frozen=True, gc=False):
    """PyTorch's watchdog itself made no progress, as a call of NCCL or CUDA does not return.

    Attributes:
        process: Rank of the process in the job; None where the line does not begin with it.
        rank: Rank in the process group; None where absent.
        group: Description of the process group; empty where absent.
        seconds: For how long.
    """

    process: int | None
    rank: int | None
    group: str
    seconds: int


Fact = (
    Version
    | Adapters
    | NoAdapters
    | Network
    | Channel
    | RingSummary
    | AdapterGdr
    | GpuGdr
    | ChannelCounts
    | NvlsTree
    | NvlsSupport
    | CommInit
    | CommShape
    | AsyncEvent
    | SpeedChange
    | Completion
    | VerbsFailure
    | Failover
    | RecoveryFailure
    | Recovered
    | FatalError
    | Setting
    | Provider
    | Ece
    | Paths
    | SocketFailure
    | LibfabricFailure
    | PeerClosed
    | WatchdogTimeout
    | WatchdogStall
)


class LogEntry(msgspec.Struct, frozen=True):
    """One line with a fact.

    Attributes:
        fact: The fact.
        host: Host that wrote it; empty where absent.
        pid: Process ID; None where absent.
        gpu: cudaDev; None where absent.
        task: Task or rank from the prefix of mpirun or srun; None where absent.
        stamp: Time as printed, local and without time zone; empty where absent.
    """

    fact: Fact
    host: str
    pid: int | None
    gpu: int | None
    task: int | None
    stamp: str
