"""Bandwidths of collectives as nccl-tests defines them, and the bytes that a rank must move for one.

With S the size, t the time and n the ranks, algorithm bandwidth is S / t and bus bandwidth S / t times a factor of the
kind; only the latter can be compared with the speed of links, whatever n is. S of AllGather and ReduceScatter is that
of all ranks together, while NCCL's records tell what one rank handed in.
"""

from typing import Literal

OTHER = "other"
"""What kinds are called that are not known here: names from a file must not become labels without bound."""

KINDS = (
    "AllReduce",
    "AllGather",
    "ReduceScatter",
    "AlltoAll",
    "Gather",
    "Scatter",
    "Broadcast",
    "Reduce",
    "Send",
    "Recv",
    "SendRecv",
    "Barrier",
)
"""The one spelling of each kind."""

SYNCHRONISING = frozenset({"AllReduce", "AllGather", "ReduceScatter"})
"""Kinds whose ranks end together, so that their times can be compared."""

_OF_ALL_RANKS = frozenset({"AllGather", "ReduceScatter"})
_SHARE = frozenset({"AllGather", "ReduceScatter", "AlltoAll", "Gather", "Scatter"})
_WHOLE = frozenset({"Broadcast", "Reduce", "Send", "Recv", "SendRecv"})

_NAMES = {kind.lower(): kind for kind in KINDS} | {
    "all2all": "AlltoAll",
    "alltoallv": "AlltoAll",
    "alltoallbase": "AlltoAll",
    "allgatherbase": "AllGather",
    "allgatherintotensorcoalesced": "AllGather",
    "allgathercoalesced": "AllGather",
    "reducescatterbase": "ReduceScatter",
    "reducescattertensorcoalesced": "ReduceScatter",
    "allreducecoalesced": "AllReduce",
}

Algorithm = Literal["ring", "tree", "sharp"]


def known_kind(name: str) -> str:
    """Give the one spelling of a kind for any of NCCL, Inspector, nccl-tests, PyTorch, CoMMA and xpu_timer."""
    return _NAMES.get(name[:64].replace("_", "").replace(" ", "").lower(), OTHER)


def algorithm_bytes(kind: str, message_bytes: int, n_ranks: int) -> int:
    """Give the size of a collective as nccl-tests counts it, from the bytes that one rank handed in."""
    return message_bytes * n_ranks if kind in _OF_ALL_RANKS else message_bytes


def bus_factor(kind: str, n_ranks: int) -> float | None:
    """Give bus bandwidth over algorithm bandwidth; None for kinds without one, and for a single rank."""
    if n_ranks < 2:
        return None
    if kind == "AllReduce":
        return 2 * (n_ranks - 1) / n_ranks
    if kind in _SHARE:
        return (n_ranks - 1) / n_ranks
    return 1.0 if kind in _WHOLE else None


def bus_bandwidth(kind: str, message_bytes: int, n_ranks: int, seconds: float) -> float | None:
    """Give the bus bandwidth in bytes per second; None where none is defined.

    Args:
        kind: One of `KINDS`.
        message_bytes: What one rank handed in.
        n_ranks: Ranks of the communicator.
        seconds: The time of the rank that waited for nobody, thus the shortest; that of another blames the network
            for a late rank.
    """
    factor = bus_factor(kind, n_ranks)
    if factor is None or seconds <= 0:
        return None
    return algorithm_bytes(kind, message_bytes, n_ranks) * factor / seconds


def traffic_per_rank(kind: str, size: int, n_ranks: int, algorithm: Algorithm = "ring") -> float | None:
    """Give the bytes that each rank sends (and as many that it gets) for a collective of a size.

    The factors of bus bandwidth are those of a ring. In a pair of trees a rank sends all data up and down; with
    SHARP or NVLS, switches reduce, and it sends them once.

    Args:
        kind: One of `KINDS`.
        size: Size as nccl-tests counts it; see `algorithm_bytes`.
        n_ranks: Ranks of the communicator.
        algorithm: How NCCL does it; others than `ring` tell AllReduce apart only.
    """
    factor = bus_factor(kind, n_ranks)
    if factor is None:
        return None
    if kind == "AllReduce" and algorithm != "ring":
        factor = 2.0 if algorithm == "tree" else 1.0
    return size * factor


def adapter_bandwidth(bus: float, n_ranks: int, n_nodes: int) -> float | None:
    """Give the bytes per second on each accelerator's network adapter at a bus bandwidth of AllReduce.

    It holds where collectives are done first within nodes, then between them; None within one node.
    """
    return bus * (n_nodes - 1) / (n_ranks - 1) if 1 < n_nodes <= n_ranks else None
