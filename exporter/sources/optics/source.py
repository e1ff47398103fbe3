"""Optical modules and cables in the ports of this host: temperature, supply, light and current of each lane.

Modules are read over i2c through the driver, which takes a while and can delay packets, so the source is off unless it
is switched on, reads once a minute at most, and lets the other calls into NICs go first between two devices. Flags that
reading would clear are never read. Devices that are down are read like the others: their module may tell why. A port
of InfiniBand is asked through its device for IP, where its driver answers there.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from time import monotonic

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
    SourceError,
)
from exporter.core.table import (
    RowKeeper,
    Schema,
    Table,
    TableBuilder,
)
from exporter.core.vocabulary import gauge, info
from exporter.linux.netlink.rtnetlink import Link
from exporter.linux.nic_reader import NicReader
from exporter.linux.optics.module import (
    OF_LANES,
    QUANTITIES,
    Levels,
    Module,
)
from exporter.linux.pci import is_virtual_function
from exporter.sources.common.failures import failure_of
from exporter.sources.common.host_ports import (
    is_hardware,
    is_infiniband_port,
    list_devices,
    nic_place,
    nic_reader,
)
from exporter.sources.optics.cage import Cage, CageReading

LEAST_INTERVAL = 60.0
"""Seconds: a read costs some hundred milliseconds of i2c, in which some NICs hold up packets."""

DEVICE_DEADLINE = 2.0
"""Seconds that the requests to one device may take."""

_VALUES = ["ETHTOOL_MSG_MODULE_EEPROM_GET: SFF-8472 A2h, SFF-8636 lower memory, CMIS lower memory and page 11h"]
_LEVELS = ["ETHTOOL_MSG_MODULE_EEPROM_GET: SFF-8472 A2h, SFF-8636 page 03h, CMIS page 02h"]

_STATE = ["ETHTOOL_MSG_MODULE_EEPROM_GET: CMIS lower memory"]

_WORDS = {
    "temperature_celsius": "temperature inside the module",
    "voltage_volts": "supply voltage of the module",
    "receive_power_watts": "light that comes in on a lane",
    "transmit_power_watts": "light that goes out on a lane",
    "bias_amperes": "current of a lane's laser",
}

MODULE = vocabulary.schema(
    "fabric_nic_",
    ("device",),
    (),
    {
        "module_info": info(
            "The module or cable in the port, in its own words.", "kind", "vendor", "part", "serial", "revision"
        ),
        "module_state_info": info(
            "What the module is doing, of those that speak CMIS: low_power, powering_up, ready, powering_down, fault.",
            "state",
        ),
        "module_fault": gauge("Whether the module says that it has a fault and does not work: 1 or 0."),
        "module_temperature_celsius": gauge("Temperature inside the module."),
        "module_voltage_volts": gauge("Supply voltage of the module, nominally 3.3."),
    },
    origins={
        "module_info": ["ETHTOOL_MSG_MODULE_EEPROM_GET: SFF-8472 A0h, SFF-8636 and CMIS page 00h"],
        "module_state_info": _STATE,
        "module_fault": _STATE,
        "module_temperature_celsius": _VALUES,
        "module_voltage_volts": _VALUES,
    },
)

LANE = vocabulary.schema(
    "fabric_nic_",
    ("device", "lane"),
    (),
    {
        "module_lane_receive_power_watts": gauge("Light that comes in on the lane; 0 where there is none."),
        "module_lane_transmit_power_watts": gauge("Light that goes out on the lane; 0 where there is none."),
        "module_lane_bias_amperes": gauge("Current of the lane's laser; 0 while it is off: no light is expected then."),
    },
    origins={
        "module_lane_receive_power_watts": _VALUES,
        "module_lane_transmit_power_watts": _VALUES,
        "module_lane_bias_amperes": _VALUES,
    },
)

THRESHOLD = vocabulary.schema(
    "fabric_nic_",
    ("device", "level"),
    (),
    {
        f"module_threshold_{quantity.name}": gauge(
            f"Limit that the module itself sets for the {_WORDS[quantity.name]}."
        )
        for quantity in QUANTITIES
    },
    origins={f"module_threshold_{quantity.name}": _LEVELS for quantity in QUANTITIES},
)


class OpticsOptions(Options, frozen=True, kw_only=True):
    """Configuration of `sources.optics`; include and exclude are names of devices."""

    enabled: bool = False
    interval: Duration = Duration(LEAST_INTERVAL)

    def __post_init__(self) -> None:
        """See that modules are not read too often."""
        if self.interval < LEAST_INTERVAL:
            raise ValueError(
                f"interval is {self.interval:g}s; reading modules can delay packets: give {LEAST_INTERVAL:g}s or longer"
            )
        super().__post_init__()


class OpticsSource:
    """Reads the modules of this host's network devices."""

    name = "optics"
    target = ""
    changed: asyncio.Event | None = None

    def __init__(self, options: OpticsOptions, host: Host, open_reader: Callable[[], NicReader]) -> None:
        """Take the configuration and how to open what is read; opening waits until the loop runs."""
        self.interval = float(options.interval)
        self.settings = self._options = options
        self._net = host.sysfs / "class" / "net"
        self._open = open_reader
        self._reader: NicReader | None = None
        self._serial = BlockingCalls("optics", DEVICE_DEADLINE, nic_place(host))
        self._cages: dict[str, Cage] = {}
        self._keepers = {schema: RowKeeper(schema.labels) for schema in (MODULE, LANE, THRESHOLD)}

    async def applies(self) -> bool:
        """Tell whether there is any device to read."""
        return bool(await self._links())

    async def read(self) -> Reading:
        """Read all modules; devices fail alone."""
        links = await self._links()
        for gone in self._cages.keys() - {link.name for link in links} - self._serial.hanging:
            del self._cages[gone]
        time = monotonic()
        modules: dict[str, Module] = {}
        failures = self._left_out()
        for link in links:  # a turn for each: between two, others have theirs
            result = (await self._serial.run([(link.name, partial(self._read_cage, link))]))[link.name]
            if isinstance(result, CageReading):
                failures += result.failures
                if result.module is not None:
                    modules[link.name] = result.module
            else:
                failures.append(failure_of(link.name, result, link.name))
        return Reading(self._tables(modules, time), failures)

    async def close(self) -> None:
        """Close the sockets."""
        self._serial.close()
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    async def _links(self) -> list[Link]:
        """Dump the links and keep those that may have a module.

        Raises:
            SourceError: The dump failed.
        """
        try:
            if self._reader is None:
                self._reader = self._open()
            self._reader.events()  # nobody waits for them here; left alone, they would fill the socket
        except OSError as error:
            raise SourceError("unreadable", f"rtnetlink: {error}") from None
        return await list_devices(self._serial, "links", partial(self._list, self._reader), "rtnetlink")

    def _left_out(self) -> list[Failure]:
        """Say of which devices the last dump could not tell what they are."""
        left_out = {} if self._reader is None else self._reader.left_out()
        return [failure_of(name, error, name) for name, error in left_out.items() if self._options.matches(name)]

    def _list(self, reader: NicReader) -> list[Link]:
        """List the devices that may have a module; runs in the thread."""
        return [link for link in reader.links() if self._may_have_module(link)]

    def _may_have_module(self, link: Link) -> bool:
        """Tell ports of hardware from all else: a virtual function or a representor would give its port's module."""
        of_card = link.parent_dev_bus_name == "pci" and (is_hardware(link) or is_infiniband_port(link))
        wanted = of_card and self._options.matches(link.name)
        return wanted and not is_virtual_function(self._net / link.name / "device")

    def _read_cage(self, link: Link) -> CageReading:
        """Read one module; runs in the thread."""
        reader = self._reader
        if reader is None:
            return CageReading()  # closed meanwhile
        cage = self._cages.get(link.name)
        if cage is None or cage.ifindex != link.ifindex:
            cage = self._cages[link.name] = Cage(link.name, link.ifindex)
        return cage.read(reader, carrier=link.carrier)

    def _tables(self, modules: dict[str, Module], time: float) -> list[Table]:
        """Make the tables; `time` is when reading began."""
        builders = {schema: TableBuilder(schema) for schema in self._keepers}
        for device, module in modules.items():
            _add(device, module, builders)
        return [builder.table(self._keepers[schema], time) for schema, builder in builders.items() if builder.keys]


def _add(device: str, module: Module, builders: dict[Schema, TableBuilder]) -> None:
    """Add what a module has to the tables."""
    builders[MODULE].row(
        (device,),
        {
            "module_info": (module.kind, module.vendor, module.part, module.serial, module.revision),
            "module_state_info": None if module.state is None else (module.state,),
            "module_fault": None if module.state is None else int(module.state == "fault"),
            "module_temperature_celsius": module.temperature_celsius,
            "module_voltage_volts": module.voltage_volts,
        },
    )
    for lane in module.lanes:
        builders[LANE].row(
            (device, str(lane.number)),
            {f"module_lane_{quantity.name}": getattr(lane, quantity.name) for quantity in OF_LANES},
        )
    for level in Levels._fields:
        row = {f"module_threshold_{name}": getattr(levels, level) for name, levels in module.thresholds.items()}
        if row:
            builders[THRESHOLD].row((device, level), row)


def _build(options: OpticsOptions, host: Host) -> list[Source]:
    return [OpticsSource(options, host, nic_reader(host))]


DEFINITION = Definition("optics", OpticsOptions, (MODULE, LANE, THRESHOLD), _build)
