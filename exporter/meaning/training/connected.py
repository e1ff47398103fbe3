"""Whether communicators connect the hosts of a job: if not, rarer ones, which end its steps, have not been seen yet."""

from collections.abc import Iterable

from exporter.meaning.training.records import Job

OUTSIDE = ""
"""In place of all ranks that do not report here."""


def are_connected(job: Job, names: Iterable[str]) -> bool:
    """Return whether ranks of several hosts are connected, as far as they are known here, or all ranks are.

    Communicators with ranks that do not report here are connected outside. Sends and receives connect stages of a
    pipeline, and not its replicas.
    """
    above: dict[str, str] = {}

    def top(rank: str) -> str:
        while (higher := above.setdefault(rank, rank)) != rank:
            above[rank] = rank = above[higher]
        return rank

    for name in names:
        communicator = job.communicators[name]
        joined = [*communicator.members, *([OUTSIDE] if len(communicator.members) < communicator.ranks else ())]
        for rank in joined:
            above[top(rank)] = top(joined[0])
    hosts: dict[str, set[str | None]] = {}
    for rank in above:
        hosts.setdefault(top(rank), set()).add(None if rank == OUTSIDE else job.hosts.get(rank))
    return len(hosts) <= 1 or any(len(of_part) > 1 for of_part in hosts.values())
