"""Kinds of collectives: their names, which of them can be compared, and bus bandwidth as nccl-tests defines it.

With S the size, t the time and n the ranks, algorithm bandwidth is S / t and bus bandwidth that times a factor of the
kind; only the latter can be compared with the speed of links, whatever n is. S of AllGather and ReduceScatter is that
of all ranks together, while NCCL's records tell what one rank handed in.
"""

OTHER = "other"
"""What kinds are called that are not known here: names from a file must not become labels without bound."""

POINT_TO_POINT = frozenset({"Send", "Recv", "SendRecv"})
"""Kinds that some ranks of a communicator take part in."""

SYNCHRONISING = frozenset({"AllReduce", "AllGather", "ReduceScatter"})
"""Kinds whose ranks end together, so that their times can be compared."""

COMMON = SYNCHRONISING | {"AlltoAll", "Gather", "Scatter", "Broadcast", "Reduce", "Barrier"}
"""Kinds that all ranks of a communicator take part in, each as often as the others."""

AFTER_ALL = SYNCHRONISING | {"AlltoAll", "Barrier"}
"""Kinds that end on no rank before all have begun them."""

KINDS = tuple(sorted(COMMON | POINT_TO_POINT))
"""The one spelling of each kind."""

_OF_ALL_RANKS = frozenset({"AllGather", "ReduceScatter"})
_SHARE = frozenset({"AllGather", "ReduceScatter", "AlltoAll", "Gather", "Scatter"})
_WHOLE = frozenset({"Broadcast", "Reduce", *POINT_TO_POINT})

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


def known_kind(name: str) -> str:
    """Give the one spelling of a kind for any of NCCL, Inspector, nccl-tests, PyTorch, CoMMA and xpu_timer."""
    return _NAMES.get(name[:64].replace("_", "").replace(" ", "").lower(), OTHER)


def algorithm_bytes(kind: str, message_bytes: int, n_ranks: int) -> int:
    """Give the size of a collective as nccl-tests counts it, from the bytes that one rank handed in."""
    return message_bytes * n_ranks if kind in _OF_ALL_RANKS else message_bytes


def bus_factor(kind: str, n_ranks: int) -> float | None:
    """Give bus bandwidth over algorithm bandwidth: what a rank of a ring sends over the size.

    None for kinds without one, and for a single rank.
    """
    if n_ranks < 2:
        return None
    if kind == "AllReduce":
        return 2 * (n_ranks - 1) / n_ranks
    if kind in _SHARE:
        return (n_ranks - 1) / n_ranks
    return 1.0 if kind in _WHOLE else None
