"""The wire format of Protocol Buffers, decoded: numbers and values of the fields of one message, without a schema.

protobuf.dev/programming-guides/encoding: a field is a key, which has its number and its wire type, and a value. A
decoder for one small reply saves the ten megabytes that the library and its descriptors take in every exporter.
"""

from collections.abc import Iterator

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5

_MAX_VARINT = 10
"""Octets of the longest number: 64 bits, seven in each."""


class FieldReader:
    """Decodes messages, of which it counts the fields: a message of many empty ones would take long."""

    def __init__(self, limit: int) -> None:
        """Create the reader.

        Args:
            limit: Most fields, of all messages together.
        """
        self._limit = self._left = limit

    def fields(self, message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
        """Yield each field's number, and its value: an int, or the content of a text, of bytes or of a message.

        Raises:
            ValueError: The message is malformed, or there are too many fields.
        """
        place = 0
        while place < len(message):
            self._left -= 1
            if self._left < 0:
                raise ValueError(f"more than {self._limit} fields")
            key, place = _varint(message, place)
            number, kind = key >> 3, key & 7
            if not 0 < number < 1 << 29:
                raise ValueError(f"field number {number} at offset {place}")
            if kind == _VARINT:
                value, place = _varint(message, place)
                yield number, value
                continue
            if kind == _LENGTH:
                size, place = _varint(message, place)
            elif kind in {_FIXED32, _FIXED64}:
                size = 4 if kind == _FIXED32 else 8
            else:
                raise ValueError(f"wire type {kind} at offset {place}")
            if size > len(message) - place:
                raise ValueError(f"field {number} at offset {place} ends after the message")
            content, place = message[place : place + size], place + size
            yield number, content if kind == _LENGTH else int.from_bytes(content, "little")


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    """Return the number at an offset, and the offset after it."""
    value = 0
    for index, octet in enumerate(message[place : place + _MAX_VARINT]):
        value |= (octet & 0x7F) << 7 * index
        if octet < 0x80:
            return value & (1 << 64) - 1, place + index + 1
    raise ValueError(f"a number at offset {place} has no end")
