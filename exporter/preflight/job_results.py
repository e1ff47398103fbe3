"""Results of the processes of a job, as results of the job: eight ranks with one fault are one result."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from exporter.preflight.facts import HostFacts, JobProcess
from exporter.preflight.results import Finding, unknown


def results_of_jobs(facts: HostFacts, judge: Callable[[JobProcess], Iterable[Finding]]) -> Iterator[Finding]:
    """Yield the results by job, each with the number of processes where it is not that of all.

    Args:
        facts: The processes; unknown too where not all could be read.
        judge: Returns the results for one process.
    """
    yield from unread_processes(facts)
    for job, processes in sorted(_by_job(facts.processes.found).items()):
        counted: dict[Finding, int] = defaultdict(int)
        for process in processes:
            for one in judge(process):
                counted[replace(one, object=job)] += 1
        for one, number in counted.items():
            share = "" if number == len(processes) else f" ({number} of {len(processes)} processes)"
            yield replace(one, evidence=one.evidence + share)


def unread_processes(facts: HostFacts) -> Iterator[Finding]:
    """Yield an unknown result where there may be processes of jobs that were not read."""
    if facts.processes.unread:
        yield unknown(facts.host, facts.processes.unread)


def _by_job(processes: Sequence[JobProcess]) -> dict[str, list[JobProcess]]:
    found: dict[str, list[JobProcess]] = defaultdict(list)
    for one in processes:
        found[f"job {one.job}" if one.job else "processes without a job"].append(one)
    return found
