"""Module EEPROM memory in recordings: lower memory and upper pages of 128 bytes, some bytes possibly not recorded.

    {"lower": "18 40 06 .. 00 …", "page_00h": "18 …", "page_11h_bank_0": "…", "page_02h": {"errno": "EIO"}}

"lower" is bytes 0 to 127; "page_11h_bank_0" is bytes 128 to 255 of that page, in hexadecimal, and bank; the bank is 0
by default. "a2_lower" and "a2_page_00h" are the memory at I2C address 0x51 (A2h), where an SFP has its diagnostics.
Bytes are pairs of hexadecimal digits, ".." for one that is not recorded; blanks are ignored. A read of a byte or page
that is not recorded fails with EOPNOTSUPP.
"""

import errno
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

_PAGE_SIZE = 128
_KEY = re.compile(r"(a2_)?(?:lower|page_([0-9a-f]{2})h(?:_bank_(\d{1,3}))?)")
_BYTE = re.compile(r"[0-9a-fA-F]{2}|\.\.")


class MemoryPage(NamedTuple):
    """I2C address, page (None for the lower memory) and bank."""

    address: int
    page: int | None
    bank: int


@dataclass(frozen=True, slots=True)
class ModuleMemory:
    """Answers reads as the kernel does; a page is its bytes (None if not recorded), or the errno of all reads of it."""

    pages: Mapping[MemoryPage, Sequence[int | None] | int]

    def read(self, *, page: int, bank: int, offset: int, length: int, address: int) -> bytes:
        """Read bytes of the lower memory or of one page.

        Raises:
            OSError: EINVAL or ERANGE for an invalid range, EOPNOTSUPP for bytes that are not recorded, or the recorded
                error.
        """
        if not (0 <= offset < 2 * _PAGE_SIZE and 0 < length <= _PAGE_SIZE):
            raise _error(errno.ERANGE)
        start = offset % _PAGE_SIZE
        if start + length > _PAGE_SIZE or (page and offset < _PAGE_SIZE):
            raise _error(errno.EINVAL)
        content = self.pages.get(
            MemoryPage(address, page, bank) if offset >= _PAGE_SIZE else MemoryPage(address, None, 0)
        )
        if isinstance(content, int):
            raise _error(content)
        found = [] if content is None else [byte for byte in content[start : start + length] if byte is not None]
        if len(found) < length:
            raise _error(errno.EOPNOTSUPP)
        return bytes(found)


def parse_memory(pages: Mapping[str, str | int]) -> ModuleMemory:
    """Parse the pages of a recording; a page is its text, or an errno.

    Raises:
        ValueError: The name or the content of one does not have the form that the module's docstring describes.
    """
    found: dict[MemoryPage, Sequence[int | None] | int] = {}
    for key, value in pages.items():
        page = _parse_key(key)
        if page in found:
            raise ValueError(f"{key!r} occurs twice; write it once (the bank is 0 by default)")
        found[page] = value if isinstance(value, int) else _parse_bytes(key, value)
    return ModuleMemory(found)


def _parse_key(key: str) -> MemoryPage:
    match = _KEY.fullmatch(key)
    if match is None or int(match[3] or 0) > 255:
        raise ValueError(f"unknown key {key!r}; write such as lower, page_00h, page_11h_bank_0 or a2_lower")
    return MemoryPage(0x51 if match[1] else 0x50, int(match[2], 16) if match[2] else None, int(match[3] or 0))


def _parse_bytes(key: str, value: str) -> Sequence[int | None]:
    digits = value.replace(" ", "")
    pairs = _BYTE.findall(digits)
    if len(pairs) != _PAGE_SIZE or len(digits) != 2 * _PAGE_SIZE:
        raise ValueError(f"{key!r} is not {_PAGE_SIZE} bytes in hexadecimal; write .. for a byte that is not recorded")
    return [None if pair == ".." else int(pair, 16) for pair in pairs]


def _error(number: int) -> OSError:
    return OSError(number, f"module: {os.strerror(number)}")


class ReadModule(Protocol):
    """Reads from the memory of one module."""

    def __call__(self, *, page: int, bank: int, offset: int, length: int, address: int) -> bytes:
        """See NicReader.module_page."""


class _ModuleFamily(NamedTuple):
    """Modules with the same memory map.

    Attributes:
        identifiers: The values of byte 0 (SFF-8024 identifier).
        always: Ranges that all of them have: page, offset, length.
        optional: Ranges that only some of them have.
        optional_flag: The flag for those: byte of "lower", bit, and its value if the module has the optional ranges.
        private: Ranges with the serial number, and what makers and owners write at will.
    """

    identifiers: frozenset[int]
    always: Sequence[tuple[str, int, int]]
    optional: Sequence[tuple[str, int, int]]
    optional_flag: tuple[int, int, bool]
    private: Sequence[tuple[str, int, int]]


