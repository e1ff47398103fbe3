"""Rules for the lines of NCCL's debug log, of all releases: keyword, pattern, and the fact built from a match."""

import re

from exporter.nccl import log_facts as facts
from exporter.nccl.debug_log_libfabric import LIBFABRIC_RULES
from exporter.nccl.debug_log_rdma import RDMA_RULES
from exporter.nccl.debug_log_sockets import SOCKET_RULES
from exporter.nccl.debug_log_watchdog import WATCHDOG_RULES
from exporter.nccl.decoding import MAX_RANKS
from exporter.nccl.log_facts import Fact
from exporter.nccl.log_rule import log_rule, optional_number

_PART = re.compile(r"\[(\d{1,4})\](?:=\{([^{}]{1,1000})\}|([^\[\]{} ]{1,120}))", re.ASCII)
_PORT = re.compile(r"([A-Za-z][\w.\-]{0,63}):(\d{1,3})(?::\d{1,4}){0,2}/(IB|RoCE)(/SHARP)?", re.ASCII)


def _adapters(found: re.Match[str]) -> Fact:
    """Parse "[0]mlx5_0:1/IB [1]…", and the merged NICs of 2.20 to 2.22: "[0]={[0] mlx5_0:1/IB, [1] …} [2]mlx5_2:1/IB".

    Where NICs are merged, NICs that are not merged are listed with their physical index, while channels use the index
    of the virtual NIC, which is the position in the list.
    """
    parts = _PART.findall(found[1])
    merging = any(merged for _, merged, _ in parts)
    adapters = tuple(
        facts.Adapter(place if merging else int(index), device, int(port), link, bool(sharp))
        for place, (index, merged, single) in enumerate(parts)
        for device, port, link, sharp in _PORT.findall(merged or single)
    )
    return facts.Adapters(adapters)


def _channel(found: re.Match[str]) -> Fact:
    channel, source, source_gpu, target, target_gpu, direction, via = found.groups()
    ends = (int(channel), int(source), source_gpu or "", int(target), target_gpu or "", direction or "")
    if net := _NET.match(via):
        gdr = net[4] is not None
        return facts.Channel(*ends, "NET", net[1], int(net[2]), gdr, optional_number(net[3]))
    transport, _, rest = via.partition("/")
    if via.startswith("direct shared memory"):
        transport, rest = "SHM", "direct"
    # The intermediate GPU of P2P/indirect and what RCCL appends are not part of the name.
    words = rest.split("[", 1)[0].split(" comm ", 1)[0].split()
    name = " ".join(words[:2]) if words[:1] == ["direct"] else "".join(words[:1])
    return facts.Channel(*ends, transport[:16].strip(), name[:32], None, None, None)


_NET = re.compile(r"NET/([A-Za-z][\w .\-]{0,63})/(\d{1,4})(?:\((\d{1,7})\))?(/GDRDMA(?:\(PCI\))?)?", re.ASCII)


def _init(found: re.Match[str]) -> Fact | None:
    comm, rank, n_ranks, nvml, bus, comm_id, phase, end = found.groups()
    if end or not 0 <= int(rank) < int(n_ranks) <= MAX_RANKS:
        return None
    return facts.CommInit(
        comm, int(rank), int(n_ranks), optional_number(nvml), pci_address(bus or "") or "", comm_id or "", phase or ""
    )


def pci_address(bus_id: str) -> str | None:
    """Return the PCI address of NCCL's busId ("c8000" is 0000:c8:00.0, "435e00000" 435e:00:00.0), None if malformed."""
    if not re.fullmatch(r"[0-9a-fA-F]{1,12}", bus_id, re.ASCII):
        return None
    number = int(bus_id, 16)
    domain, bus, device, function = number >> 20, number >> 12 & 0xFF, number >> 4 & 0xFF, number & 0xF
    if function > 7 or device > 0x1F:
        return None
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function}"


