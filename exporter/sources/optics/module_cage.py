"""The module cage of one network device: static data of a module is read when it was plugged in, monitors each time.

Each request is a read over I2C, which takes milliseconds and delays packets on some NICs, so as little as possible is
read.
"""

import errno
from collections.abc import Iterable
from typing import NamedTuple

from exporter.core.source import Failure
from exporter.linux import optics
from exporter.linux.nic_reader import NicReader
from exporter.linux.optics.module import (
    HEADER,
    MemoryRange,
    ModuleFamily,
    ModuleMemory,
    OpticalModule,
)
from exporter.sources.common.failures import failure_of

STATIC_MAX_READS = 10
"""Reads after which the static data of a module is read again, in case it was read wrongly."""

_NO_MODULE_ERRNOS = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENODEV, errno.ENXIO, errno.ENOMEDIUM})
"""Errors of a device without a cage, or with an empty one."""

_I2C_ERRNOS = frozenset({errno.EIO, errno.EREMOTEIO})
"""Errors of an I2C bus on which nothing answers; a failure only if the port has a carrier, and so a module."""

_NO_PAGE_ERRNOS = frozenset({errno.EOPNOTSUPP, errno.EINVAL})
"""Errors of a page that the driver or the module does not have."""


class CageReading(NamedTuple):
    """The result of one read; the module is None if the cage is empty, or if the module did not answer."""

    module: OpticalModule | None = None
    failures: tuple[Failure, ...] = ()


class ModuleCage:
    """One cage, and the cached static data of the module in it."""

    def __init__(self, device: str, ifindex: int) -> None:
        self.device = device
        self.ifindex = ifindex
        self._identity = b""
        self._static: dict[MemoryRange, bytes] = {}
        self._reads = 0

    def read(self, reader: NicReader, *, carrier: bool) -> CageReading:
        """Read the module; blocks. A failure affects only the range that failed."""
        try:
            memory = {HEADER: self._read_range(reader, HEADER)}
        except OSError as error:
            self._identity = b""
            is_empty = error.errno in _NO_MODULE_ERRNOS or (error.errno in _I2C_ERRNOS and not carrier)
            return CageReading(failures=() if is_empty else (self._failure(error, HEADER),))
        failures: list[Failure] = []
        family = optics.family_of(memory[HEADER])
        if family is not None:
            memory |= self._read_ranges(reader, [family.identity], failures)
            if failures:  # the identity of a module must not change from read to read
                return CageReading(failures=tuple(failures))
            memory |= self._read_static(reader, family, memory, failures)
            memory |= self._read_ranges(reader, family.monitor_ranges(memory), failures)
        module = optics.decode(memory)
        if module is not None and module.implausible:
            failures.append(self._implausible(module))
        return CageReading(module, tuple(failures))

    def _read_static(
        self, reader: NicReader, family: ModuleFamily, memory: ModuleMemory, failures: list[Failure]
    ) -> ModuleMemory:
        """Return the static data; it is read if the module was replaced, or after STATIC_MAX_READS."""
        identity = memory[HEADER][:1] + memory.get(family.identity, b"")
        self._reads += 1
        if identity != self._identity or self._reads >= STATIC_MAX_READS:
            before = len(failures)
            self._static = self._read_ranges(reader, family.static_ranges(memory), failures)
            self._identity, self._reads = (identity, 0) if len(failures) == before else (b"", 0)
        return self._static

    def _read_ranges(
        self, reader: NicReader, ranges: Iterable[MemoryRange], failures: list[Failure]
    ) -> dict[MemoryRange, bytes]:
        """Read ranges; those that the module does not have are missing."""
        found = {}
        for one in ranges:
            try:
                found[one] = self._read_range(reader, one)
            except OSError as error:
                if error.errno not in _NO_PAGE_ERRNOS:
                    failures.append(self._failure(error, one))
        return found

    def _read_range(self, reader: NicReader, memory_range: MemoryRange) -> bytes:
        page, offset, length, bank, address = memory_range
        return reader.module_page(self.device, page=page, bank=bank, offset=offset, length=length, address=address)

    def _failure(self, error: OSError, memory_range: MemoryRange) -> Failure:
        if error.errno == errno.EPERM:
            detail = f"{self.device}: reading its module needs CAP_NET_ADMIN; grant it, or disable sources.optics"
            return Failure(self.device, "eperm", detail)
        return failure_of(self.device, error, f"{self.device}: module, {memory_range}")

    def _implausible(self, module: OpticalModule) -> Failure:
        values = "; ".join(module.implausible)
        return Failure(
            self.device,
            "implausible",
            f"{self.device}: {module.vendor} {module.part}: {values}: dropped; update the NIC's driver and firmware, or"
            " exclude the device",
        )
