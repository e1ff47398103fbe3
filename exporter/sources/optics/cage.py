"""The module in one network device's cage: asked for all when it is new, later only for what changes.

Each request is a read over i2c, which takes milliseconds and on some NICs holds up packets, so little is asked.
"""

import errno
from collections.abc import Iterable
from typing import NamedTuple

from exporter.core.source import Failure
from exporter.linux import optics
from exporter.linux.nic_reader import NicReader
from exporter.linux.optics.module import (
    START,
    Family,
    Module,
    Pages,
    Span,
)
from exporter.sources.common.failures import failure_of

FACTS_AGE = 10
"""Reads after which what never changes in a module is read again all the same: it may have been read wrong."""

_NO_MODULES = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENODEV, errno.ENXIO, errno.ENOMEDIUM}
"""Answers of a device that has no cage, or nothing in it."""

_NO_ANSWER = {errno.EIO, errno.EREMOTEIO}
"""Answers of an i2c bus with nobody on it. Where there is a carrier, there is a module, and it should have answered."""

_NO_PAGE = {errno.EOPNOTSUPP, errno.EINVAL}
"""Answers that say that the driver or the module has no such page."""


class CageReading(NamedTuple):
    """What one read of a cage gave; the module is None where there is none, or where it did not answer."""

    module: Module | None = None
    failures: tuple[Failure, ...] = ()


class Cage:
    """One cage, and what is known of the module in it."""

    def __init__(self, device: str, ifindex: int) -> None:
        """Take the name and the index of the device; one of another index is another device."""
        self.device = device
        self.ifindex = ifindex
        self._known = b""
        self._facts: dict[Span, bytes] = {}
        self._age = 0

    def read(self, reader: NicReader, *, carrier: bool) -> CageReading:
        """Read the module; blocks. What cannot be had costs nothing else."""
        try:
            pages = {START: self._ask(reader, START)}
        except OSError as error:
            self._known = b""
            empty = error.errno in _NO_MODULES or (error.errno in _NO_ANSWER and not carrier)
            return CageReading(failures=() if empty else (self._failure(error, START),))
        failures: list[Failure] = []
        family = optics.family_of(pages[START])
        if family is not None:
            pages |= self._answers(reader, [family.mark], failures)
            if failures:  # who it is must not change from read to read
                return CageReading(failures=tuple(failures))
            pages |= self._read_facts(reader, family, pages, failures)
            pages |= self._answers(reader, family.values(pages), failures)
        module = optics.decode(pages)
        if module is not None and module.doubts:
            failures.append(self._implausible(module))
        return CageReading(module, tuple(failures))

    def _read_facts(self, reader: NicReader, family: Family, pages: Pages, failures: list[Failure]) -> Pages:
        """Give what never changes in the module; asked where it is another one, or where that is long ago."""
        mark = pages[START][:1] + pages.get(family.mark, b"")
        self._age += 1
        if mark != self._known or self._age >= FACTS_AGE:
            before = len(failures)
            self._facts = self._answers(reader, family.facts(pages), failures)
            self._known, self._age = (mark, 0) if len(failures) == before else (b"", 0)
        return self._facts

    def _answers(self, reader: NicReader, spans: Iterable[Span], failures: list[Failure]) -> dict[Span, bytes]:
        """Ask for spans; those that the module has not are missing."""
        found = {}
        for span in spans:
            try:
                found[span] = self._ask(reader, span)
            except OSError as error:
                if error.errno not in _NO_PAGE:
                    failures.append(self._failure(error, span))
        return found

    def _ask(self, reader: NicReader, span: Span) -> bytes:
        page, offset, length, bank, address = span
        return reader.module_page(self.device, page=page, bank=bank, offset=offset, length=length, address=address)

    def _failure(self, error: OSError, span: Span) -> Failure:
        if error.errno == errno.EPERM:
            detail = f"{self.device}: to read its module needs CAP_NET_ADMIN; grant it, or switch sources.optics off"
            return Failure(self.device, "eperm", detail)
        return failure_of(self.device, error, f"{self.device}: module, {span}")

    def _implausible(self, module: Module) -> Failure:
        what = "; ".join(module.doubts)
        detail = f"{self.device}: {module.vendor} {module.part}: {what}: left out; update the NIC's driver and firmware"
        return Failure(self.device, "implausible", f"{detail}, or exclude the device")