def _gpu_gdr(found: re.Match[str]) -> Fact:
    index = int(found[3], 16) & _LOCAL_ID
    return facts.GpuGdr(found[1] == "Enabled", found[2], index, int(found[4]), int(found[5]))


_LOCAL_ID = (1 << 56) - 1
"""Part of a topology ID that is the index on its host (NCCL_TOPO_ID_LOCAL_ID_MASK); %lx since 2.21, %d before."""


def _pair_gdr(found: re.Match[str]) -> Fact:
    return facts.GpuGdr(found[1] == "Enabled", found[2], int(found[3]), int(found[4]), int(found[5]))


_PATH = re.compile(
    r"NET/(?:[0-9a-f]{1,8}-)?([0-9A-Fa-f]{1,16}) \((\d{1,3})/(\d{1,7}(?:\.\d{1,7})?)/([A-Z]{2,4})\)", re.ASCII
)


def _paths(found: re.Match[str]) -> Fact | None:
    adapters = tuple(
        facts.PathToAdapter(int(index, 16) & _LOCAL_ID, int(hops), float(speed) * 1e9, kind)
        for index, hops, speed, kind in _PATH.findall(found.string[found.end() :])
    )
    return facts.Paths(found[1], adapters) if adapters else None


def _setting(found: re.Match[str]) -> Fact | None:
    name, value = found[1], found[2].strip().removesuffix(".")
    return facts.Setting(name, value[:256]) if name.startswith(_NETWORK_VARIABLES) else None


_NETWORK_VARIABLES = (
    "NCCL_IB_",
    "NCCL_NET",
    "NCCL_SOCKET_",
    "NCCL_CROSS_NIC",
    "NCCL_P2P_",
    "NCCL_SHM_",
    "NCCL_PXN_",
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_NVLS_",
    "NCCL_COLLNET_",
    "NCCL_MNNVL_",
    "NCCL_DMABUF_",
)
"""Prefixes of the variables that are read; others may contain secrets."""

_INIT = (
    r"comm (0x[0-9a-f]{1,16}) rank (\d{1,7}) nranks (\d{1,7})(?: cudaDev \d{1,4})?(?: nvmlDev (\d{1,4}))?"
    r"(?: busId ([0-9a-f]{1,12}))?(?: parent 0x[0-9a-f]{1,16}(?: (?:split|child)Count \d{1,7})? color -?\d{1,10}"
    r" key -?\d{1,10})?(?: commId (0x[0-9a-f]{1,16}))?(?: ?- (?:Init (START|COMPLETE)|(Destroy|Abort)))?"
)

