"""Rules for the lines of NCCL's debug log, of all releases: keyword, pattern, and the fact that is built of a match."""

import re
from collections.abc import Callable
from typing import NamedTuple

from exporter.nccl import log_facts as facts
from exporter.nccl.decoding import MAX_RANKS
from exporter.nccl.log_facts import Fact


class LogRule(NamedTuple):
    """One kind of log line.

    Attributes:
        word: Keyword that each such line contains.
        pattern: Pattern with the values.
        build: Builds the fact from the match; returns None if the values are not valid.
    """

    word: str
    pattern: re.Pattern[str]
    build: Callable[[re.Match[str]], Fact | None]


def _rule(word: str, pattern: str, build: Callable[[re.Match[str]], Fact | None]) -> LogRule:
    return LogRule(word, re.compile(pattern, re.ASCII), build)


def _int(text: str | None) -> int | None:
    return int(text) if text else None


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
    return facts.Adapters(adapters, "[RO]" in found[1], found[2] or "")


def _interfaces(found: re.Match[str]) -> Fact:
    return facts.Interfaces(found[1], tuple(re.findall(r"\[\d{1,4}\]([\w.\-@]{1,64}):", found[2], re.ASCII)))


def _channel(found: re.Match[str]) -> Fact:
    channel, source, source_gpu, target, target_gpu, direction, via = found.groups()
    ends = (int(channel), int(source), source_gpu or "", int(target), target_gpu or "", direction or "")
    if net := _NET.match(via):
        gdr = net[4] is not None
        return facts.Channel(*ends, "NET", net[1], int(net[2]), gdr, _int(net[3]))
    transport, _, rest = via.partition("/")
    if via.startswith("direct shared memory"):
        transport, rest = "SHM", "direct"
    # The intermediate GPU of P2P/indirect and what RCCL appends are not part of the name.
    words = rest.split("[", 1)[0].split(" comm ", 1)[0].split()
    name = " ".join(words[:2]) if words[:1] == ["direct"] else "".join(words[:1])
    return facts.Channel(*ends, transport[:16].strip(), name[:32], None, None, None)


_NET = re.compile(r"NET/([A-Za-z][\w .\-]{0,63})/(\d{1,4})(?:\((\d{1,7})\))?(/GDRDMA(?:\(PCI\))?)?", re.ASCII)


