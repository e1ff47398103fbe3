"""Results of the processes of a job, as results of the job: eight ranks with one fault are one result."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from exporter.preflight.facts import HostFacts, JobProcess
from exporter.preflight.results import Finding, unknown

UNREADABLE = "environments of processes cannot be read: run as root, or as the user of the jobs"


def results_of_jobs(facts: HostFacts, judge: Callable[[JobProcess], Iterable[Finding]]) -> Iterator[Finding]:
    """Yield the results by job, each with the number of processes where it is not that of all.

    Args:
        facts: The processes; unknown where none can be read.
        judge: Returns the results for one process.
    """
    if facts.processes is None:
        yield unknown(facts.host, UNREADABLE)
        return
    for job, processes in sorted(_by_job(facts.processes).items()):
        counted: dict[Finding, int] = defaultdict(int)
        for process in processes:
            for one in judge(process):
                counted[replace(one, object=job)] += 1
        for one, number in counted.items():
            share = "" if number == len(processes) else f" ({number} of {len(processes)} processes)"
            yield replace(one, evidence=one.evidence + share)


def _by_job(processes: Sequence[JobProcess]) -> dict[str, list[JobProcess]]:
    found: dict[str, list[JobProcess]] = defaultdict(list)
    for one in processes:
        found[f"job {one.job}" if one.job else "processes without a job"].append(one)
    return found
