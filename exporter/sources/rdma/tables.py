"""Tables of RDMA ports and devices, built from their readings."""

from collections.abc import Sequence
from operator import is_

from exporter.core.table import (
    Column,
    LabelValues,
    RowKeeper,
    Schema,
    Table,
)
from exporter.linux.character_devices import CONNECTIONS, MAD, SUBNET_MANAGER, VERBS, CharacterDevice, CharacterDevices
from exporter.sources.common.host_ports import row_times
from exporter.sources.rdma.counter_files import CounterSpec
from exporter.sources.rdma.device import DeviceReading, PortReading
from exporter.sources.rdma.metrics import (
    CHARACTER_DEVICES,
    DEVICE,
    LINK,
    RAW,
    SCHEMA,
)

BOND = "_bond_"
"""Part of the name of an RDMA device whose ports are bonded."""


class RdmaTables:
    """Builds the tables of each read; rows and columns that did not change are the same objects as last time."""

    def __init__(self) -> None:
        self._parts: dict[tuple[Schema, str, tuple[CounterSpec, ...]], str] = {}
        self._keepers: dict[tuple[Schema, str], RowKeeper] = {}
        self._columns: dict[tuple[Schema, str], tuple[Sequence[list[int | None]], dict[str, Column]]] = {}

    def make(self, readings: Sequence[DeviceReading]) -> list[Table]:
        """Return the tables of ports, of devices, and of ports' raw counters."""
        ports: dict[str, list[PortReading]] = {}
        devices: dict[str, list[DeviceReading]] = {}
        for reading in readings:
            driver = reading.device.driver
            for port in reading.ports:
                ports.setdefault(self._part(SCHEMA, driver, port.port.counters.plan.layout), []).append(port)
            if reading.device.counters is not None and any(value is not None for value in reading.values):
                devices.setdefault(self._part(DEVICE, driver, reading.device.counters.plan.layout), []).append(reading)
        tables = [self._ports(part, found) for part, found in ports.items()]
        tables += [self._devices(part, found) for part, found in devices.items()]
        raw = self._raw([port for reading in readings for port in reading.ports if port.port.counters.plan.raw])
        return tables if raw is None else [*tables, raw]

    def character_devices(self, readings: Sequence[DeviceReading], devices: CharacterDevices) -> Table | None:
        """Return the table of the character devices of ports that are missing; None if none is."""
        rows: list[tuple[LabelValues, CharacterDevice]] = []
        for port in [port.port for reading in readings for port in reading.ports]:
            labels = port.device, str(port.number)
            rows.append(((*labels, VERBS), CharacterDevice(VERBS, port.device)))
            if port.has_mads:
                rows.append(((*labels, MAD), CharacterDevice(MAD, port.device, port.number)))
            manager = CharacterDevice(SUBNET_MANAGER, port.device, port.number)
            rows += [((*labels, SUBNET_MANAGER), manager)] if manager in devices.found else []
        rows += [(("", "", CONNECTIONS), CharacterDevice(CONNECTIONS))] if rows else []
        missing = [labels for labels, device in rows if devices.has(device) is False]
        if not missing:
            return None
        metric = CHARACTER_DEVICES.metrics["character_device_missing"]
        columns = {"character_device_missing": Column(metric, [1] * len(missing))}
        return Table(CHARACTER_DEVICES, self._keeper(CHARACTER_DEVICES, "").rows(missing), columns, readings[0].time)

    def _part(self, schema: Schema, driver: str, layout: tuple[CounterSpec, ...]) -> str:
        """Return the table's name for a driver's ports, or devices, whose counters have the same widths and units."""
        part = self._parts.get((schema, driver, layout))
        if part is None:
            number = sum(known[:2] == (schema, driver) for known in self._parts)
            part = self._parts[schema, driver, layout] = f"{driver} {number}" if number else driver
        return part

    def _ports(self, part: str, readings: Sequence[PortReading]) -> Table:
        ports = [reading.port for reading in readings]
        metrics = SCHEMA.metrics
        columns = self._counters(SCHEMA, part, ports[0].counters.plan.layout, [reading.values for reading in readings])
        for ending in LINK:
            columns[ending] = Column(metrics[ending], [reading.link[ending] for reading in readings])
        columns["info"] = Column(metrics["info"], [port.info for port in ports])
        now = readings[0].time
        return Table(
            SCHEMA,
            self._keeper(SCHEMA, part).rows([(port.device, str(port.number)) for port in ports]),
            columns,
            time=now,
            times=row_times(now, [reading.time for reading in readings]),
            epochs=[port.epoch for port in ports],
            kinds=[port.kind for port in ports],
            members=_members([port.device for port in ports]),
            part=part,
        )

    def _devices(self, part: str, readings: Sequence[DeviceReading]) -> Table:
        counters = readings[0].device.counters
        layout = () if counters is None else counters.plan.layout
        now = readings[0].time
        return Table(
            DEVICE,
            self._keeper(DEVICE, part).rows([(reading.device.name,) for reading in readings]),
            self._counters(DEVICE, part, layout, [reading.values for reading in readings]),
            time=now,
            times=row_times(now, [reading.time for reading in readings]),
            epochs=[reading.device.epoch for reading in readings],
            part=part,
        )

    def _counters(
        self, schema: Schema, part: str, layout: Sequence[CounterSpec], values: Sequence[list[int | None]]
    ) -> dict[str, Column]:
        """Return the columns of the values of all ports; an unchanged column is the same object as last time."""
        before, last = self._columns.get((schema, part), ([], {}))
        if len(before) == len(values) and all(map(is_, before, values)):
            return dict(last)
        columns: dict[str, Column] = {}
        # Values beyond the layout are summands and raw counters.
        for spec, column in zip(layout, zip(*values, strict=False), strict=False):
            ending = spec.ending
            old = last.get(ending)
            if old is not None and old.values == column:
                columns[ending] = old
            elif column.count(None) != len(column):
                metric = schema.metrics[ending]
                columns[ending] = Column(metric, column, spec.width, spec.saturates, spec.factor, spec.divisor)
        self._columns[schema, part] = (values, columns)
        return dict(columns)

    def _raw(self, readings: Sequence[PortReading]) -> Table | None:
        """Return the table of counters under the driver's own names; None if there are none."""
        keys: list[LabelValues] = []
        values: list[int | None] = []
        for reading in readings:
            port = reading.port
            for name, place in port.counters.plan.raw:
                keys.append((port.device, str(port.number), name))
                values.append(reading.values[place])
        if not keys:
            return None
        rows = self._keeper(RAW, "").rows(keys)
        return Table(RAW, rows, {"raw": Column(RAW.metrics["raw"], values)}, readings[0].time)

    def _keeper(self, schema: Schema, part: str) -> RowKeeper:
        return self._keepers.setdefault((schema, part), RowKeeper(schema.labels))


def _members(devices: Sequence[str]) -> Sequence[int | None] | None:
    """Return the members of each device: a bond of ports, which mlx5 names `mlx5_bond_0`, has an unknown number."""
    return [None if BOND in name else 1 for name in devices] if any(BOND in name for name in devices) else None
