"""Facts about the configuration of a host. None is what could not be read, and nothing is judged from it."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from exporter.config.schema import Expected


@dataclass(frozen=True, slots=True, kw_only=True)
class PciLink:
    """A PCIe link: transfers per second per lane, and lanes; what the function and the bridge above support.

    `bridge_speed` and `bridge_lanes` are None too where there is no bridge.
    """

    speed: float | None = None
    lanes: int | None = None
    max_speed: float | None = None
    max_lanes: int | None = None
    bridge_speed: float | None = None
    bridge_lanes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PciRequests:
    """How a PCI Express function accesses memory: bytes of its largest read request and packet, relaxed ordering."""

    max_read_request: int
    max_payload: int
    relaxed_ordering: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PciFacts:
    """A PCI function of a NIC, an RDMA device or a GPU.

    Attributes:
        address: Its address.
        model: Its vendor and device, such as `15b3:1021`; empty if they cannot be read.
        devices: Its network and RDMA devices; empty for a GPU.
        path: The bridges above it, from the host bridge (`pci0000:16`) down.
        redirects: By address of each bridge above it, the redirects of ACS that are on, such as `ReqRedir`; None if the
            configuration space cannot be read.
        requests: Its accesses to memory; None if the configuration space cannot be read, or without PCI Express.
        link: Its link.
        numa_node: Its NUMA node; None if the platform does not report it.
        iommu: Type of its IOMMU group (`identity`, `DMA`, `DMA-FQ`); empty where it is in none.
        interrupts: Number of its interrupts on CPUs of its NUMA node, and of all; None if they cannot be read.
        is_virtual: Whether it is a virtual function.
        is_active: Whether it is powered; the link of a suspended function is not read.
    """

    address: str
    model: str = ""
    devices: Sequence[str] = ()
    path: Sequence[str] = ()
    redirects: Mapping[str, Sequence[str] | None] = field(default_factory=dict)
    requests: PciRequests | None = None
    link: PciLink = field(default_factory=PciLink)
    numa_node: int | None = None
    iommu: str | None = None
    interrupts: tuple[int, int] | None = None
    is_virtual: bool = False
    is_active: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Gid:
    """An entry of the GID table of a port: its index, its address as 16 bytes, and its type such as `RoCE v2`."""

    index: int
    address: bytes
    kind: str


ACTIVE = 4
"""PortState of a port that carries data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaPortFacts:
    """A port of an RDMA device.

    Attributes:
        device: Name of the device.
        port: Number of the port.
        netdev: Its network device; empty if there is none in this network namespace.
        pci: Address of its PCI function; empty if there is none.
        driver: Name of its driver; empty if it is not known.
        link_layer: `InfiniBand` or `Ethernet`.
        state: PortState by the InfiniBand specification: 1 down, 2 init, 3 armed, 4 active.
        physical_state: PortPhysicalState: 3 disabled, 2 polling, 5 link up …
        rate: Bits per second, as sysfs shows them.
        sm_lid: Local identifier of the subnet manager; 0 if there is none.
        pkeys: Partition keys that are not empty.
        gids: Entries of the GID table that are not empty; None if it cannot be read.
        firmware: Version of the firmware.
        board: Identifier of the board (PSID).
    """

    device: str
    port: int = 1
    netdev: str = ""
    pci: str = ""
    driver: str = ""
    link_layer: str = ""
    state: int | None = None
    physical_state: int | None = None
    rate: float | None = None
    sm_lid: int | None = None
    pkeys: Sequence[int] | None = None
    gids: Sequence[Gid] | None = None
    firmware: str = ""
    board: str = ""

    @property
    def name(self) -> str:
        """The port as `mlx5_0:1`."""
        return f"{self.device}:{self.port}"

    @property
    def is_active(self) -> bool:
        """Whether the port carries data."""
        return self.state == ACTIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchPortFacts:
    """What the neighbour of a port announces by LLDP.

    Attributes:
        name: Its system name and port.
        pfc: Priorities with priority flow control; None if it does not announce them.
        max_frame: Bytes of the largest frame; None likewise.
    """

    name: str
    pfc: Sequence[int] | None = None
    max_frame: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPortFacts:
    """A hardware network device.

    Attributes:
        device: Its name.
        carrier: Whether its link is up.
        mtu: Its MTU in bytes.
        speed: Bits per second; None while the link is down.
        max_speed: Bits per second of the fastest supported link mode.
        pfc: Priorities with priority flow control.
        trust: `dscp` or `pcp`; empty where the driver does not report it.
        pause: Whether the port accepts and sends pause frames of 802.3x, each.
        ecn: By role (`notification_point`, `reaction_point`) and priority, whether congestion control is on.
        cnp_dscp: DSCP of congestion notification packets that it sends.
        cnp_priority: Their priority of 802.1p.
        rp_filter, arp_ignore, arp_announce: Settings of IPv4, each the maximum of the device's and that of all.
        networks: Its IPv4 networks; None if the routing table cannot be read.
        switch_port: Its neighbour; None if none, or several, are known.
    """

    device: str
    carrier: bool | None = None
    mtu: int | None = None
    speed: float | None = None
    max_speed: float | None = None
    pfc: Sequence[int] | None = None
    trust: str = ""
    pause: tuple[bool, bool] | None = None
    ecn: Mapping[str, Mapping[int, bool]] = field(default_factory=dict)
    cnp_dscp: int | None = None
    cnp_priority: int | None = None
    rp_filter: int | None = None
    arp_ignore: int | None = None
    arp_announce: int | None = None
    networks: Sequence[str] | None = None
    switch_port: SwitchPortFacts | None = None