# The bytes between the ranges are latched flags: a read clears them, so that other readers would miss alarms.
_FAMILIES = (
    _ModuleFamily(  # CMIS
        frozenset({0x18, 0x19, 0x1E, 0x1F, 0x20}),
        (("lower", 0, 8), ("lower", 14, 114), ("page_00h", 128, 128)),
        (
            ("page_01h", 128, 128),
            ("page_02h", 128, 128),
            ("page_11h_bank_0", 128, 6),
            ("page_11h_bank_0", 154, 102),
        ),
        (2, 0x80, False),
        (("page_00h", 166, 16), ("page_00h", 223, 33)),
    ),
    _ModuleFamily(  # SFF-8636
        frozenset({0x0C, 0x0D, 0x11}),
        (("lower", 0, 3), ("lower", 22, 106), ("page_00h", 128, 128)),
        (("page_03h", 128, 128),),
        (2, 0x04, False),
        (("page_00h", 196, 16), ("page_00h", 224, 32)),
    ),
    _ModuleFamily(  # SFF-8472
        frozenset({0x03}),
        (("lower", 0, 128), ("page_00h", 128, 128)),
        (("a2_lower", 0, 110), ("a2_lower", 118, 10)),
        (92, 0x40, True),
        (("lower", 68, 16), ("lower", 96, 32), ("page_00h", 128, 128)),
    ),
)


def record_memory(
    read: ReadModule, failure: Callable[[OSError], dict[str, str] | None]
) -> dict[str, str | dict[str, str]]:
    """Read all of a module's memory that has no side effects when read, in the form that `parse_memory` parses.

    Args:
        read: Reads from the module.
        failure: Converts an error to its form in a recording; None for one that is omitted.

    Raises:
        OSError: The module's identifier cannot be read.
    """
    identifier = read(page=0, bank=0, offset=0, length=1, address=0x50)[0]
    family = next((one for one in _FAMILIES if identifier in one.identifiers), None)
    if family is None:
        return {"lower": " ".join([f"{identifier:02x}", *[".."] * (_PAGE_SIZE - 1)])}
    found: dict[str, list[str] | dict[str, str] | None] = {}
    _read_ranges(read, failure, family.always, found)
    offset, bit, is_set = family.optional_flag
    lower = found["lower"]
    if isinstance(lower, list) and lower[offset] != ".." and bool(int(lower[offset], 16) & bit) == is_set:
        _read_ranges(read, failure, family.optional, found)
    return {key: " ".join(page) if isinstance(page, list) else page for key, page in found.items() if page is not None}


def replace_private(
    memory: Mapping[str, str | dict[str, str]], replace: Callable[[bytes], bytes]
) -> dict[str, str | dict[str, str]]:
    """Return a recorded memory whose private ranges are replaced; those that are empty, or not recorded, are kept.

    Args:
        memory: As `record_memory` returns it.
        replace: Returns other content of the same length.
    """
    pages = {key: page.split() if isinstance(page, str) else page for key, page in memory.items()}
    lower = pages.get("lower")
    identifier = int(lower[0], 16) if isinstance(lower, list) and lower[0] != ".." else None
    family = next((one for one in _FAMILIES if identifier in one.identifiers), None)
    for key, offset, length in () if family is None else family.private:
        page, start = pages.get(key), offset % _PAGE_SIZE
        if isinstance(page, list) and ".." not in page[start : start + length]:
            content = bytes.fromhex("".join(page[start : start + length]))
            if content.strip(b"\0 \xff"):
                page[start : start + length] = [f"{byte:02x}" for byte in replace(content)]
    return {key: " ".join(page) if isinstance(page, list) else page for key, page in pages.items()}


def _read_ranges(
    read: ReadModule,
    failure: Callable[[OSError], dict[str, str] | None],
    ranges: Sequence[tuple[str, int, int]],
    found: dict[str, list[str] | dict[str, str] | None],
) -> None:
    """Read ranges into their pages; if one range of a page fails, the page is replaced by the error."""
    for key, offset, length in ranges:
        content = found.setdefault(key, [".."] * _PAGE_SIZE)
        if isinstance(content, list):
            address, page, bank = _parse_key(key)
            try:
                data = read(page=page or 0, bank=bank, offset=offset, length=length, address=address)
            except OSError as error:
                found[key] = failure(error)
            else:
                content[offset % _PAGE_SIZE : offset % _PAGE_SIZE + length] = [f"{byte:02x}" for byte in data]
