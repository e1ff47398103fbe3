"""Kinds of collectives: names, which kinds are comparable, and bus bandwidth as nccl-tests defines it.

With size S, time t and n ranks, algorithm bandwidth is S / t, and bus bandwidth is that times a factor of the kind.
Only bus bandwidth is comparable with the speed of links, whatever n is. S of AllGather and ReduceScatter is the size of
all ranks together, while records of NCCL contain the size that one rank passed in.
"""

from types import MappingProxyType

OTHER = "other"
"""Kind of all collectives that are not known here: names from a file must not become labels without bound."""

POINT_TO_POINT = frozenset({"Send", "Recv", "SendRecv"})
"""Kinds in which only some ranks of a communicator take part."""

SYNCHRONISING = frozenset({"AllReduce", "AllGather", "ReduceScatter", "AlltoAll"})
"""Kinds that end on all ranks at the same time, so that the times of ranks are comparable."""

JUDGED = SYNCHRONISING | POINT_TO_POINT
"""Kinds from whose times a job is judged."""

COMMON = SYNCHRONISING | {"Gather", "Scatter", "Broadcast", "Reduce", "Barrier"}
"""Kinds in which all ranks of a communicator take part, each equally often."""

AFTER_ALL = SYNCHRONISING | {"Barrier"}
"""Kinds that do not end on any rank before all ranks have started them."""

KINDS = tuple(sorted(COMMON | POINT_TO_POINT))
"""The spelling of each kind in labels."""

_OF_ALL_RANKS = frozenset({"AllGather", "ReduceScatter"})
_SHARE = frozenset({"AllGather", "ReduceScatter", "AlltoAll", "Gather", "Scatter"})
_WHOLE = frozenset({"Broadcast", "Reduce", *POINT_TO_POINT})

_NAMES = MappingProxyType(
    {kind.lower(): kind for kind in KINDS}
    | {
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
)


def known_kind(name: str) -> str:
    """Return the kind for a name of NCCL, Inspector, nccl-tests, PyTorch, CoMMA or xpu_timer; OTHER if unknown."""
    return _NAMES.get(name[:64].replace("_", "").replace(" ", "").lower(), OTHER)


def algorithm_bytes(kind: str, message_bytes: int, n_ranks: int) -> int:
    """Return the size of a collective as nccl-tests counts it, from the bytes that one rank passed in."""
    return message_bytes * n_ranks if kind in _OF_ALL_RANKS else message_bytes


def bus_factor(kind: str, n_ranks: int) -> float | None:
    """Return bus bandwidth over algorithm bandwidth: the bytes that a rank of a ring sends over the size.

    None for kinds without a factor, and for a single rank.
    """
    if n_ranks < 2:
        return None
    if kind == "AllReduce":
        return 2 * (n_ranks - 1) / n_ranks
    if kind in _SHARE:
        return (n_ranks - 1) / n_ranks
    return 1.0 if kind in _WHOLE else None


def least_network_bytes(kind: str, size: float, n_ranks: int, local: int) -> float:
    """Return the bytes that a node sends and receives at least over the network for one collective.

    It holds for every algorithm (ring, tree, NVLS, SHARP): a node has to send its part of the result, or its partial
    sums, at least once, and to receive what it lacks. Rings move up to twice as much. 0 for kinds whose share is
    unknown.

    Args:
        kind: Kind of the collective.
        size: Size as nccl-tests defines it.
        n_ranks: Ranks of a communicator that spans nodes.
        local: Its ranks on the node.
    """
    if kind == "AllReduce":
        return 2 * size  # the partial sum out, the result in
    if kind in _OF_ALL_RANKS:
        return size  # the shares of the local ranks in one direction, those of all others in the other
    if kind == "AlltoAll":
        return 2 * size * local * (n_ranks - local) / n_ranks
    return size if kind in POINT_TO_POINT and local == 1 else 0.0  # else the peer may be on the same node
