"""PCI functions that the network and RDMA devices of this host sit on: their link to the host, and its errors.

A NIC behind a PCIe link that trained too slow or too narrow looks healthy on the wire and stops its peers by pauses.
What a link should be is the least of what its two ends can do: a card of the fifth generation in a slot of the fourth
is as fast as it can be. A function that is suspended is not asked for its link, since that might wake it up. A virtual
function in a virtual machine tells where it is, but not its link: what it shows there is made up, or not set.
"""

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from pathlib import Path
from time import monotonic
from typing import NamedTuple, TypeVar

from exporter.config.units import Duration
from exporter.core import vocabulary
from exporter.core.blocking import BlockingCalls
from exporter.core.source import (
    Definition,
    Failure,
    Host,
    Options,
    Reading,
    Source,
)
from exporter.core.table import RowKeeper, TableBuilder, Value
from exporter.core.vocabulary import counter, gauge, info
from exporter.linux.cached_file import read_small, read_text
from exporter.linux.pci import (
    bus_device_driver,
    is_virtual_function,
    parse_aer_errors,
    parse_link_lanes,
    parse_link_speed,
    pci_function,
    upstream_bridge,
    upstream_path,
)
from exporter.sources.common.failures import failure_of
from exporter.sources.common.host_ports import SCAN, is_representor, list_devices

CALL_DEADLINE = 2.0
"""Seconds that the files of one function may take, and the search for all."""

CLASSES = ("net", "infiniband")
"""Classes of sysfs whose devices are looked for."""

GPUS = {
    "0x10de": ("0x0300", "0x0302"),  # NVIDIA
    "0x1002": ("0x0300", "0x0380", "0x1200"),  # AMD
    "0x8086": ("0x0380",),  # Intel; its 0x0300 is the graphics inside a processor
    "0x1da3": ("0x1200",),  # Habana
}
"""By vendor, the classes of PCI functions that are GPUs: VGA, 3D, display, and processing accelerators."""


class Side(NamedTuple):
    """One of the two things that make a link fast, speed and lanes: endings, and the file's name after current_, max_.

    Attributes:
        now: What it is.
        most: What the function can do.
        bridge_most: What the bridge before it can do.
        file: `current_<file>` and `max_<file>`.
        parse: Reads either.
    """

    now: str
    most: str
    bridge_most: str
    file: str
    parse: Callable[[bytes], float | None]


SIDES = (
    Side(
        "link_speed_transfers_per_second",
        "link_max_speed_transfers_per_second",
        "bridge_max_speed_transfers_per_second",
        "link_speed",
        parse_link_speed,
    ),
    Side("link_lanes", "link_max_lanes", "bridge_max_lanes", "link_width", parse_link_lanes),
)

SEVERITIES = {"correctable": "aer_dev_correctable", "nonfatal": "aer_dev_nonfatal", "fatal": "aer_dev_fatal"}

SCHEMA = vocabulary.schema(
    "fabric_pci_",
    ("pci",),
    own={
        "info": info(
            "What sits on the PCI function, and where it is: the network and RDMA devices on it, the bridge before it,"
            " and the GPUs that it shares the longest way from the host with. What is not known is left out.",
            "host",
            "devices",
            "numa_node",
            "nearest_gpu",
            "bridge",
            "driver",
        ),
        "link_speed_transfers_per_second": gauge("Transfers per second on each lane, as the PCIe link is now."),
        "link_lanes": gauge("Lanes that the PCIe link runs on."),
        "link_degraded": gauge(
            "Whether the PCIe link is slower, or has fewer lanes, than both of its ends can do (1) or not (0); absent"
            " where one of these is not known."
        ),
        "link_max_speed_transfers_per_second": gauge("Transfers per second on each lane that the function can do."),
        "link_max_lanes": gauge("Lanes that the function has."),
        "bridge_max_speed_transfers_per_second": gauge(
            "Transfers per second on each lane that the bridge before the function can do."
        ),
        "bridge_max_lanes": gauge("Lanes that the bridge before the function has."),
    },
    origins={
        "info": ["uevent", "numa_node", "/sys/class/net", "/sys/class/infiniband", "class and vendor of all functions"],
        "link_degraded": [f"{word}_{side.file}" for side in SIDES for word in ("current", "max")],
        **{side.now: [f"current_{side.file}"] for side in SIDES},
        **{side.most: [f"max_{side.file}"] for side in SIDES},
        **{side.bridge_most: [f"max_{side.file} of the bridge"] for side in SIDES},
    },
    details=[ending for side in SIDES for ending in (side.most, side.bridge_most)],
)

