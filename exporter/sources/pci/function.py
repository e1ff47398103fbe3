"""Reading of one PCI function: its link, its AER counters, and its identity."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

from exporter.core.source import Failure
from exporter.core.table import Value
from exporter.linux.cached_file import read_small, read_text
from exporter.linux.pci import (
    bus_device_driver,
    is_virtual_function,
    parse_aer_errors,
    upstream_bridge,
)
from exporter.sources.common.failures import failure_of
from exporter.sources.pci.metrics import AER_FILES, LINK_PROPERTIES
from exporter.sources.pci.topology import PciFunction

Parsed = TypeVar("Parsed")


class FunctionReading(NamedTuple):
    """The result of one read of a function.

    Attributes:
        epoch: Inode of its folder; another one for a device that was plugged in again.
        values: Values by ending.
        errors: AER counters by severity.
        failures: The failures of this read.
    """

    epoch: int
    values: dict[str, Value | None]
    errors: dict[str, int]
    failures: list[Failure]


@dataclass(slots=True)
class _FileReader:
    """Reads files of one function and its bridge, and collects failures."""

    address: str
    failures: list[Failure] = field(default_factory=list)

    def read(self, path: Path, parse: Callable[[bytes], Parsed]) -> Parsed | None:
        """Read one file; None if it does not exist, has no value, or failed."""
        try:
            return parse(read_small(path))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            self.failures.append(failure_of(self.address, error, path))
            return None


def read_function(host: str, function: PciFunction) -> FunctionReading:
    """Read the files of one function; blocks. Failures are in the reading, and affect only the values that failed.

    Raises:
        FileNotFoundError: The function was removed.
    """
    folder, devices, nearest_gpus = function
    epoch = folder.stat().st_ino
    files = _FileReader(folder.name)
    upstream = upstream_bridge(folder)
    values: dict[str, Value | None] = {}
    if not is_virtual_function(folder) and read_text(folder / "power" / "runtime_status") != "suspended":
        values |= _read_link(files, folder, upstream)
        values["link_degraded"] = is_degraded(values)
    values["info"] = (
        host,
        ",".join(devices),
        files.read(folder / "numa_node", _parse_numa_node) or "",
        ",".join(nearest_gpus),
        "" if upstream is None else upstream.name,
        bus_device_driver(folder),
    )
    counters = {severity: files.read(folder / path, parse_aer_errors) for severity, path in AER_FILES.items()}
    errors = {severity: count for severity, count in counters.items() if count is not None}
    return FunctionReading(epoch, values, errors, files.failures)


def _read_link(files: _FileReader, folder: Path, upstream: Path | None) -> dict[str, Value | None]:
    """Read the current link, and the maximum of its two ends, by ending."""
    values: dict[str, Value | None] = {}
    for one in LINK_PROPERTIES:
        values[one.current] = files.read(folder / f"current_{one.file}", one.parse)
        values[one.maximum] = files.read(folder / f"max_{one.file}", one.parse)
        if upstream is not None:
            values[one.bridge_maximum] = files.read(upstream / f"max_{one.file}", one.parse)
    return values


def is_degraded(values: Mapping[str, Value | None]) -> int | None:
    """Return 1 if the link is slower or narrower than both of its ends support, else 0; None if a value is missing."""
    degraded = 0
    for one in LINK_PROPERTIES:
        found = [values.get(ending) for ending in (one.current, one.maximum, one.bridge_maximum)]
        numbers = [value for value in found if isinstance(value, int | float)]
        if len(numbers) < len(found):
            return None
        degraded |= int(numbers[0] < min(numbers[1:]))
    return degraded


def _parse_numa_node(text: bytes) -> str:
    """Parse `numa_node`; "" for -1: the platform does not report it.

    Raises:
        ValueError: It is not a number.
    """
    node = int(text)
    return "" if node < 0 else str(node)