RULES = (
    # "Using interface eth0 for sideband communication" up to 2.3 is of no NIC.
    log_rule("NET/IB : Using", r"NET/IB : Using(?! interface ) ?(.*?) ?(?:; ?OOB [\w.\-]{1,64}:.*)?$", _adapters),
    log_rule("NET/IB : No device", r"No device found", lambda _: facts.NoAdapters("no_device")),
    log_rule("Failed to open libibverbs", r"libibverbs", lambda _: facts.NoAdapters("no_library")),
    log_rule(
        "Using network ",
        r"Using network (\w[\w .\-]{0,63}?)\s*(?:comm 0x.*)?$",
        lambda found: facts.Network(found[1]),
    ),
    # "Provider" up to aws-ofi-nccl 1.13, "provider" and its fabric from 1.14 on.
    log_rule("rovider is ", r"Selected [Pp]rovider is ([\w;.\-]{1,64})", lambda found: facts.Provider(found[1])),
    log_rule(
        "via ",
        # Without the GPUs in brackets up to 2.4.
        r"(?:Channel|Ring) (\d{1,3})(?:/\d{1,3})? : (\d{1,7})(?:\[(\w{1,12})\])? -> (\d{1,7})(?:\[(\w{1,12})\])?"
        r"(?: \[(send|receive)\])? via (.{1,200})",
        _channel,
    ),
    log_rule(
        "Connected all rings",
        r"Connected all rings(?:, use ring PXN (\d) GDR (\d))?",
        lambda found: facts.RingSummary(*(None if one is None else one != "0" for one in found.groups())),
    ),
    log_rule(
        "GPU Direct RDMA",
        # Up to 2.4 with the GPU that was tried.
        r"GPU Direct RDMA (Enabled|Disabled) for (?:GPU \d{1,4}\[\d{1,4}\] / )?HCA (\d{1,4}) '(\w[\w.\-]{0,63})'",
        lambda found: facts.AdapterGdr(found[1] == "Enabled", int(found[2]), found[3]),
    ),
    log_rule(
        "GPU Direct RDMA",
        # The plugin of HPC-X, which prints no line where there is none, and no quote at the end.
        r"GPU Direct RDMA \((?:DMABUF|nvidia-peermem)\) enabled for HCA (\d{1,4}) '(\w[\w.\-]{0,63})",
        lambda found: facts.AdapterGdr(True, int(found[1]), found[2]),
    ),
    log_rule(
        "GPU Direct RDMA",
        r"GPU Direct RDMA (Enabled|Disabled) for GPU ([0-9a-f]{1,12})(?:\[\d{1,4}\])? / HCA ([0-9a-f]{1,16}) "
        r"\(distance (\d{1,3}) (?:<=|<|>=|>) (\d{1,3})\)",
        _gpu_gdr,
    ),
    log_rule(
        "GPU Direct RDMA",
        # 2.29: IDs of system and device, both in decimal.
        r"GPU Direct RDMA (Enabled|Disabled) for GPU/(\d{1,4}-\d{1,16}) \(rank \d{1,7}\) - NET/\d{1,4}-(\d{1,8}) "
        r"\(.{0,60}?distance (\d{1,3}) (?:<=|>) (\d{1,3})",
        _pair_gdr,
    ),
    log_rule(
        "coll channels",
        r"(\d{1,4}) coll channels,(?: (\d{1,4}) collnet channels,)?(?: (\d{1,4}) nvls channels,)? "
        r"(\d{1,4}) p2p channels",
        lambda found: facts.ChannelCounts(
            int(found[1]), optional_number(found[2]), optional_number(found[3]), int(found[4])
        ),
    ),
    log_rule("Connected NVLS tree", r"Connected NVLS tree", lambda _: facts.NvlsTree()),
    log_rule(
        "NVLS multicast support",
        r"NVLS multicast support is (not )?available on dev (\d{1,4})",
        lambda found: facts.NvlsSupport(found[1] is None, int(found[2])),
    ),
    log_rule("nranks ", _INIT, _init),
    log_rule(
        "nNodes ",
        r"comm (0x[0-9a-f]{1,16}) rank (\d{1,7}) nRanks (\d{1,7}) nNodes (\d{1,7}) ",
        lambda found: facts.CommShape(found[1], *(int(one) for one in found.groups()[1:])),
    ),
    log_rule("set by environment to ", r"(NCCL_[A-Z0-9_]{1,60}) set by environment to (.{0,400})", _setting),
    log_rule("NCCL_IB_HCA set to", r"(NCCL_IB_HCA) set to (.{0,400})", _setting),
    log_rule("_ece={supported=", r"_ece=\{supported=(\d)", lambda found: facts.Ece(found[1] != "0")),
    *(
        log_rule(word, r"(GPU/[0-9A-Fa-f]{1,12}(?:-[0-9A-Fa-f]{1,12})?) :", _paths) for word in ("NET/0 (", "NET/0-0 (")
    ),  # IDs with those of systems since 2.23
    log_rule(
        "CCL version ",
        r"([NR]CCL) version (?:: )?(\d{1,3}\.\d{1,3}\.\d{1,3})(?:\+(?:cuda|hip)(\d[\d.]{0,15}))?",
        lambda found: facts.Version(found[2], found[3] or "", found[1]),
    ),
    *RDMA_RULES,
    *SOCKET_RULES,
    *LIBFABRIC_RULES,
    *WATCHDOG_RULES,
)
"""All known kinds of lines."""