ERRORS = vocabulary.schema(
    "fabric_pci_",
    ("pci", "severity"),
    own={
        "aer_errors_total": counter(
            "Errors that the function reported (PCIe advanced error reporting): correctable ones cost time, nonfatal"
            " ones a transaction, fatal ones the link. Absent where the firmware keeps them to itself."
        )
    },
    origins={"aer_errors_total": list(SEVERITIES.values())},
)

Read = TypeVar("Read")


class PciOptions(Options, frozen=True):
    """Configuration of `sources.pci`; include and exclude are PCI addresses."""

    interval: Duration = Duration(60.0)


class Found(NamedTuple):
    """A function: its folder, the network and RDMA devices on it, and the GPUs near it."""

    folder: Path
    devices: list[str]
    gpus: list[str]


class FunctionReading(NamedTuple):
    """What one read of a function gave: values by ending, errors by severity, and what failed."""

    epoch: int
    values: dict[str, Value | None]
    errors: dict[str, int]
    failures: list[Failure]


class PciSource:
    """Reads the PCI functions of this host's ports."""

    name = "pci"
    target = ""
    changed: asyncio.Event | None = None

    def __init__(self, options: PciOptions, host: Host) -> None:
        """Take the configuration and where sysfs is."""
        self.interval = float(options.interval)
        self.settings = self._options = options
        self._host = host
        self._serial = BlockingCalls("pci", CALL_DEADLINE, host.sysfs / "bus" / "pci")
        self._keeper = RowKeeper(SCHEMA.labels)
        self._error_keeper = RowKeeper(ERRORS.labels)

    async def applies(self) -> bool:
        """Tell whether any device that is wanted sits on PCI."""
        return bool(await self._find())

    async def read(self) -> Reading:
        """Read all functions; they fail alone."""
        found = await self._find()
        now = monotonic()
        calls = [(address, partial(read_function, self._host.name, function)) for address, function in found.items()]
        results = await self._serial.run(calls)
        table, errors = TableBuilder(SCHEMA), TableBuilder(ERRORS)
        epochs, failures = [], []
        for address in found:
            result = results[address]
            if isinstance(result, FunctionReading):
                epochs.append(result.epoch)
                table.row((address,), result.values)
                for severity, count in result.errors.items():
                    errors.row((address, severity), {"aer_errors_total": count})
                failures += result.failures
            elif not isinstance(result, FileNotFoundError):  # which is how a function goes that is pulled
                failures.append(failure_of(address, result, found[address].folder))
        of_function = dict(zip((address for (address,) in table.keys), epochs, strict=True))
        tables = [
            table.table(self._keeper, now, epochs=epochs),
            errors.table(self._error_keeper, now, epochs=[of_function[address] for address, _ in errors.keys]),
        ]
        return Reading([one for one in tables if len(one.rows)], failures)

    async def close(self) -> None:
        """Let the thread end."""
        self._serial.close()

    async def _find(self) -> Mapping[str, Found]:
        """Look for functions, in the order of their addresses.

        Raises:
            SourceError: They cannot be listed.
        """
        return await listed(self._serial, SCAN, partial(find_functions, self._host.sysfs, self._options.matches))


def find_functions(sysfs: Path, wants: Callable[[str], bool]) -> dict[str, Found]:
    """Find the PCI functions that network and RDMA devices sit on; blocks.

    Virtual ones are left out where the function of their port is here too: there may be hundreds, all behind its link.

    Args:
        sysfs: Root of sysfs.
        wants: Tells by its address whether a function may be touched.

    Raises:
        OSError: A folder cannot be listed.
    """
    devices: dict[Path, list[Path]] = {}
    for name in CLASSES:
        for device in _entries(sysfs / "class" / name):
            function = pci_function(device)
            if function is not None and wants(function.name):
                devices.setdefault(function, []).append(device)
    functions = sorted((one for one in devices if not os.path.lexists(one / "physfn")), key=lambda one: one.name)
    gpus = _find_gpus(sysfs) if functions else {}
    return {one.name: Found(one, _names(devices[one]), nearest(upstream_path(one), gpus)) for one in functions}