def _init(found: re.Match[str]) -> Fact | None:
    comm, rank, n_ranks, cuda, nvml, bus, comm_id, phase = found.groups()
    if not 0 <= int(rank) < int(n_ranks) <= MAX_RANKS:
        return None
    return facts.CommInit(
        comm, int(rank), int(n_ranks), _int(cuda), _int(nvml), pci_address(bus or "") or "", comm_id or "", phase or ""
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


_DEVICE_PORT = re.compile(r"NET/[A-Za-z/]{2,16} ?: ?([A-Za-z]\w{0,63}):(\d{1,3}) ", re.ASCII)


def _port_of(line: str) -> tuple[str, int | None]:
    """Return the device and port that a line names; ("", None) where it names none."""
    found = _DEVICE_PORT.search(line)
    return (found[1], int(found[2])) if found else ("", None)


def _async_event(found: re.Match[str]) -> Fact:
    return facts.AsyncEvent(*_port_of(found.string), found[2].strip()[:120], None if found[1] is None else False)


def _fatal_event(found: re.Match[str]) -> Fact:
    return facts.AsyncEvent(*_port_of(found.string), found[1].strip()[:120], fatal=True)


_GID_TABLE = "GID table changed"
_GID_CHANGE = "18"
"""IBV_EVENT_GID_CHANGE of libibverbs, which releases before 2.28 do not name."""


def _unnamed_event(found: re.Match[str]) -> Fact:
    event = _GID_TABLE if found[1] == _GID_CHANGE else found[0]
    return facts.AsyncEvent(*_port_of(found.string), event, fatal=False)


def _gpu_gdr(found: re.Match[str]) -> Fact:
    index = int(found[3], 16) & _LOCAL_ID
    return facts.GpuGdr(found[1] == "Enabled", found[2], index, int(found[4]), int(found[5]))


_LOCAL_ID = (1 << 56) - 1
"""Part of a topology ID that is the index on its host (NCCL_TOPO_ID_LOCAL_ID_MASK); %lx since 2.22, %d before."""


def _gid_table(found: re.Match[str]) -> Fact:
    return facts.AsyncEvent(*_port_of(found.string), found[0], fatal=False)


def _speed_change(found: re.Match[str]) -> Fact:
    return facts.SpeedChange(*_port_of(found.string), int(found[1]), found[2])


_VENDOR = re.compile(r"vendor[ _]err(?:=| )(\d{1,10})", re.ASCII)
_HCA = re.compile(r" hca (\w[\w.\-]{0,63})", re.ASCII)
_PEER = re.compile(r"from peer ([\w.:%\-]{1,255})<\d{0,5}>", re.ASCII)
_DIRECTION = re.compile(r"\((Send|Recv)\)|req_type=(Send|Recv)", re.ASCII)


def _completion(found: re.Match[str]) -> Fact:
    rest = found.string[found.start() :]
    peer, vendor, hca, direction = (one.search(rest) for one in (_PEER, _VENDOR, _HCA, _DIRECTION))
    return facts.Completion(
        int(found[1] or found[2]),
        int(vendor[1]) if vendor else None,
        peer[1] if peer else "",
        hca[1] if hca else "",
        (direction[1] or direction[2]) if direction else "",
    )


def _verbs(found: re.Match[str]) -> Fact:
    call, error, device, port, before, after = found.groups()
    states = (before, after) if before and after else ()
    return facts.VerbsFailure(call, (error or "").strip().removesuffix(".")[:120], device or "", _int(port), states)


_PATH = re.compile(r"NET/(\d{1,4}) \((\d{1,3})/(\d{1,7}(?:\.\d{1,7})?)/([A-Z]{2,4})\)", re.ASCII)


def _paths(found: re.Match[str]) -> Fact | None:
    adapters = tuple(
        facts.PathToAdapter(int(index), int(hops), float(speed) * 1e9, kind)
        for index, hops, speed, kind in _PATH.findall(found.string[found.end() :])
    )
    return facts.Paths(found[1], adapters) if adapters else None


_NO_ELEMENTS = 2**64 - 1
"""NumelIn of an operation that has none, such as a coalesced one: -1 as an unsigned number."""


def _watchdog(found: re.Match[str]) -> Fact:
    rank, sequence, operation, elements, ran = found.groups()
    count = _int(elements)
    known = None if count == _NO_ELEMENTS else count
    return facts.WatchdogTimeout(_int(rank), _int(sequence), operation, int(ran) / 1000, known)


_GROUP = re.compile(r"\[PG (?:ID )?\d{1,9}(?: PG GUID [^ (\]]{1,64}\(([^)]{0,64})\))? Rank (\d{1,7})\]", re.ASCII)


def _watchdog_status(found: re.Match[str]) -> Fact:
    group = _GROUP.search(found.string)
    rank, name = (int(group[2]), group[1] or "") if group else (None, "")
    return facts.WatchdogStatus(rank, name, int(found[1]), int(found[2]))


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
    r"comm (0x[0-9a-f]{1,16}) rank (\d{1,7}) nranks (\d{1,7})(?: cudaDev (\d{1,4}))?(?: nvmlDev (\d{1,4}))?"
    r"(?: busId ([0-9a-f]{1,12}))?(?: commId (0x[0-9a-f]{1,16}))?(?: - Init (START|COMPLETE))?"
)

