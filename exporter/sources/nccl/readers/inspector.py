"""What NCCL Inspector tells: files of JSON lines, `<host name>-pid<pid>.log`, one for each process.

Files are read on from where they ended; what was in them before the start only tells who is who, and is not counted.
Each line fails alone.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from exporter.core import vocabulary
from exporter.core.blocking import BlockingCalls
from exporter.core.collectives import known_kind
from exporter.core.source import Failure
from exporter.core.table import Column, RowKeeper, Table
from exporter.core.vocabulary import counter, gauge
from exporter.linux.tail import (
    FILE_BUDGET,
    MAX_LINE,
    Chunk,
    FollowedFile,
    Tail,
)
from exporter.nccl.decoding import FormatError
from exporter.nccl.inspector import (
    KERNEL_TIMING,
    Collective,
    Header,
    Line,
    Speaker,
    parse_line,
)
from exporter.sources.common.failures import failure_of
from exporter.sources.nccl.identity import UNKNOWN
from exporter.sources.nccl.readers.feed import (
    Facts,
    Heard,
    Membership,
    Said,
    Unused,
)
from exporter.sources.nccl.readers.files import CALL_DEADLINE, find, off_loop

POLL_BUDGET = 4 * FILE_BUDGET
"""Bytes read at one poll, some 20,000 records; what is left waits for the next."""

OUTCOMES = (
    "collective",
    "point_to_point",
    "marker",
    "unknown",
    "malformed",
    "invalid",
    "orphan",
    "too_long",
    "over_limit",
    "duplicate",
    "excluded",
)

LINES = vocabulary.schema(
    "fabric_nccl_inspector_",
    ("outcome",),
    own={
        "lines_total": counter(
            "Lines of Inspector's files by what became of them: collective (used), point_to_point, marker and unknown"
            " (passed over), malformed, invalid, orphan, too_long and over_limit (lost), duplicate (told by a better"
            " feed too), excluded (of a job that is)."
        )
    },
    origins={"lines_total": ["<host name>-pid<pid>.log"]},
)

FILES = vocabulary.schema(
    "fabric_nccl_inspector_",
    (),
    own={"files": gauge("Files of Inspector that are followed, also those that no process writes any more.")},
    origins={"files": ["<host name>-pid<pid>.log"]},
)

_NAMED = re.compile(r"(?:^|/)([^/]*)-pid(\d{1,10})\.log$")


@dataclass(slots=True)
class Log:
    """One file: the job by its folder, the user whose it is, and who speaks in it."""

    file: FollowedFile
    job: str
    uid: int
    speaker: Speaker = field(default_factory=Speaker)


class Parsed(NamedTuple):
    """What one read of a file gave: what its process said, what became of the lines, and what failed."""

    said: Said
    outcomes: Counter[str]
    failures: list[Failure]


class _Look(NamedTuple):
    """The folders there are, the files that grew, and what failed."""

    folders: int
    grown: list[Log]
    failures: list[Failure]


class InspectorFeed:
    """Follows the files of NCCL Inspector."""

    name = "inspector"
    schemas = (LINES, FILES)

    def __init__(self, folders: Sequence[str], wants: Callable[[str], bool]) -> None:
        """Take folders or patterns of folders, and which jobs are wanted: files of others are not opened."""
        self._folders, self._wants = folders, wants
        self._serial = BlockingCalls("nccl", CALL_DEADLINE)
        self._tail = Tail()
        self._logs: dict[str, Log] = {}
        self._left = 0
        self._gone: set[str] = set()
        self._outcomes: Counter[str] = Counter()
        self._keepers = {schema: RowKeeper(schema.labels) for schema in self.schemas}

    async def applies(self) -> bool:
        """Tell whether any of the folders is there."""
        return (await off_loop(self._serial, self._look)).folders > 0

    async def hear(self) -> Heard:
        """Read on in every file that grew; files fail alone."""
        look = await off_loop(self._serial, self._look)
        self._left = POLL_BUDGET
        results = await self._serial.run((log.file.path, partial(self._read, log)) for log in look.grown)
        gone, self._gone = self._gone, set()
        heard = Heard(gone=gone, failures=(failures := list(look.failures)))
        for log in look.grown:
            result = results[log.file.path]
            if isinstance(result, FileNotFoundError):
                continue  # removed since it was listed, as files of jobs that ended are
            if isinstance(result, Exception):
                failures.append(failure_of(log.job, result, log.file.path))
            else:
                heard.said.append(result.said)
                self._outcomes.update(result.outcomes)
                failures += result.failures
        return heard

    def unused(self, said: Said, why: Unused) -> None:
        """Count the lines of collectives as what became of them."""
        self._outcomes["collective"] -= said.count
        self._outcomes[why] += said.count

    def tables(self, now: float) -> list[Table]:
        """Give what became of lines, and how many files there are."""
        lines = Column(LINES.metrics["lines_total"], [self._outcomes[outcome] for outcome in OUTCOMES])
        files = Column(FILES.metrics["files"], [len(self._tail.files)])
        rows = self._keepers[LINES].rows([(outcome,) for outcome in OUTCOMES])
        return [
            Table(LINES, rows, {"lines_total": lines}, now),
            Table(FILES, self._keepers[FILES].rows([()]), {"files": files}, now),
        ]

    async def close(self) -> None:
        """End the thread; no file is open between reads."""
        self._serial.close()

    def _look(self) -> _Look:
        """Find the files and what of them grew; runs in the thread."""
        failures: list[Failure] = []
        found = find(self._folders, (".log",), self._wants, failures)
        look = self._tail.scan({path: state for path, (_, state) in found.files.items()})
        for one in look.gone:
            self._logs.pop(one.path, None)
            self._gone.add(one.path)  # told at the next hearing: whoever only asks whether there is anything does not
        if look.too_many or found.cut:
            where = ", ".join(found.folders)
            detail = f"more than {len(self._tail.files)} files below {where}; remove those of old jobs"
            failures.append(Failure("", "too_many_files", detail))
        grown = []
        for file in look.grown:
            log = self._logs.get(file.path)
            if log is None:
                job, state = found.files[file.path]
                log = self._logs[file.path] = Log(file, job, state.st_uid)
            grown.append(log)
        return _Look(len(found.folders), grown, failures)

    def _read(self, log: Log) -> Parsed:
        """Read on in one file; runs in the thread."""
        if self._left <= MAX_LINE:
            return parse(log, Chunk([]))  # it is among the first the next time
        chunk = self._tail.read(log.file, min(FILE_BUDGET, self._left))
        self._left -= chunk.read
        return parse(log, chunk)


def parse(log: Log, chunk: Chunk) -> Parsed:
    """Parse the lines of a file; each fails alone, of each kind of failure the first is told with its place."""
    path = log.file.path
    said = Said(path, Facts(log.job, uid=log.uid), restarted=chunk.restarted)
    outcomes: Counter[str] = Counter()
    if chunk.restarted:
        log.speaker = Speaker()
    bad: dict[str, tuple[int, str]] = {}
    for offset, text, history in chunk.lines:
        try:
            outcome = _take(log.speaker, said, parse_line(text), history=history)
        except FormatError as error:
            outcome = "too_long" if error.reason == "too_large" else error.reason
            bad.setdefault(outcome, (offset, str(error)))
        if outcome == "orphan":
            bad.setdefault(outcome, (offset, "no line before it says whose it is"))
        if not history:
            outcomes[outcome] += 1
    if chunk.too_long:
        outcomes["too_long"] += len(chunk.too_long)
        bad["too_long"] = (chunk.too_long[0], f"a line of more than {MAX_LINE} bytes; skipped")
    failures = [
        Failure(log.job, reason, f"{path}: at byte {offset}: {detail}") for reason, (offset, detail) in bad.items()
    ]
    if chunk.skipped:
        detail = f"{path}: grows faster than it is read; {chunk.skipped} bytes passed over"
        failures.append(Failure(log.job, "backlog", detail))
    _identify(log, said.facts)
    return Parsed(said, outcomes, failures)


def _identify(log: Log, facts: Facts) -> None:
    """Say whose the file is: by its name, else by what its lines say."""
    facts.folder = "" if log.job == UNKNOWN else log.job
    named, told = _NAMED.search(log.file.path), log.speaker.metadata
    facts.host = named[1] if named else told.hostname if told else ""
    facts.pid = int(named[2]) if named else told.pid if told else 0


def _take(speaker: Speaker, said: Said, line: Line, *, history: bool) -> str:
    """Add one line to what was said, and tell what it was."""
    whose = speaker.hears(line)
    if line.header is not None:
        said.meets(_place(line.header))
    if line.dump_stats is not None and not history:
        said.lost["collective"] += line.dump_stats.coll_dropped_since_last_dump
        said.lost["point_to_point"] += line.dump_stats.p2p_dropped_since_last_dump
    if line.collective is None:
        if line.point_to_point is not None:
            return "point_to_point"
        return "unknown" if line.header is None and line.dump_stats is None else "marker"
    if whose is None:
        return "orphan"
    if not history:
        _count(said, whose, line.collective)
    return "collective"


def _place(header: Header) -> Membership:
    return Membership(header.rank, header.n_ranks, header.nnodes)


def _count(said: Said, header: Header, one: Collective) -> None:
    timed = one.timing_source == KERNEL_TIMING if one.timing_source else None
    place = _place(header)
    said.meets(place)
    said.did(header.id, place, known_kind(one.kind), one.sequence, one.message_bytes, one.microseconds, timed)