def _entries(folder: Path) -> Iterator[Path]:
    """List a folder, which may be lacking."""
    with suppress(FileNotFoundError):
        yield from folder.iterdir()


def _names(devices: Sequence[Path]) -> list[str]:
    """Name the devices on one function, without those that stand for virtual functions: there may be hundreds."""
    net = [one for one in devices if one.parent.name == "net"]
    several = len(net) > 1  # older kernels wait for a lock to tell the name, so one alone is not asked
    hidden = {one for one in net if several and is_representor(read_text(one / "phys_port_name"))}
    return sorted({one.name for one in devices if one not in hidden})


def _find_gpus(sysfs: Path) -> dict[str, list[str]]:
    """Give the bridges above each GPU."""
    return {
        function.name: upstream_path(Path(os.path.realpath(function)))
        for function in _entries(sysfs / "bus" / "pci" / "devices")
        if read_text(function / "class")[: len("0x0300")] in GPUS.get(read_text(function / "vendor"), ())
        and not os.path.lexists(function / "physfn")
    }


def nearest(from_host: Sequence[str], others: Mapping[str, Sequence[str]]) -> list[str]:
    """Name those that share the longest way from the host; none where nobody shares any.

    Args:
        from_host: The bridges above one, from the host's down.
        others: Those above each of the others.
    """
    shared = {
        name: sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(from_host, other, strict=False)))
        for name, other in others.items()
    }
    longest = max(shared.values(), default=0)
    return sorted(name for name, length in shared.items() if length == longest > 0)


@dataclass(slots=True)
class _Files:
    """Reads files of one function and its bridge, and keeps what failed."""

    address: str
    failures: list[Failure] = field(default_factory=list)

    def read(self, path: Path, parse: Callable[[bytes], Read]) -> Read | None:
        """Read one file; None where it is lacking, tells nothing, or failed."""
        try:
            return parse(read_small(path))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            self.failures.append(failure_of(self.address, error, path))
            return None


def read_function(host: str, found: Found) -> FunctionReading:
    """Read the files of one function; blocks. What cannot be read is said in the reading and costs nothing else.

    Raises:
        FileNotFoundError: The function is gone.
    """
    folder, devices, gpus = found
    epoch = folder.stat().st_ino
    files = _Files(folder.name)
    above = upstream_bridge(folder)
    values: dict[str, Value | None] = {}
    if not is_virtual_function(folder) and read_text(folder / "power" / "runtime_status") != "suspended":
        values |= _read_link(files, folder, above)
        values["link_degraded"] = degraded(values)
    values["info"] = (
        host,
        ",".join(devices),
        files.read(folder / "numa_node", _numa_node) or "",
        ",".join(gpus),
        "" if above is None else above.name,
        bus_device_driver(folder),
    )
    counts = {severity: files.read(folder / path, parse_aer_errors) for severity, path in SEVERITIES.items()}
    errors = {severity: count for severity, count in counts.items() if count is not None}
    return FunctionReading(epoch, values, errors, files.failures)


def _read_link(files: _Files, folder: Path, above: Path | None) -> dict[str, Value | None]:
    """Read what the link is, and what its two ends can do."""
    values: dict[str, Value | None] = {}
    for side in SIDES:
        values[side.now] = files.read(folder / f"current_{side.file}", side.parse)
        values[side.most] = files.read(folder / f"max_{side.file}", side.parse)
        if above is not None:
            values[side.bridge_most] = files.read(above / f"max_{side.file}", side.parse)
    return values


def degraded(values: Mapping[str, Value | None]) -> int | None:
    """Tell whether a link is less than both of its ends can do, in speed or lanes; None where one is not known."""
    verdict = 0
    for side in SIDES:
        found = [values.get(ending) for ending in (side.now, side.most, side.bridge_most)]
        numbers = [value for value in found if isinstance(value, int | float)]
        if len(numbers) < len(found):
            return None
        verdict |= int(numbers[0] < min(numbers[1:]))
    return verdict


def _numa_node(text: bytes) -> str:
    """Read `numa_node`; empty for -1, which is a machine that does not tell.

    Raises:
        ValueError: It is no number.
    """
    node = int(text)
    return "" if node < 0 else str(node)


def _build(options: PciOptions, host: Host) -> list[Source]:
    return [PciSource(options, host)]


DEFINITION = Definition("pci", PciOptions, (SCHEMA, ERRORS), _build)
