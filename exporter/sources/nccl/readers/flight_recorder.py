"""What PyTorch's Flight Recorder tells: dumps as JSON, one for each rank, whose number ends the file's name.

A dump holds the last collectives of its rank, with the time of each where the job has it measured
(TORCH_NCCL_ENABLE_TIMING). Two dumps of one rank overlap; what was told is not told again. Pickles are refused.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from typing import NamedTuple

from exporter.core import vocabulary
from exporter.core.blocking import BlockingCalls
from exporter.core.source import Failure
from exporter.core.table import Column, RowKeeper, Table
from exporter.core.vocabulary import counter
from exporter.nccl.decoding import FormatError
from exporter.nccl.flight_recorder import (
    Dump,
    Entry,
    Group,
    parse,
)
from exporter.sources.common.failures import failure_of
from exporter.sources.nccl.identity import UNKNOWN
from exporter.sources.nccl.readers.dumps import MAX_FILES, Dumps
from exporter.sources.nccl.readers.feed import (
    Facts,
    Heard,
    Membership,
    Said,
    Unused,
)
from exporter.sources.nccl.readers.files import (
    CALL_DEADLINE,
    find,
    find_folders,
    off_loop,
)

DUMP_OUTCOMES = ("taken", "pickle", "malformed", "invalid", "too_large", "unreadable")
ENTRY_OUTCOMES = (
    "collective",
    "point_to_point",
    "unfinished",
    "untimed",
    "incomplete",
    "bad",
    "over_limit",
    "duplicate",
    "excluded",
)

DUMPS = vocabulary.schema(
    "fabric_nccl_recorder_",
    ("outcome",),
    own={
        "dumps_total": counter(
            "Dumps of PyTorch's Flight Recorder by what became of them: taken; pickle (refused, since loading one runs"
            " what its writer chose), malformed, invalid, too_large and unreadable (lost)."
        )
    },
    origins={"dumps_total": ["nccl_trace_rank_<rank>, comm_lib_trace_rank_<rank>"]},
)

ENTRIES = vocabulary.schema(
    "fabric_nccl_recorder_",
    ("outcome",),
    own={
        "entries_total": counter(
            "New entries of these dumps by what became of them: collective (used), point_to_point and unfinished"
            " (passed over), untimed (the job does not measure), incomplete (sizes or ranks of the group are not told),"
            " bad (lost), over_limit, duplicate and excluded (not used)."
        )
    },
    origins={"entries_total": ["entries"]},
)

_RANK = re.compile(r"(?:^|[^0-9])([0-9]{1,7})(?:\.json)?$", re.ASCII)

MAX_RANKS = 256
"""Files of which it is remembered what they told; of more, those that told it last."""

Key = tuple[int, int, int]
"""What tells an entry from others of its rank: its number, its group, its number in that."""


class _Told(NamedTuple):
    """What one dump gave."""

    said: Said
    entries: Counter[str]
    failures: list[Failure]


class RecorderFeed:
    """Reads dumps of the Flight Recorder."""

    name = "recorder"
    schemas = (DUMPS, ENTRIES)

    def __init__(self, folders: Sequence[str], wants: Callable[[str], bool]) -> None:
        """Take folders or patterns of folders, and which jobs are wanted: files of others are not opened."""
        self._folders, self._wants = folders, wants
        self._serial = BlockingCalls("recorder", CALL_DEADLINE)
        self._dumps = Dumps(settled=True)
        self._told: dict[str, frozenset[Key]] = {}
        self._outcomes: Counter[str] = Counter()
        self._entries: Counter[str] = Counter()
        self._keepers = {schema: RowKeeper(schema.labels) for schema in self.schemas}

    async def applies(self) -> bool:
        """Tell whether any of the folders is there."""
        return bool(await off_loop(self._serial, partial(find_folders, self._folders)))

    async def hear(self) -> Heard:
        """Read the dumps that are new and whole; they fail alone."""
        failures: list[Failure] = []
        found = await off_loop(self._serial, partial(find, self._folders, ("",), self._wants, failures))
        ready, gone, too_many = self._dumps.look(
            {path: state for path, (_, state) in found.files.items() if _RANK.search(path)}
        )
        if too_many or found.cut:
            failures.append(Failure("", "too_many_files", f"more than {MAX_FILES} dumps; remove those of old jobs"))
        for path in gone:
            self._told.pop(path, None)
        results = await self._serial.run(
            (path, partial(self._read, path, found.files[path][0], found.files[path][1].st_uid)) for path in ready
        )
        heard = Heard(gone=gone, failures=failures)
        for path in ready:
            result, job = results[path], found.files[path][0]
            if isinstance(result, _Told):
                self._outcomes["taken"] += 1
                self._entries.update(result.entries)
                heard.said.append(result.said)
                failures += result.failures
            elif isinstance(result, FormatError):
                self._outcomes[result.reason] += 1
                failures.append(Failure(job, result.reason, f"{path}: {result}"))
            elif not isinstance(result, FileNotFoundError):
                self._outcomes["unreadable"] += 1
                failures.append(failure_of(job, result, path))
        return heard

    def unused(self, said: Said, why: Unused) -> None:
        """Count the collectives as what became of them."""
        self._entries["collective"] -= said.count
        self._entries[why] += said.count

    def tables(self, now: float) -> list[Table]:
        """Give what became of dumps and entries; nothing before the first dump."""
        if not self._outcomes:
            return []
        tables = []
        for schema, ending, names, counts in (
            (DUMPS, "dumps_total", DUMP_OUTCOMES, self._outcomes),
            (ENTRIES, "entries_total", ENTRY_OUTCOMES, self._entries),
        ):
            column = Column(schema.metrics[ending], [counts[name] for name in names])
            tables.append(Table(schema, self._keepers[schema].rows([(name,) for name in names]), {ending: column}, now))
        return tables

    async def close(self) -> None:
        """End the thread."""
        self._serial.close()

    def _read(self, path: str, job: str, uid: int) -> _Told:
        """Read one dump; runs in the thread."""
        dump = parse(self._dumps.read(path))
        named = _RANK.search(path)
        rank = int(named[1]) if named else 0
        said = Said(path, Facts(job, folder="" if job == UNKNOWN else job, uid=uid, world_rank=rank))
        entries = Counter({"bad": dump.bad} if dump.bad else {})
        self._take(dump, rank, said, entries)
        failures = []
        if dump.bad:
            failures.append(
                Failure(job, "invalid", f"{path}: {dump.bad} entries or groups; the first: {dump.first_error}")
            )
        return _Told(said, entries, failures)

    def _take(self, dump: Dump, rank: int, said: Said, outcomes: Counter[str]) -> None:
        """Add the entries that are over and were not told before."""
        before = self._told.pop(said.speaker, frozenset())
        if max((one.record_id for one in dump.entries), default=0) < max(
            (number for number, _, _ in before), default=0
        ):
            before, said.restarted = frozenset(), True  # a process that counts anew
        places: dict[tuple[int, str], tuple[str, Membership] | None] = {}
        over = set()
        for one in dump.entries:
            key = (one.record_id, one.pg_id, one.sequence)
            if one.state == "completed":
                over.add(key)
            if key in before:
                continue
            group = (one.pg_id, one.process_group[0] if one.process_group else "")
            if group not in places:
                places[group] = _place(_group_of(dump, *group), rank)
            outcomes[_add(one, places[group], said)] += 1
        self._told[said.speaker] = frozenset(over)
        if len(self._told) > MAX_RANKS:
            del self._told[next(iter(self._told))]


def _group_of(dump: Dump, number: int, name: str) -> Group | None:
    """Find a group: by its number, else by its name."""
    found = dump.groups.get(str(number))
    if found is not None and name in {"", found.name}:
        return found
    return dump.groups.get(name) or next((one for one in dump.groups.values() if one.name == name), None)


def _place(group: Group | None, rank: int) -> tuple[str, Membership] | None:
    """Give a group's name on all its ranks, and a rank's place in it; None where that is not told."""
    if group is None or group.ranks is None or rank not in group.ranks:
        return None
    about = repr((group.name, group.ranks)).encode("utf-8", "backslashreplace")
    name = f"recorder-{blake2b(about, digest_size=8).hexdigest()}"
    return name, Membership(group.ranks.index(rank), len(group.ranks))


def _add(entry: Entry, place: tuple[str, Membership] | None, said: Said) -> str:
    """Add an entry to what was said, and tell what it was."""
    if entry.is_p2p:
        return "point_to_point"
    if entry.state != "completed":
        return "unfinished"
    if entry.duration_ms is None:
        return "untimed"
    microseconds = round(entry.duration_ms * 1000)
    size = entry.input_bytes
    if place is None or size is None or not microseconds:
        return "incomplete"
    name, member = place
    said.meets(member)
    if entry.kind == "ReduceScatter":
        size //= member.ranks  # torch tells the whole input, NCCL counts what one rank gets
    said.did(name, member, entry.kind, entry.sequence, size, microseconds, timed=True)
    return "collective"
