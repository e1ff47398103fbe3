"""Lines of PyTorch's watchdog that are printed several times: which of them were seen before.

A time-out is printed by the watchdog, again with the exception that ends its thread, and again by the C++ runtime,
without the rank before the line. So what a line does not name may be that of any line before. It is one by process,
rank in the process group, sequence number, operation and elements; releases of PyTorch that print no sequence number
print the same text each time, with the same milliseconds.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from exporter.nccl import log_facts as facts
from exporter.nccl.log_facts import LogEntry

MAX_EVENTS = 1024
"""Events of one log that are remembered; the oldest are forgotten first."""

MAX_LOGS = 256
"""Logs with such events."""

MAX_PROCESSES = 64
"""Processes that are remembered for one event; if there are more, the first are forgotten."""

FORGET_SECONDS = 600.0
"""Time without a repetition after which the same event is another one, such as that of a job that was restarted."""

Event = tuple[object, ...]
_Process = tuple[object, ...]


@dataclass(slots=True)
class _Seen:
    """An event: the processes that printed it, and the monotonic time when it was last printed."""

    processes: list[_Process]
    last: float


@dataclass(slots=True)
class WatchdogRepeats:
    """Remembers the events of each log."""

    _logs: OrderedDict[str, OrderedDict[Event, _Seen]] = field(default_factory=OrderedDict)

    def is_repeat(self, path: str, entry: LogEntry, now: float) -> bool:
        """Return whether an event was seen before, and remember it; False for facts that are not printed again."""
        event = _event(entry.fact)
        if event is None:
            return False
        events = self._logs.setdefault(path, OrderedDict())
        self._logs.move_to_end(path)
        if len(self._logs) > MAX_LOGS:
            self._logs.popitem(last=False)
        seen = events.get(event)
        if seen is None or now - seen.last >= FORGET_SECONDS:
            seen = events[event] = _Seen([], now)
        events.move_to_end(event)
        if len(events) > MAX_EVENTS:
            events.popitem(last=False)
        seen.last = now
        return _add(seen.processes, _process(entry))

    def forget(self, path: str) -> None:
        """Forget the events of one log."""
        self._logs.pop(path, None)

    def retain(self, paths: set[str]) -> None:
        """Forget the events of all other logs."""
        for path in self._logs.keys() - paths:
            del self._logs[path]


def _event(fact: facts.Fact) -> Event | None:
    """Return what identifies an event except for its process."""
    if isinstance(fact, facts.WatchdogTimeout):
        number = ("ran", fact.seconds) if fact.sequence is None else ("sequence", fact.sequence)
        return (fact.rank, fact.operation, fact.elements, *number)
    if isinstance(fact, facts.WatchdogStall):
        return "stall", fact.rank, fact.group
    return None


def _process(entry: LogEntry) -> _Process:
    """Return what the line names of its process: rank in the job, host, PID and task."""
    assert isinstance(entry.fact, facts.WatchdogTimeout | facts.WatchdogStall)  # noqa: S101  # has an event
    return entry.fact.process, entry.host or None, entry.pid, entry.task


def _add(known: list[_Process], process: _Process) -> bool:
    """Return whether a process is among the known ones, and add it; a line that names more replaces one with less."""
    for place, one in enumerate(known):
        if all(a is None or b is None or a == b for a, b in zip(one, process, strict=True)):
            known[place] = tuple(b if a is None else a for a, b in zip(one, process, strict=True))
            return True
    known.append(process)
    del known[:-MAX_PROCESSES]
    return False
