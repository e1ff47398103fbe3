"""Kinds of jobs: what runs of the same work have in common, so that one can be compared with those of last week.

A kind is the name of the job without the number of its run, with the ranks and nodes of its largest communicator.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from exporter.meaning.training.alignment import nodes_of
from exporter.meaning.training.records import Job

MAX_NAME = 256
"""Characters of a name that are considered."""

_RUN = re.compile(
    r"(?:"
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"  # a UUID
    r"|(?<![0-9A-Za-z])[0-9]{8}T[0-9]{4,6}Z?"  # a time
    r"|(?<![0-9A-Za-z])(?:(?:run|try|retry|attempt|restart|trial|seed|job|id|r)[-_.:#]?)?[0-9]+"
    r")\Z"
)
"""The end of a name that differs from run to run. Digits after a letter belong to the name, as in gpt2 or llama-70b."""

_SEPARATORS = "-_.:/#@"

_GENERAL = frozenset({"", "job", "run", "slurm", "pod", "unknown"})
"""Names that say nothing about the work."""


class JobKind(NamedTuple):
    """Kind of a job: name, ranks and nodes as labels; what is unknown is empty."""

    name: str
    ranks: str
    nodes: str


@lru_cache(maxsize=1024)
def name_of(job: str) -> str:
    """Return the name of a job without the number of its run; empty if nothing is left that describes its work."""
    name, before = job[:MAX_NAME].strip(_SEPARATORS), ""
    while name != before:
        name, before = _RUN.sub("", name).rstrip(_SEPARATORS), name
    return "" if name.lower() in _GENERAL else name


def kind_of(name: str, job: Job) -> JobKind:
    """Return the kind of a job.

    Args:
        name: Name of the job.
        job: The job.
    """
    largest = max(((one.ranks, nodes_of(job, one)) for one in job.communicators.values()), default=(0, 0))
    return JobKind(name_of(name), *(str(number or "") for number in largest))
