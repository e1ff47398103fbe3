"""The rows of a simulated agent: in order, each encoded once, so that to walk them is to take slices.

rows = Rows({(1, 3, 6, 1, 2, 1, 2, 2, 1, 10, 1): Typed(COUNTER32, 7)})
rows.set_many({(1, 3, 6, 1, 2, 1, 2, 2, 1, 10, 1): Typed(COUNTER32, 8)})
varbinds = rows.bulk([encode_oid((1, 3, 6, 1, 2, 1, 2, 2, 1, 10))], repetitions=25, room=1400)
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate, chain
from typing import Final, NamedTuple, TypeAlias

from exporter.snmp.ber import (
    END_OF_MIB_VIEW,
    OBJECT_IDENTIFIER,
    SEQUENCE,
    Oid,
    Typed,
    decode_oid,
    encode_oid,
    encode_tlv,
    encode_value,
)

_LEAST_VARBIND: Final = 8
"""Bytes of the smallest variable that has a value: three headers, one byte of name and of value."""

_MAX_STRANGERS: Final = 4096
"""Identifiers asked for that are no row, of which the place is remembered: the beginnings of columns."""

_END_OF_MIB_VIEW: Final = encode_value(END_OF_MIB_VIEW, None)


class Raw(NamedTuple):
    """A value as it goes on the wire, tag and length included, whatever is wrong with it."""

    encoded: bytes


RowValue: TypeAlias = Typed | Raw


class Rows:
    """Instances and their values, in the order of a walk. Several agents may share them."""

    def __init__(self, rows: Mapping[Oid, RowValue] | None = None) -> None:
        """Take the rows. Raises ValueError if an identifier or a value cannot be encoded."""
        self._names: dict[Oid, bytes] = {}
        self._order: list[Oid] = []
        self._places: dict[Oid, int] = {}
        self._varbinds: list[bytes] = []
        self._behind: dict[bytes, int] = {}
        self._strangers: dict[bytes, int] = {}
        self.set_many(rows or {})

    def __len__(self) -> int:
        """Count the rows."""
        return len(self._order)

    def set_many(self, rows: Mapping[Oid, RowValue]) -> None:
        """Add or change rows, all or none. Raises ValueError as the constructor does."""
        values = {oid: _encode(value) for oid, value in rows.items()}
        added = {oid: encode_oid(oid) for oid in values.keys() - self._places.keys()}
        if added:
            self._names |= added
            varbinds = dict(zip(self._order, self._varbinds, strict=True))
            varbinds |= dict.fromkeys(added, b"")
            self._arrange(varbinds)
        places, names, varbinds_ = self._places, self._names, self._varbinds
        for oid, value in values.items():
            varbinds_[places[oid]] = encode_tlv(SEQUENCE, encode_tlv(OBJECT_IDENTIFIER, names[oid]) + value)

    def remove(self, first: int, behind: int) -> None:
        """Take the rows from one place up to another away."""
        for oid in self._order[first:behind]:
            del self._names[oid]
        varbinds = dict(zip(self._order, self._varbinds, strict=True))
        self._arrange({oid: varbinds[oid] for oid in self._names})

    def span(self, prefix: Oid) -> tuple[int, int]:
        """Give the places of the first row below `prefix`, and of the first one behind all of these."""
        return bisect_left(self._order, prefix), bisect_left(self._order, (*prefix[:-1], prefix[-1] + 1))

    def place(self, oid: Oid) -> int | None:
        """Give the place of a row, None if there is none of this name."""
        return self._places.get(oid)

    def oid(self, place: int) -> Oid:
        """Give the identifier of the row at a place."""
        return self._order[place]

    def varbind(self, place: int) -> bytes:
        """Give the row at a place as it goes on the wire."""
        return self._varbinds[place]

    def behind(self, name: bytes) -> int:
        """Give the place of the first row behind an encoded identifier, which may be that of a row or any other."""
        place = self._behind.get(name)
        if place is None:
            place = self._strangers.get(name)
        if place is None:
            if len(self._strangers) >= _MAX_STRANGERS:
                self._strangers.clear()
            place = self._strangers[name] = bisect_right(self._order, decode_oid(name))
        return place

    def bulk(self, names: Sequence[bytes], repetitions: int, room: int) -> list[bytes]:
        """Step from each of the names as often as asked, as far as the room and the rows go (RFC 3416, 4.2.3).

        Args:
            names: encoded identifiers to go on behind.
            repetitions: steps of each.
            room: bytes that all variables together may take.

        Returns:
            The variables, row by row.
        """
        if not names:
            return []
        steps = max(0, min(repetitions, room // (_LEAST_VARBIND * len(names)) + 1))
        starts = [self.behind(name) for name in names]
        columns = [self._varbinds[start : start + steps] for start in starts]
        # Where all have come to the end they say so once.
        steps = min(steps, max(map(len, columns)) + 1)
        for place, column in enumerate(columns):
            if len(column) < steps:
                last = self._names[self._order[-1]] if column else names[place]
                column.extend([end_of_view(last)] * (steps - len(column)))
        varbinds = list(chain.from_iterable(zip(*(column[:steps] for column in columns), strict=True)))
        return varbinds[: bisect_right(list(accumulate(map(len, varbinds))), room)]

    def _arrange(self, varbinds: dict[Oid, bytes]) -> None:
        """Put the rows in order anew."""
        self._order = sorted(varbinds)
        self._varbinds = [varbinds[oid] for oid in self._order]
        self._places = {oid: place for place, oid in enumerate(self._order)}
        self._behind = {self._names[oid]: place for place, oid in enumerate(self._order, start=1)}
        self._strangers.clear()


def end_of_view(name: bytes) -> bytes:
    """Give the variable that says that no row is behind an encoded identifier."""
    return encode_tlv(SEQUENCE, encode_tlv(OBJECT_IDENTIFIER, name) + _END_OF_MIB_VIEW)


def _encode(value: RowValue) -> bytes:
    return value.encoded if isinstance(value, Raw) else encode_value(*value)
