"""A walk of many columns at once as a state machine without I/O: GETBULK requests out, responses in, rows by column.

Columns of one table are requested together, as many rows of each as fit a datagram. Every column ends by itself: at
the end of its subtree or of the agent's view, at an error of its own, or when the agent's responses are invalid.
Whatever happens to one column, its rows so far are kept and the other columns continue.
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
    OCTET_STRING,
    OPAQUE,
    Oid,
    Value,
    decode_oid,
    encode_oid,
    format_oid,
)
from exporter.snmp.exchange import (
    MAX_TEXT_BYTES,
    AgentState,
    Pacing,
    Problem,
    Reason,
    Request,
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

MAX_ROWS: Final = 20_000
"""Rows of one column, after which an agent is assumed to invent them."""

MAX_BYTES: Final = 16 * 2**20
"""Bytes of all responses to one walk, twice the size of that many rows of counters: strings could fill any memory."""

_MAX_COLUMNS_TOGETHER: Final = 16
_TEXTS: Final = frozenset((OCTET_STRING, OPAQUE))
_EXCEPTIONS: Final = frozenset((NO_SUCH_OBJECT, NO_SUCH_INSTANCE, END_OF_MIB_VIEW))


@dataclass(slots=True, eq=False)
class WalkColumn:
    """The rows of one column.

    Attributes:
        oid: the column, such as 1.3.6.1.2.1.2.2.1.10 for ifInOctets.
        rows: index, which is the rest of the identifier, to value; in the agent's order, which is ascending.
        tag: the type of the first row, None while there is none.
        other_tags: the types of rows that differ from the first one, such as a string among counters.
        malformed: rows that were skipped since they could not be decoded.
        cut_off: rows whose text was longer than MAX_TEXT_BYTES, and is cut off there.
        complete: whether the walk reached the column's end. The agent may still have omitted rows.
    """

    oid: Oid
    rows: dict[Oid, Value] = field(default_factory=dict)
    tag: int | None = None
    other_tags: dict[Oid, int] = field(default_factory=dict)
    malformed: int = 0
    cut_off: int = 0
    complete: bool = False


@dataclass(frozen=True, slots=True)
class WalkResult:
    """The columns of a walk by their identifier, in the requested order, and what is missing from them."""

    columns: dict[Oid, WalkColumn]
    problems: list[Problem]

    @property
    def empty(self) -> bool:
        """Whether no column has any row. A target that responds like that is not healthy, even without an error."""
        return not any(column.rows for column in self.columns.values())


class _Cursor:
    """Position of the walk in one column."""

    __slots__ = ("column", "done", "last_index", "last_oid", "prefix", "slot")

    def __init__(self, slot: int, oid: Oid) -> None:
        self.slot = slot
        self.column = WalkColumn(oid)
        self.prefix = encode_oid(oid)
        self.last_oid = self.prefix  # the encoded identifier to continue after
        self.last_index: Oid = ()  # its index; the empty tuple sorts before every index
        self.done = False


class Walk:
    """One walk over several columns; an `Exchange`."""

    def __init__(
        self, columns: Sequence[Oid], state: AgentState, *, max_rows: int = MAX_ROWS, unordered: bool = False
    ) -> None:
        """Plan the walk.

        Args:
            columns: the columns' identifiers; one named twice is walked once.
            state: what is known about the agent; the walk updates it.
            max_rows: rows after which a column is cut off, plus or minus those of one response.
            unordered: accept rows in any order; a column is in a loop only when a row repeats.

        Raises:
            ValueError: a column is not an object identifier.
        """
        self.pacing = Pacing(state)
        self._state = state
        self._max_rows = max_rows
        self._unordered = unordered
        self._bytes = 0
        self._cursors = [_Cursor(slot, oid) for slot, oid in enumerate(dict.fromkeys(columns))]
        self._groups = deque(_group_by_table(self._cursors, state.isolated))
        self._problems: list[Problem] = []

    def next_request(self) -> Request | None:
        """Return the request to send now, or None when all columns have ended."""
        while self._groups:
            group = [cursor for cursor in self._groups.popleft() if not cursor.done]
            if not group:
                continue
            if len(group) > self.pacing.varbinds:
                self._groups.appendleft(group[self.pacing.varbinds :])
                group = group[: self.pacing.varbinds]
            self._groups.appendleft(group)
            bulk = self._state.supports_getbulk
            return Request(
                GETBULK if bulk else GETNEXT,
                [cursor.last_oid for cursor in group],
                [cursor.slot for cursor in group],
                self.pacing.max_repetitions(len(group)) if bulk else 0,
            )
        return None

    def on_response(self, request: Request, response: Pdu, size: int) -> None:
        """Process the response to `request`, received in a datagram of `size` bytes."""
        self.pacing.on_response(size, len(response.varbinds) if response.error_status == NO_ERROR else 0)
        cursors = [self._cursors[slot] for slot in request.slots]
        if response.error_status == TOO_BIG and request.varbinds > 1:
            self.pacing.halve(request.varbinds)
        elif response.error_status != NO_ERROR:
            self._on_error_status(cursors, response.error_status, response.error_index)
        else:
            self._distribute(cursors, response.varbinds[: request.varbinds])
        self._bytes += size
        if self._bytes > MAX_BYTES:
            self.abort(Reason.SIZE_LIMIT, f"cut off after {self._bytes} bytes of responses")

    def on_timeout(self, request: Request) -> None:
        """Request the columns of a request that timed out in halves later; give up a single one."""
        self.pacing.on_request_timeout()
        cursors = [self._cursors[slot] for slot in request.slots]
        if len(cursors) == 1:
            self._stop(cursors[0], Reason.TIMEOUT, "no response in time, requested alone")
            if self.pacing.responded:
                self._state.isolated.add(cursors[0].column.oid)
            return
        middle = len(cursors) // 2
        # After the others, so that their responses show that the target is alive.
        self._groups = deque((*self._groups_without(cursors), cursors[:middle], cursors[middle:]))

    def abort(self, reason: Reason, detail: str) -> None:
        """End now; the rows so far are kept, and each column that is not complete becomes a problem."""
        for cursor in self._cursors:
            if not cursor.done:
                self._stop(cursor, reason, detail)

    def result(self) -> WalkResult:
        """Return the columns and problems. To be called once, at the end."""
        self.pacing.save()
        columns = {cursor.column.oid: cursor.column for cursor in self._cursors}
        for oid, column in columns.items():
            if column.malformed:
                detail = f"{column.malformed} rows could not be decoded and were skipped"
                self._problems.append(Problem(oid, Reason.MALFORMED, detail))
            column.cut_off = _cut_off_texts(column)
            if column.cut_off:
                detail = f"{column.cut_off} texts were cut off after {MAX_TEXT_BYTES} bytes"
                self._problems.append(Problem(oid, Reason.TEXT_LIMIT, detail))
        return WalkResult(columns, self._problems)

    def _distribute(self, cursors: list[_Cursor], varbinds: list[VarBind]) -> None:
        """Add the variable bindings to the columns; a response lists them row by row, in the order of the request."""
        width = len(cursors)
        progress = False
        for place, cursor in enumerate(cursors):
            last_oid = cursor.last_oid
            self._append_rows(cursor, varbinds[place::width])
            if len(cursor.column.rows) >= self._max_rows and not cursor.done:
                self._stop(cursor, Reason.ROW_LIMIT, f"cut off after {len(cursor.column.rows)} rows")
            progress = progress or cursor.done or cursor.last_oid != last_oid
        if not progress:
            for cursor in cursors:
                self._stop(cursor, Reason.NO_PROGRESS, f"no progress in a response of {len(varbinds)} variables")

    def _append_rows(self, cursor: _Cursor, varbinds: list[VarBind]) -> None:
        """Append rows to one column until it or the response ends. This is the hot loop of a poll."""
        column, prefix, last_index, last_oid = cursor.column, cursor.prefix, cursor.last_index, cursor.last_oid
        rows, usual, skip = column.rows, column.tag, len(prefix)
        indexes = self._state.indexes
        for oid, tag, value in varbinds:
            if tag != usual and tag in _EXCEPTIONS:
                cursor.done = column.complete = True
                break
            if not oid.startswith(prefix):
                if not oid:  # the identifier is missing or could not be decoded
                    column.malformed += 1
                    continue
                self._end_column(cursor, oid)
                break
            tail = oid[skip:]
            index = indexes.get(tail)
            if index is None:
                index = self._state.decoded_index(tail)
            # Numbers and not bytes are compared: base 128 sorts 16383 (ff 7f) after 16384 (81 80 00).
            if index <= last_index and (index in rows or not self._unordered):
                self._stop(
                    cursor,
                    Reason.NOT_INCREASING,
                    f"row {format_oid(index) or '-'} came after row {format_oid(last_index) or '-'}",
                )
                break
            last_index, last_oid = index, oid
            if tag != usual:
                if tag == MALFORMED:
                    column.malformed += 1
                    continue
                if usual is None:
                    usual = column.tag = tag
                else:
                    column.other_tags[index] = tag
            rows[index] = value
        cursor.last_index, cursor.last_oid = last_index, last_oid

    def _end_column(self, cursor: _Cursor, oid: bytes) -> None:
        """End a column at an identifier outside of it: complete if that sorts after it, an error if before."""
        numbers = decode_oid(oid)
        if numbers > cursor.column.oid:
            cursor.done = cursor.column.complete = True
        else:
            self._stop(cursor, Reason.NOT_INCREASING, f"{format_oid(numbers)} came inside the column")

    def _on_error_status(self, cursors: list[_Cursor], status: int, index: int) -> None:
        """Find the column that causes an error: by error-index if it names one, else by halves."""
        if (
            status == NO_SUCH_NAME
            and not self._state.supports_getbulk
            and (len(cursors) == 1 or 1 <= index <= len(cursors))
        ):
            ended = cursors[0] if len(cursors) == 1 else cursors[index - 1]  # v1: the end of the MIB view
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
        # Also if the column works alone: then the agent cannot combine it with others.
        self._state.isolated.update(part[0].column.oid for part in parts if len(part) == 1)
        self._groups = deque((*parts, *self._groups_without(cursors)))

    def _groups_without(self, cursors: list[_Cursor]) -> list[list[_Cursor]]:
        """Return the groups without these cursors.

        The cursors may be in several groups: a response may belong to an earlier, larger try of the request.
        """
        removed = {cursor.slot for cursor in cursors}
        return [[cursor for cursor in group if cursor.slot not in removed] for group in self._groups]

    def _stop(self, cursor: _Cursor, reason: Reason, detail: str) -> None:
        cursor.done = True
        self._problems.append(Problem(cursor.column.oid, reason, detail))


def _cut_off_texts(column: WalkColumn) -> int:
    """Cut off the texts that are longer than MAX_TEXT_BYTES, and return their number."""
    if column.tag not in _TEXTS and _TEXTS.isdisjoint(column.other_tags.values()):
        return 0
    texts = [(index, value) for index, value in column.rows.items() if isinstance(value, bytes)]
    long = {index: value[:MAX_TEXT_BYTES] for index, value in texts if len(value) > MAX_TEXT_BYTES}
    column.rows.update(long)
    return len(long)


def split_columns(columns: Sequence[Oid], walks: int) -> list[list[Oid]]:
    """Divide columns among that many parallel walks; columns of one table stay together where possible."""
    tables: dict[Oid, list[Oid]] = {}
    for oid in dict.fromkeys(columns):
        tables.setdefault(oid[:-1], []).append(oid)
    shares: list[list[Oid]] = [[] for _ in range(max(1, min(walks, len(columns))))]
    size = -(-len(columns) // len(shares))
    for table in tables.values():
        for start in range(0, len(table), size):
            min(shares, key=len).extend(table[start : start + size])
    return [share for share in shares if share] or [[]]


def merge_results(results: Sequence[WalkResult], columns: Sequence[Oid]) -> WalkResult:
    """Merge the results of parallel walks, with the columns in the requested order."""
    if len(results) == 1:
        return results[0]
    found = {oid: column for result in results for oid, column in result.columns.items()}
    problems = [problem for result in results for problem in result.problems]
    return WalkResult({oid: found[oid] for oid in dict.fromkeys(columns)}, problems)


def _group_by_table(cursors: Sequence[_Cursor], isolated: set[Oid]) -> list[list[_Cursor]]:
    """Group columns of one table, since they end at the same row; isolated columns are groups of their own."""
    tables: dict[Oid, list[_Cursor]] = {}
    for cursor in cursors:
        oid = cursor.column.oid
        tables.setdefault(oid if oid in isolated else oid[:-1], []).append(cursor)
    return [
        group[start : start + _MAX_COLUMNS_TOGETHER]
        for group in tables.values()
        for start in range(0, len(group), _MAX_COLUMNS_TOGETHER)
    ]
