"""Source `pci`: PCI functions of the network and RDMA devices of this host, their PCIe link and AER counters.

A NIC whose PCIe link trained at a lower speed or width looks healthy on the network but pauses its peers. A link should
have the minimum of what its two ends support: a Gen5 card in a Gen4 slot is not degraded. The link of a suspended
function is not read, since that might resume it. Of a virtual function in a virtual machine the location is read, but
not the link: its values are invented by the hypervisor, or not set.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from time import monotonic

from exporter.core.blocking import BlockingCalls
from exporter.core.definition import Context, Definition
from exporter.core.source import (
    Host,
    Reading,
    Source,
)
from exporter.core.table import RowKeeper, TableBuilder
from exporter.sources.common.blocking_call import make_call
from exporter.sources.common.failures import failure_of
from exporter.sources.common.host_ports import SCAN
from exporter.sources.pci.function import FunctionReading, read_function
from exporter.sources.pci.metrics import ERRORS, SCHEMA
from exporter.sources.pci.options import PciOptions
from exporter.sources.pci.topology import PciFunction, find_functions

CALL_DEADLINE = 2.0
"""Seconds for reading the files of one function, and for the search."""


class PciSource:
    """Reads the PCI functions of this host's ports."""

    name = "pci"
    target = ""
    changed: asyncio.Event | None = None

    def __init__(self, options: PciOptions, host: Host) -> None:
        """Read nothing yet."""
        self.interval = float(options.interval)
        self.settings = self._options = options
        self._host = host
        self._serial = BlockingCalls("pci", CALL_DEADLINE, host.hardware.turns(host.sysfs / "bus" / "pci"))
        self._keeper = RowKeeper(SCHEMA.labels)
        self._error_keeper = RowKeeper(ERRORS.labels)

    async def applies(self) -> bool:
        """Return whether any selected device is on a PCI function."""
        return bool(await self._find())

    async def read(self) -> Reading:
        """Read all functions; the failure of one does not affect the others."""
        functions = await self._find()
        now = monotonic()
        calls = [(address, partial(read_function, self._host.name, one)) for address, one in functions.items()]
        results = await self._serial.run(calls)
        table, errors = TableBuilder(SCHEMA), TableBuilder(ERRORS)
        epochs, failures = [], []
        for address in functions:
            result = results[address]
            if isinstance(result, FunctionReading):
                epochs.append(result.epoch)
                table.row((address,), result.values)
                for severity, count in result.errors.items():
                    errors.row((address, severity), {"aer_errors_total": count})
                failures += result.failures
            elif not isinstance(result, FileNotFoundError):  # the function was removed
                failures.append(failure_of(address, result, functions[address].folder))
        epoch_of = dict(zip((address for (address,) in table.keys), epochs, strict=True))
        tables = [
            table.table(self._keeper, now, epochs=epochs),
            errors.table(self._error_keeper, now, epochs=[epoch_of[address] for address, _ in errors.keys]),
        ]
        return Reading([one for one in tables if len(one.rows)], failures)

    async def close(self) -> None:
        """Stop the worker thread."""
        self._serial.close()

    async def _find(self) -> Mapping[str, PciFunction]:
        """Return the functions by address, in the order of their addresses.

        Raises:
            SourceError: They cannot be listed.
        """
        return await make_call(self._serial, SCAN, partial(find_functions, self._host.sysfs, self._options.matches))


def _build(options: PciOptions, context: Context) -> list[Source]:
    return [PciSource(options, context.host)]


DEFINITION = Definition("pci", PciOptions, (SCHEMA, ERRORS), _build)
