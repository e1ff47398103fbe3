"""The rows of a simulated agent: sorted, each encoded once, so that a walk takes slices.

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

_MIN_VARBIND: Final = 8
"""Bytes of the smallest variable that has a value: three headers, one byte of name and of value."""

_MAX_CACHED: Final = 4096
"""Requested identifiers without a row whose place is cached: the beginnings of columns."""

_END_OF_MIB_VIEW: Final = encode_value(END_OF_MIB_VIEW, None)


class Raw(NamedTuple):
    """An encoded value with tag and length, which may be malformed."""

    encoded: bytes


RowValue: TypeAlias = Typed | Raw


class Rows:
    """Instances and their values, in lexicographic order. Several agents may share them."""

    def __init__(self, rows: Mapping[Oid, RowValue] | None = None) -> None:
        """Raises ValueError if an identifier or a value cannot be encoded."""
        self._names: dict[Oid, bytes] = {}
        self._order: list[Oid] = []
        self._places: dict[Oid, int] = {}
        self._varbinds: list[bytes] = []
        self._places_after: dict[bytes, int] = {}
        self._cached_places: dict[bytes, int] = {}
        self.set_many(rows or {})

    def __len__(self) -> int:
        """Return the number of rows."""
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

    def remove(self, first: int, end: int) -> None:
        """Remove the rows from one place up to another."""
        for oid in self._order[first:end]:
            del self._names[oid]
        varbinds = dict(zip(self._order, self._varbinds, strict=True))
        self._arrange({oid: varbinds[oid] for oid in self._names})

    def span(self, prefix: Oid) -> tuple[int, int]:
        """Return the places of the first row below `prefix`, and of the first one after these."""
        return bisect_left(self._order, prefix), bisect_left(self._order, (*prefix[:-1], prefix[-1] + 1))

    def place(self, oid: Oid) -> int | None:
        """Return the place of a row, None if there is no such row."""
        return self._places.get(oid)

    def oid(self, place: int) -> Oid:
        """Return the identifier of the row at a place."""
        return self._order[place]

    def varbind(self, place: int) -> bytes:
        """Return the encoded row at a place."""
        return self._varbinds[place]

    def place_after(self, name: bytes) -> int:
        """Return the place of the first row after an encoded identifier, which need not have a row."""
        place = self._places_after.get(name)
        if place is None:
            place = self._cached_places.get(name)
        if place is None:
            if len(self._cached_places) >= _MAX_CACHED:
                self._cached_places.clear()
            place = self._cached_places[name] = bisect_right(self._order, decode_oid(name))
        return place

    def bulk(self, names: Sequence[bytes], repetitions: int, room: int) -> list[bytes]:
        """Return the repetitions of a GETBULK that fit the response (RFC 3416, section 4.2.3).

        Args:
            names: Encoded identifiers to start after.
            repetitions: Maximum number of repetitions.
            room: Maximum size of all variables together, in bytes.

        Returns:
            The variables, row by row.
        """
        if not names:
            return []
        steps = max(0, min(repetitions, room // (_MIN_VARBIND * len(names)) + 1))
        starts = [self.place_after(name) for name in names]
        columns = [self._varbinds[start : start + steps] for start in starts]
        # Where all columns have ended, endOfMibView is returned once for each.
        steps = min(steps, max(map(len, columns)) + 1)
        for place, column in enumerate(columns):
            if len(column) < steps:
                last = self._names[self._order[-1]] if column else names[place]
                column.extend([end_of_view(last)] * (steps - len(column)))
        varbinds = list(chain.from_iterable(zip(*(column[:steps] for column in columns), strict=True)))
        return varbinds[: bisect_right(list(accumulate(map(len, varbinds))), room)]

    def _arrange(self, varbinds: dict[Oid, bytes]) -> None:
        """Sort the rows."""
        self._order = sorted(varbinds)
        self._varbinds = [varbinds[oid] for oid in self._order]
        self._places = {oid: place for place, oid in enumerate(self._order)}
        self._places_after = {self._names[oid]: place for place, oid in enumerate(self._order, start=1)}
        self._cached_places.clear()


def end_of_view(name: bytes) -> bytes:
    """Return the encoded variable endOfMibView for an encoded identifier."""
    return encode_tlv(SEQUENCE, encode_tlv(OBJECT_IDENTIFIER, name) + _END_OF_MIB_VIEW)


def _encode(value: RowValue) -> bytes:
    return value.encoded if isinstance(value, Raw) else encode_value(*value)
