"""State of NCCL's logs: the network configuration of each process, and counts of errors and events.

The configuration of a process is logged once, at its start, and applies until its log is removed; errors and events are
counted from the start of the exporter. Logs are written by jobs, so everything is bounded.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from exporter.core.table import LabelValues
from exporter.nccl import log_facts as facts
from exporter.nccl.log_facts import LogEntry
from exporter.sources.nccl_facts.log_events import COUNTED
from exporter.sources.nccl_facts.log_process import UPDATES, LoggedProcess, add_communicator
from exporter.sources.nccl_facts.log_repeats import WatchdogRepeats

MAX_JOBS = 32
"""Jobs."""

MAX_HOSTS = 256
"""Hosts of all jobs together: a log may contain the lines of a whole job."""

MAX_PROCESSES = 4096
"""Processes of all jobs together."""

MAX_COUNTED = 2048
"""Rows of one kind of counter."""

RESTART_SECONDS = 600.0
"""A process that is this much younger than others of its log and host belongs to a restart of the job."""


@dataclass(slots=True)
class LogState:
    """State of all logs.

    Attributes:
        groups: Processes by PID (None where the log has none), by job, log and host.
        counts: Counts by kind of counter and label values, the first of which is the job.
        versions: By log, the version in a line that names no process.
        over_limit: Facts that were dropped because there were too many jobs, hosts, processes or rows.
    """

    groups: dict[tuple[str, str, str], dict[int | None, LoggedProcess]] = field(default_factory=dict)
    counts: dict[str, dict[LabelValues, int]] = field(default_factory=dict)
    versions: dict[str, facts.Version] = field(default_factory=dict)
    over_limit: int = 0
    _repeats: WatchdogRepeats = field(default_factory=WatchdogRepeats)
    _hosts: set[tuple[str, str]] = field(default_factory=set)
    _jobs: set[str] = field(default_factory=set)
    _size: int = 0

    def add(self, job: str, path: str, entry: LogEntry, now: float, *, history: bool) -> None:
        """Add one line.

        Args:
            job: Job of the log.
            path: Path of the log.
            entry: Fact of the line.
            now: Monotonic time.
            history: Whether the line was written before the start: it updates processes, but is not counted.
        """
        fact = entry.fact
        if isinstance(fact, facts.Version) and entry.pid is None:
            self.versions[path] = fact
            return
        update = UPDATES.get(type(fact))
        if update is not None or isinstance(fact, facts.CommInit):
            process = self._process(job, path, entry, now)
            if process is None:
                self.over_limit += 1
            elif isinstance(fact, facts.CommInit):
                add_communicator(process, fact, None if history else now)
            elif update is not None:
                update(process, fact)
        repeat = self._repeats.is_repeat(path, entry, now)  # a line of the history is one too
        counted = None if history or repeat else COUNTED.get(type(fact))
        if counted is not None:
            for kind, labels in counted(entry.host, fact):
                self._count(kind, (job, *labels))

    def _count(self, kind: str, key: LabelValues) -> None:
        rows = self.counts.setdefault(kind, {})
        if key in rows or (len(rows) < MAX_COUNTED and self._has_room(key[0])):
            rows[key] = rows.get(key, 0) + 1
        else:
            self.over_limit += 1

    def retain(self, paths: Iterable[str], jobs: Iterable[str]) -> None:
        """Drop the state of all other logs and jobs."""
        present_paths, present = set(paths), set(jobs)
        self._set_groups({key: group for key, group in self.groups.items() if key[1] in present_paths})
        self.versions = {path: one for path, one in self.versions.items() if path in present_paths}
        self._repeats.retain(present_paths)
        for kind, rows in self.counts.items():
            self.counts[kind] = {key: count for key, count in rows.items() if key[0] in present}
        self._jobs = {key[0] for key in self.groups} | {key[0] for rows in self.counts.values() for key in rows}

    def restart(self, path: str) -> None:
        """Drop the processes of a log that was rewritten."""
        self._set_groups({key: group for key, group in self.groups.items() if key[1] != path})
        self.versions.pop(path, None)
        self._repeats.forget(path)

    def _set_groups(self, groups: dict[tuple[str, str, str], dict[int | None, LoggedProcess]]) -> None:
        self.groups = groups
        self._hosts = {(job, host) for job, _, host in groups}
        self._size = sum(len(group) for group in groups.values())

    def _process(self, job: str, path: str, entry: LogEntry, now: float) -> LoggedProcess | None:
        """Return the process that wrote a line; None if it is new and there is no room for it."""
        group = self.groups.get((job, path, entry.host))
        if group is not None:
            known = group.get(entry.pid)
            if known is not None:
                return known
            if group and now - next(iter(group.values())).first_seen >= RESTART_SECONDS:  # the first is the oldest
                for pid in [pid for pid, one in group.items() if now - one.first_seen >= RESTART_SECONDS]:
                    del group[pid]
                    self._size -= 1
        full = (job, entry.host) not in self._hosts and len(self._hosts) >= MAX_HOSTS
        if full or self._size >= MAX_PROCESSES or not self._has_room(job):
            return None
        if group is None:
            group = self.groups[job, path, entry.host] = {}
        process = group[entry.pid] = LoggedProcess(path, entry.host, now)
        self._hosts.add((job, entry.host))
        self._size += 1
        return process

    def _has_room(self, job: str) -> bool:
        """Return whether a job is known; add it if there is room."""
        if job not in self._jobs and len(self._jobs) < MAX_JOBS:
            self._jobs.add(job)
        return job in self._jobs