class Node(enum.Enum):
    """State of the character device by which programs open an RDMA device, or connections."""

    PRESENT = enum.auto()
    """Its node is in /dev/infiniband, and may be read and written."""

    DENIED = enum.auto()
    """The node may not be read and written."""

    MISSING = enum.auto()
    """The kernel has created it, and /dev has no node of its number."""

    NOT_CREATED = enum.auto()

    UNKNOWN = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNodes:
    """Character devices of RDMA: `uverbsN` by RDMA device, and `rdma_cm`."""

    verbs: Mapping[str, Node] = field(default_factory=dict)
    connections: Node = Node.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProcess:
    """A process that uses RDMA devices or NCCL.

    Attributes:
        pid: Its process ID.
        command: Its command name.
        job: Name of its job; empty if it is not known.
        memlock: Bytes that it may lock; inf for no limit; None if it cannot be read.
        may_lock: Whether it has CAP_IPC_LOCK, so that the limit does not apply.
        nccl: Its environment variables of NCCL; None if it cannot be read.
    """

    pid: int
    command: str = ""
    job: str = ""
    memlock: float | None = None
    may_lock: bool | None = None
    nccl: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProcesses:
    """The processes of jobs that were found.

    Attributes:
        found: The processes.
        unread: Why there may be others; empty if all were read.
    """

    found: Sequence[JobProcess] = ()
    unread: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFacts:
    """The kernel and what is loaded.

    Attributes:
        release: Such as `6.8.0-45-generic`.
        modules: Names of the modules; None if they cannot be read.
        peer_memory: Whether a peer-memory interface for GPUs is registered.
        nvidia: Text of the driver's version; empty without that driver.
        numa_balancing: Value of kernel.numa_balancing; None if it cannot be read.
        has_numa_balancing: Whether the kernel has that setting.
        numa_nodes: Number of NUMA nodes with CPUs.
        governors: Frequency governors and the number of CPUs with each; empty where there are none, None if they
            cannot be read.
        governor_driver: Driver of the CPU frequency.
        is_guest: Whether the host is a virtual machine.
    """

    release: str = ""
    modules: frozenset[str] | None = None
    peer_memory: bool = False
    nvidia: str = ""
    numa_balancing: int | None = None
    has_numa_balancing: bool = True
    numa_nodes: int | None = None
    governors: Mapping[str, int] | None = None
    governor_driver: str = ""
    is_guest: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """All that is known of a host.

    Attributes:
        host: Its name.
        functions: PCI functions of network and RDMA devices.
        gpus: PCI functions of GPUs.
        rdma_ports: Ports of RDMA devices.
        network_ports: Network devices that are hardware.
        device_nodes: Character devices of RDMA devices.
        kernel: The kernel.
        processes: Processes of jobs.
        nccl_conf: Lines of /etc/nccl.conf; empty if there is none.
        unread: Names of the fields above that could not be read.
        expected: What the configuration expects of this host.
        excluded: RDMA devices that the configuration excludes, of which nothing is expected.
    """

    host: str
    functions: Sequence[PciFacts] = ()
    gpus: Sequence[PciFacts] = ()
    rdma_ports: Sequence[RdmaPortFacts] = ()
    network_ports: Sequence[NetworkPortFacts] = ()
    device_nodes: DeviceNodes = field(default_factory=DeviceNodes)
    kernel: KernelFacts = field(default_factory=KernelFacts)
    processes: JobProcesses = field(default_factory=JobProcesses)
    nccl_conf: Sequence[str] = ()
    unread: frozenset[str] = frozenset()
    expected: Expected = field(default_factory=Expected)
    excluded: frozenset[str] = frozenset()

    def network_port(self, device: str) -> NetworkPortFacts | None:
        """Return a network device; None if it is not one of the hardware here."""
        return next((port for port in self.network_ports if port.device == device), None)

    def network_ports_of(self, rdma_ports: Sequence[RdmaPortFacts]) -> Sequence[NetworkPortFacts]:
        """Return the network devices of RDMA ports over Ethernet; those of management have other settings."""
        names = {one.netdev for one in rdma_ports if one.link_layer == "Ethernet"}
        return [one for one in self.network_ports if one.device in names]