RULES = (
    _rule("NET/IB : Using", r"NET/IB : Using ?(.*?) ?(?:; ?OOB ([\w.\-]{1,64}):.*)?$", _adapters),
    _rule("NET/IB : No device", r"No device found", lambda _: facts.NoAdapters("no_device")),
    _rule("Failed to open libibverbs", r"libibverbs", lambda _: facts.NoAdapters("no_library")),
    _rule("Socket : Using", r"NET/(Socket|FastSocket) : Using (.*)", _interfaces),
    _rule(
        "Using network ",
        r"Using network (\w[\w .\-]{0,63}?)\s*(?:comm 0x.*)?$",
        lambda found: facts.Network(found[1]),
    ),
    # "Provider" up to aws-ofi-nccl 1.13, "provider" and its fabric from 1.14 on.
    _rule("rovider is ", r"Selected [Pp]rovider is ([\w;.\-]{1,64})", lambda found: facts.Provider(found[1])),
    _rule(
        "via ",
        # Without the GPUs in brackets up to 2.4.
        r"(?:Channel|Ring) (\d{1,3})(?:/\d{1,3})? : (\d{1,7})(?:\[(\w{1,12})\])? -> (\d{1,7})(?:\[(\w{1,12})\])?"
        r"(?: \[(send|receive)\])? via (.{1,200})",
        _channel,
    ),
    _rule(
        "Connected all rings",
        r"Connected all rings(?:, use ring PXN (\d) GDR (\d))?",
        lambda found: facts.RingSummary(*(None if one is None else one != "0" for one in found.groups())),
    ),
    _rule(
        "GPU Direct RDMA",
        r"GPU Direct RDMA (Enabled|Disabled) for HCA (\d{1,4}) '(\w[\w.\-]{0,63})'",
        lambda found: facts.AdapterGdr(found[1] == "Enabled", int(found[2]), found[3]),
    ),
    _rule(
        "GPU Direct RDMA",
        r"GPU Direct RDMA (Enabled|Disabled) for GPU ([0-9a-f]{1,12}) / HCA ([0-9a-f]{1,16}) "
        r"\(distance (\d{1,3}) (?:<=|<|>=|>) (\d{1,3})\)",
        _gpu_gdr,
    ),
    _rule(
        "coll channels",
        r"(\d{1,4}) coll channels,(?: (\d{1,4}) collnet channels,)?(?: (\d{1,4}) nvls channels,)? "
        r"(\d{1,4}) p2p channels",
        lambda found: facts.ChannelCounts(int(found[1]), _int(found[2]), _int(found[3]), int(found[4])),
    ),
    _rule("Connected NVLS tree", r"Connected NVLS tree", lambda _: facts.NvlsTree()),
    _rule(
        "NVLS multicast support",
        r"NVLS multicast support is (not )?available on dev (\d{1,4})",
        lambda found: facts.NvlsSupport(found[1] is None, int(found[2])),
    ),
    _rule(
        "Loaded collnet plugin",
        r"Loaded collnet plugin (\w[\w .\-]{0,63}?) \(",
        lambda found: facts.CollnetPlugin(found[1]),
    ),
    _rule("nranks ", _INIT, _init),
    _rule(
        "nNodes ",
        r"comm (0x[0-9a-f]{1,16}) rank (\d{1,7}) nRanks (\d{1,7}) nNodes (\d{1,7}) "
        r"localRanks (\d{1,5}) localRank (\d{1,5})",
        lambda found: facts.CommShape(found[1], *(int(one) for one in found.groups()[1:])),
    ),
    _rule(
        "Init timings",
        r"rank (\d{1,7}) nranks (\d{1,7}) total (\d{1,7}(?:\.\d{1,6})?)",
        lambda found: facts.InitTime(int(found[1]), int(found[2]), float(found[3])),
    ),
    _rule(
        "Got ",
        r"Got (?:(non-fatal) )?async (?:error )?event ?: ?(.{1,160})",
        _async_event,
    ),
    # Fatal events have no "Got" (2.23.4 and later); 2.30.7 has attributes of the queue before the colon.
    _rule(
        "async fatal event",
        r"async fatal event(?: on (?:QP|CQ|SRQ)(?:, unused for now)? \([^)]{1,40}\)[^:]{0,250})? ?: ?(.{1,160})",
        _fatal_event,
    ),
    _rule("unknown event type", r"unknown event type \((\d{1,4})\)", _unnamed_event),
    _rule(_GID_TABLE, _GID_TABLE, _gid_table),
    _rule("speed change detected", r"speed change detected: (\d{1,9}) -> (\w{1,16}|N/A) Mbps", _speed_change),
    _rule(
        "Got ",
        r"Got completion (?:from peer.{0,300}? )?with (?:error (\d{1,3})|status=(?:IBV_\w{1,40}\()?(\d{1,3}))",
        _completion,
    ),
    _rule(
        "Call to ibv_",
        r"Call to (ibv_\w{1,60}) failed(?: with (?:error )?(?:\d{1,5} )?([^,]{1,120}))?"
        r"(?:, on dev (\w[\w.\-]{0,63}):(\d{1,3}))?(?:, curr state (\w{1,16}), next state (\w{1,16}))?",
        _verbs,
    ),
    _rule(
        "ibv_reg_mr",
        r"(ibv_reg_mr\w{0,32}) .{0,120}?failed",
        lambda found: facts.VerbsFailure(found[1], "", "", None, ()),
    ),
    _rule(
        "marked as failed",
        r"Device (\d{1,4}) marked as failed(?:\. Initiating recovery\? (Yes|No))?",
        lambda found: facts.Failover(int(found[1]), found[2] == "Yes"),
    ),
    _rule(
        "has been recovered",
        r"Device (\d{1,4}) has been recovered",
        lambda found: facts.Recovered(int(found[1])),
    ),
    _rule(
        "encountered a fatal error",
        r"communicator encountered a fatal error \(detected in (\w{1,64})\)",
        lambda found: facts.FatalError(found[1]),
    ),
    _rule("The error is fatal", r"The error is fatal \((.{1,120}?)\)", lambda found: facts.FatalError(found[1])),
    _rule("set by environment to ", r"(NCCL_[A-Z0-9_]{1,60}) set by environment to (.{0,400})", _setting),
    _rule("NCCL_IB_HCA set to", r"(NCCL_IB_HCA) set to (.{0,400})", _setting),
    _rule("_ece={supported=", r"_ece=\{supported=(\d)", lambda found: facts.Ece(found[1] != "0")),
    _rule("NET/0 (", r"(GPU/[0-9A-Fa-f]{1,12}(?:-[0-9A-Fa-f]{1,12})?) :", _paths),
    _rule(
        "closed by remote peer",
        r"closed by remote peer(?: ([\w.:%\-]{1,255})<|\s*$)",  # without the address up to 2.9
        lambda found: facts.PeerClosed(found[1] or ""),
    ),
    _rule(
        "RAS client listening",
        r"socket at ([\w.:%\-]{1,255})<(\d{1,5})>",
        lambda found: facts.RasListening(found[1], int(found[2])),
    ),
    _rule(
        "Bytes -> Algo ",
        r"(\w{1,32}): (\d{1,18}) Bytes -> Algo (\w{1,32}) proto (\w{1,32})",
        lambda found: facts.Tuning(found[1], int(found[2]), found[3], found[4]),
    ),
    _rule(
        "CCL version ",
        r"([NR]CCL) version (?:: )?(\d{1,3}\.\d{1,3}\.\d{1,3})(?:\+(?:cuda|hip)(\d[\d.]{0,15}))?",
        lambda found: facts.Version(found[2], found[3] or "", found[1]),
    ),
    _rule(
        "Watchdog caught collective operation timeout",
        r"(?:\[Rank (\d{1,7})\] )?Watchdog caught collective operation timeout: WorkNCCL\((?:SeqNum=(\d{1,20}), )?"
        r"OpType=(\w{1,40})(?:, NumelIn=(\d{1,20}), NumelOut=\d{1,20})?.{0,60}\) ran for (\d{1,15}) milliseconds",
        _watchdog,
    ),
    _rule(
        "last enqueued",
        r"last enqueued (?:NCCL )?work: (\d{1,19}), last completed (?:NCCL )?work: (-?\d{1,19})",
        _watchdog_status,
    ),
)
"""All known kinds of lines."""
