"""The memory of a module in a port as a recording has it: halves of 128 bytes, with holes.

    {"lower": "18 40 06 .. 00 …", "page_00h": "18 …", "page_11h_bank_0": "…", "page_02h": {"errno": "EIO"}}

"lower" is bytes 0 to 127; "page_11h_bank_0" is bytes 128 to 255 while that page, in hexadecimal, and bank are chosen;
without a bank it is the first. "a2_lower" and "a2_page_00h" are the memory at address 0x51, where an SFP has its
diagnostics. Bytes are pairs of hexadecimal digits, ".." for one that is not recorded; blanks are free. A read that
touches a byte or a half that is not there fails with EOPNOTSUPP.
"""

import errno
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

_HALF = 128  # bytes
_KEY = re.compile(r"(a2_)?(?:lower|page_([0-9a-f]{2})h(?:_bank_(\d{1,3}))?)")
_BYTE = re.compile(r"[0-9a-fA-F]{2}|\.\.")


class Half(NamedTuple):
    """Which half: the address on the i2c bus, then the page of an upper one, None for the lower one."""

    address: int
    page: int | None
    bank: int


@dataclass(frozen=True, slots=True)
class ModuleMemory:
    """Answers reads as the kernel does; a half is its bytes, None for a hole, or the error of all reads of it."""

    halves: Mapping[Half, Sequence[int | None] | int]

    def read(self, *, page: int, bank: int, offset: int, length: int, address: int) -> bytes:
        """Give some bytes.

        Raises:
            OSError: EINVAL or ERANGE for what is no range of one half, EOPNOTSUPP for what is not recorded, or as
                recorded.
        """
        if not (0 <= offset < 2 * _HALF and 0 < length <= _HALF):
            raise _error(errno.ERANGE)
        start = offset % _HALF
        if start + length > _HALF or (page and offset < _HALF):
            raise _error(errno.EINVAL)
        half = self.halves.get(Half(address, page, bank) if offset >= _HALF else Half(address, None, 0))
        if isinstance(half, int):
            raise _error(half)
        found = [] if half is None else [byte for byte in half[start : start + length] if byte is not None]
        if len(found) < length:
            raise _error(errno.EOPNOTSUPP)
        return bytes(found)


def parse_memory(halves: Mapping[str, str | int]) -> ModuleMemory:
    """Read the halves of a recording, of which those that are errors are given by number.

    Raises:
        ValueError: One of them has another name or another content than the text of this module says.
    """
    found: dict[Half, Sequence[int | None] | int] = {}
    for key, value in halves.items():
        half = _half(key)
        if half in found:
            raise ValueError(f"{key!r} is there twice: without a bank it is bank 0")
        found[half] = value if isinstance(value, int) else _bytes(key, value)
    return ModuleMemory(found)


def _half(key: str) -> Half:
    match = _KEY.fullmatch(key)
    if match is None or int(match[3] or 0) > 255:
        raise ValueError(f"unknown key {key!r}; write such as lower, page_00h, page_11h_bank_0 or a2_lower")
    return Half(0x51 if match[1] else 0x50, int(match[2], 16) if match[2] else None, int(match[3] or 0))


def _bytes(key: str, value: str) -> Sequence[int | None]:
    digits = value.replace(" ", "")
    pairs = _BYTE.findall(digits)
    if len(pairs) != _HALF or len(digits) != 2 * _HALF:
        raise ValueError(f"{key!r} is not {_HALF} bytes in hexadecimal digits, with .. for those not recorded")
    return [None if pair == ".." else int(pair, 16) for pair in pairs]


def _error(number: int) -> OSError:
    return OSError(number, f"module: {os.strerror(number)}")


class Read(Protocol):
    """Reads from the memory of one module."""

    def __call__(self, *, page: int, bank: int, offset: int, length: int, address: int) -> bytes:
        """See NicReader.module_page."""


class _Family(NamedTuple):
    """Modules whose memory is laid out alike.

    Attributes:
        identifiers: The values of byte 0.
        always: Ranges that all of them have: half, offset, length.
        more: Ranges of those that have more than that.
        has_more: Where that is told: the byte of "lower", the bit, and whether it is set then.
    """

    identifiers: frozenset[int]
    always: Sequence[tuple[str, int, int]]
    more: Sequence[tuple[str, int, int]]
    has_more: tuple[int, int, bool]


# What lies between the ranges are latched flags: a read clears them, and who watches for them would miss them.
_FAMILIES = (
    _Family(  # CMIS
        frozenset({0x18, 0x19, 0x1E, 0x1F, 0x20}),
        (("lower", 0, 8), ("lower", 14, 114), ("page_00h", 128, 128)),
        (
            ("page_01h", 128, 128),
            ("page_02h", 128, 128),
            ("page_11h_bank_0", 128, 6),
            ("page_11h_bank_0", 154, 102),
        ),
        (2, 0x80, False),
    ),
    _Family(  # SFF-8636
        frozenset({0x0C, 0x0D, 0x11}),
        (("lower", 0, 3), ("lower", 22, 106), ("page_00h", 128, 128)),
        (("page_03h", 128, 128),),
        (2, 0x04, False),
    ),
    _Family(  # SFF-8472
        frozenset({0x03}),
        (("lower", 0, 128), ("page_00h", 128, 128)),
        (("a2_lower", 0, 110), ("a2_lower", 118, 10)),
        (92, 0x40, True),
    ),
)


def record_memory(read: Read, failure: Callable[[OSError], dict[str, str] | None]) -> dict[str, str | dict[str, str]]:
    """Read all of a module that may be read without an effect on it, in the form that `parse_memory` takes.

    Args:
        read: Reads from the module.
        failure: Gives an error as a recording has it; None for one that is left out.

    Raises:
        OSError: Not even the module's kind can be read.
    """
    identifier = read(page=0, bank=0, offset=0, length=1, address=0x50)[0]
    family = next((one for one in _FAMILIES if identifier in one.identifiers), None)
    if family is None:
        return {"lower": " ".join([f"{identifier:02x}", *[".."] * (_HALF - 1)])}
    found: dict[str, list[str] | dict[str, str] | None] = {}
    _read_ranges(read, failure, family.always, found)
    place, bit, is_set = family.has_more
    lower = found["lower"]
    if isinstance(lower, list) and lower[place] != ".." and bool(int(lower[place], 16) & bit) == is_set:
        _read_ranges(read, failure, family.more, found)
    return {key: " ".join(half) if isinstance(half, list) else half for key, half in found.items() if half is not None}


def _read_ranges(
    read: Read,
    failure: Callable[[OSError], dict[str, str] | None],
    ranges: Sequence[tuple[str, int, int]],
    found: dict[str, list[str] | dict[str, str] | None],
) -> None:
    """Read ranges into their halves; where one of a half fails, so does the half."""
    for key, offset, length in ranges:
        half = found.setdefault(key, [".."] * _HALF)
        if isinstance(half, list):
            address, page, bank = _half(key)
            try:
                data = read(page=page or 0, bank=bank, offset=offset, length=length, address=address)
            except OSError as error:
                found[key] = failure(error)
            else:
                half[offset % _HALF : offset % _HALF + length] = [f"{byte:02x}" for byte in data]
