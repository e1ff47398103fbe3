"""Whether communicators connect the ranks of a job: if not, rarer ones, which end its steps, have not been seen yet."""

from collections.abc import Iterable

from exporter.meaning.training.records import Job


def are_connected(job: Job, names: Iterable[str]) -> bool:
    """Return whether ranks are connected by communicators, as far as they are known here.

    Communicators with ranks that do not report here are connected outside. So are the stages of a pipeline, by sends
    and receives.
    """
    parts: list[set[str]] = []
    for name in names:
        communicator = job.communicators[name]
        joined = set(communicator.members)
        if len(joined) < communicator.ranks:
            joined.add("")
        apart = [part for part in parts if not part & joined]
        parts = [*apart, joined.union(*(part for part in parts if part & joined))]
    return len(parts) <= 1 or bool(job.exchanges)
