"""A walk over many columns at once, as a state machine: GETBULK requests out, responses in, rows per column kept.

Columns of one table are asked together, as many rows of each as fit a datagram. Every column ends by itself: at the end
of its subtree or of the agent's view, at an error that is its own, or when the agent stops to make sense. Whatever
happens to one column, the rows it had stay, and the others go on.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from exporter.snmp.ber import (
    END_OF_MIB_VIEW,
    MALFORMED,
    NO_SUCH_INSTANCE,
    NO_SUCH_OBJECT,
    Oid,
    Value,
    decode_index,
    decode_oid,
    encode_oid,
    format_oid,
)
from exporter.snmp.message import (
    GETBULK,
    GETNEXT,
    NO_ERROR,
    NO_SUCH_NAME,
    TOO_BIG,
    Pdu,
    VarBind,
    status_name,
)
from exporter.snmp.poll import (
    Memory,
    Pace,
    Problem,
    Reason,
    Request,
)

MAX_ROWS: Final = 20_000
"""Rows of one column, after which an agent is taken to invent them."""

MAX_BYTES: Final = 16 * 2**20
"""Bytes of all replies to one walk, twice what that many rows of counters take: texts could fill any memory."""

_MAX_COLUMNS_TOGETHER: Final = 16
_EXCEPTIONS: Final = frozenset((NO_SUCH_OBJECT, NO_SUCH_INSTANCE, END_OF_MIB_VIEW))


@dataclass(slots=True, eq=False)
class Column:
    """The rows of one column.

    Attributes:
        oid: the column, such as 1.3.6.1.2.1.2.2.1.10 for ifInOctets.
        rows: index, which is the rest of the identifier, to value; in the agent's order, which is ascending.
        tag: the type of the first row, None while there is none.
        odd: the types of rows that differ from the first one, such as a string among counters.
        malformed: rows that were left out since they could not be read.
        complete: whether the walk saw the column's end. It does not say that the agent listed all rows it has.
    """

    oid: Oid
    rows: dict[Oid, Value] = field(default_factory=dict)
    tag: int | None = None
    odd: dict[Oid, int] = field(default_factory=dict)
    malformed: int = 0
    complete: bool = False


@dataclass(frozen=True, slots=True)
class WalkResult:
    """What a walk brought: the columns, keyed as they were asked for, and what is missing from them."""

    columns: dict[Oid, Column]
    problems: list[Problem]

    @property
    def empty(self) -> bool:
        """Whether no column has any row. A target that answers like that is not healthy, however politely it does."""
        return not any(column.rows for column in self.columns.values())


class _Cursor:
    """Where the walk stands in one column."""

    __slots__ = ("column", "done", "last", "place", "position", "prefix")

    def __init__(self, place: int, oid: Oid) -> None:
        self.place = place
        self.column = Column(oid)
        self.prefix = encode_oid(oid)
        self.position = self.prefix  # the encoded identifier to go on behind
        self.last: Oid = ()  # its index; the empty tuple is below every index
        self.done = False


class Walk:
    """One walk over several columns; an `Exchange`."""

    def __init__(
        self, columns: Sequence[Oid], memory: Memory, *, max_rows: int = MAX_ROWS, unordered: bool = False
    ) -> None:
        """Plan the walk.

        Args:
            columns: the columns' identifiers; one named twice is walked once.
            memory: what is known of the target; the walk adds to it.
            max_rows: rows after which a column is cut off, give or take those of one reply.
            unordered: take rows in any order, and a column for one that goes round only at a row that was there before.

        Raises:
            ValueError: a column is no object identifier.
        """
        self.pace = Pace(memory)
        self._memory = memory
        self._max_rows = max_rows
        self._unordered = unordered
        self._bytes = 0
        self._cursors = [_Cursor(place, oid) for place, oid in enumerate(dict.fromkeys(columns))]
        self._groups = deque(_grouped(self._cursors, memory.apart))
        self._problems: list[Problem] = []

    def next_request(self) -> Request | None:
        """Give the question to ask now, or None when all columns have ended."""
        while self._groups:
            group = [cursor for cursor in self._groups.popleft() if not cursor.done]
            if not group:
                continue
            if len(group) > self.pace.varbinds:
                self._groups.appendleft(group[self.pace.varbinds :])
                group = group[: self.pace.varbinds]
            self._groups.appendleft(group)
            bulk = self._memory.bulk
            return Request(
                GETBULK if bulk else GETNEXT,
                [cursor.position for cursor in group],
                [cursor.place for cursor in group],
                self.pace.repetitions(len(group)) if bulk else 0,
            )
        return None

    def answered(self, request: Request, response: Pdu, size: int) -> None:
        """Take the response to `request`, which came in a datagram of `size` bytes."""
        self.pace.answered(size, len(response.varbinds) if response.error_status == NO_ERROR else 0)
        cursors = [self._cursors[place] for place in request.places]
        if response.error_status == TOO_BIG and request.varbinds > 1:
            self.pace.too_big(request.varbinds)
        elif response.error_status != NO_ERROR:
            self._refused(cursors, response.error_status, response.error_index)
        else:
            self._take(cursors, response.varbinds[: request.varbinds])
        self._bytes += size
        if self._bytes > MAX_BYTES:
            self.give_up(Reason.SIZE_LIMIT, f"cut off after {self._bytes} bytes of replies")

    def unanswered(self, request: Request) -> None:
        """Take note that `request` got no answer: its columns are asked apart later, a lone one is given up."""
        self.pace.silent()
        cursors = [self._cursors[place] for place in request.places]
        if len(cursors) == 1:
            self._stop(cursors[0], Reason.TIMEOUT, "no answer in time, asked alone")
            if self.pace.heard:
                self._memory.apart.add(cursors[0].column.oid)
            return
        middle = len(cursors) // 2
        # Behind the others, so that their answers show in between that the target lives.
        self._groups = deque((*self._without(cursors), cursors[:middle], cursors[middle:]))

    def give_up(self, reason: Reason, detail: str) -> None:
        """End now; the rows that came stay, and each column that is not complete becomes a problem."""
        for cursor in self._cursors:
            if not cursor.done:
                self._stop(cursor, reason, detail)

    def result(self) -> WalkResult:
        """Give all that came. To be called once, at the end."""
        self.pace.end()
        columns = {cursor.column.oid: cursor.column for cursor in self._cursors}
        for oid, column in columns.items():
            if column.malformed:
                detail = f"{column.malformed} rows could not be read and are left out"
                self._problems.append(Problem(oid, Reason.MALFORMED, detail))
        return WalkResult(columns, self._problems)

    def _take(self, cursors: list[_Cursor], varbinds: list[VarBind]) -> None:
        """Deal the variables out to the columns, in whose order they stand row by row."""
        width = len(cursors)
        progress = False
        for place, cursor in enumerate(cursors):
            position = cursor.position
            self._take_column(cursor, varbinds[place::width])
            if len(cursor.column.rows) >= self._max_rows and not cursor.done:
                self._stop(cursor, Reason.ROW_LIMIT, f"cut off after {len(cursor.column.rows)} rows")
            progress = progress or cursor.done or cursor.position != position
        if not progress:
            for cursor in cursors:
                self._stop(cursor, Reason.NO_PROGRESS, f"the reply of {len(varbinds)} variables leads no further")

    def _take_column(self, cursor: _Cursor, varbinds: list[VarBind]) -> None:
        """Add rows to one column until it ends or they do. This is the hot loop of a poll."""
        column, prefix, last, position = cursor.column, cursor.prefix, cursor.last, cursor.position
        rows, usual, skip = column.rows, column.tag, len(prefix)
        indexes = self._memory.indexes
        for oid, tag, value in varbinds:
            if tag != usual and tag in _EXCEPTIONS:
                cursor.done = column.complete = True
                break
            if not oid.startswith(prefix):
                if not oid:  # no name, or none that could be read
                    column.malformed += 1
                    continue
                self._leave(cursor, oid)
                break
            tail = oid[skip:]
            index = indexes.get(tail)
            if index is None:
                index = indexes[tail] = decode_index(tail)
            # Numbers and not bytes are compared: base 128 puts 16383 (ff 7f) behind 16384 (81 80 00).
            if index <= last and (index in rows or not self._unordered):
                self._stop(
                    cursor,
                    Reason.NOT_INCREASING,
                    f"row {format_oid(index) or '-'} came after row {format_oid(last) or '-'}",
                )
                break
            last, position = index, oid
            if tag != usual:
                if tag == MALFORMED:
                    column.malformed += 1
                    continue
                if usual is None:
                    usual = column.tag = tag
                else:
                    column.odd[index] = tag
            rows[index] = value
        cursor.last, cursor.position = last, position

    def _leave(self, cursor: _Cursor, oid: bytes) -> None:
        """End a column at an identifier outside of it: well if that lies behind it, as a fault if it lies before."""
        numbers = decode_oid(oid)
        if numbers > cursor.column.oid:
            cursor.done = cursor.column.complete = True
        else:
            self._stop(cursor, Reason.NOT_INCREASING, f"{format_oid(numbers)} came inside the column")

    def _refused(self, cursors: list[_Cursor], status: int, index: int) -> None:
        """Find the column that is to blame for an error: by the index if it names one, else by halves."""
        if status == NO_SUCH_NAME and not self._memory.bulk and (len(cursors) == 1 or 1 <= index <= len(cursors)):
            ended = cursors[0] if len(cursors) == 1 else cursors[index - 1]  # how v1 says that nothing comes behind
            ended.done = ended.column.complete = True
            return
        if len(cursors) == 1:
            reason = Reason.TOO_BIG if status == TOO_BIG else Reason.ERROR_STATUS
            self._stop(cursors[0], reason, f"{status_name(status)} after {len(cursors[0].column.rows)} rows")
            return
        if 1 <= index <= len(cursors):
            parts = [[cursors[index - 1]], cursors[: index - 1] + cursors[index:]]
        else:
            middle = len(cursors) // 2
            parts = [cursors[:middle], cursors[middle:]]
        # Remembered also if it answers well alone: then it is the company that the agent does not stand.
        self._memory.apart.update(part[0].column.oid for part in parts if len(part) == 1)
        self._groups = deque((*parts, *self._without(cursors)))

    def _without(self, cursors: list[_Cursor]) -> list[list[_Cursor]]:
        """Give the groups without these cursors. They may lie in several: an answer may be to a larger, earlier try."""
        out = {cursor.place for cursor in cursors}
        return [[cursor for cursor in group if cursor.place not in out] for group in self._groups]

    def _stop(self, cursor: _Cursor, reason: Reason, detail: str) -> None:
        cursor.done = True
        self._problems.append(Problem(cursor.column.oid, reason, detail))


def shares(columns: Sequence[Oid], walks: int) -> list[list[Oid]]:
    """Divide columns among so many walks at the same time; those of one table, as far as it goes, stay together."""
    tables: dict[Oid, list[Oid]] = {}
    for oid in dict.fromkeys(columns):
        tables.setdefault(oid[:-1], []).append(oid)
    made: list[list[Oid]] = [[] for _ in range(max(1, min(walks, len(columns))))]
    size = -(-len(columns) // len(made))
    for table in tables.values():
        for start in range(0, len(table), size):
            min(made, key=len).extend(table[start : start + size])
    return [share for share in made if share] or [[]]


def merged(results: Sequence[WalkResult], columns: Sequence[Oid]) -> WalkResult:
    """Put the results of walks together, in the order in which the columns were asked for."""
    if len(results) == 1:
        return results[0]
    found = {oid: column for result in results for oid, column in result.columns.items()}
    problems = [problem for result in results for problem in result.problems]
    return WalkResult({oid: found[oid] for oid in dict.fromkeys(columns)}, problems)


def _grouped(cursors: Sequence[_Cursor], apart: set[Oid]) -> list[list[_Cursor]]:
    """Put columns of one table together, since they end at the same row, but for those to ask apart."""
    tables: dict[Oid, list[_Cursor]] = {}
    for cursor in cursors:
        oid = cursor.column.oid
        tables.setdefault(oid if oid in apart else oid[:-1], []).append(cursor)
    return [
        group[start : start + _MAX_COLUMNS_TOGETHER]
        for group in tables.values()
        for start in range(0, len(group), _MAX_COLUMNS_TOGETHER)
    ]
