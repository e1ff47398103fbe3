"""The tables of RDMA ports and devices, made of what was read of each."""

from collections.abc import Sequence
from operator import is_

from exporter.core.table import (
    Column,
    LabelValues,
    RowKeeper,
    Schema,
    Table,
)
from exporter.sources.common.host_ports import own_times
from exporter.sources.rdma.device import DeviceReading
from exporter.sources.rdma.files import Cell
from exporter.sources.rdma.metrics import (
    DEVICE,
    LINK,
    RAW,
    SCHEMA,
)
from exporter.sources.rdma.port import PortReading


class RdmaTables:
    """Makes the tables of each read; what did not change since the last is the very same object."""

    def __init__(self) -> None:
        """Start with no table."""
        self._parts: dict[tuple[Schema, str, tuple[Cell, ...]], str] = {}
        self._keepers: dict[tuple[Schema, str], RowKeeper] = {}
        self._columns: dict[tuple[Schema, str], tuple[Sequence[list[int | None]], dict[str, Column]]] = {}

    def make(self, readings: Sequence[DeviceReading]) -> list[Table]:
        """Make the tables of ports, of their raw counters, and of devices."""
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

    def _part(self, schema: Schema, driver: str, layout: tuple[Cell, ...]) -> str:
        """Name the table of all ports, or devices, of a driver whose counters are of the same widths and units."""
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
            times=own_times(now, [reading.time for reading in readings]),
            epochs=[port.epoch for port in ports],
            kinds=[port.kind for port in ports],
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
            times=own_times(now, [reading.time for reading in readings]),
            epochs=[reading.device.epoch for reading in readings],
            part=part,
        )

    def _counters(
        self, schema: Schema, part: str, layout: Sequence[Cell], values: Sequence[list[int | None]]
    ) -> dict[str, Column]:
        """Turn the values of ports into columns.

        A column that did not change is the very same object as last time, which costs those who read it nothing.
        """
        before, last = self._columns.get((schema, part), ([], {}))
        if len(before) == len(values) and all(map(is_, before, values)):
            return dict(last)
        columns: dict[str, Column] = {}
        for cell, cells in zip(layout, zip(*values, strict=False), strict=False):  # behind the cells stand summands
            ending = cell.ending
            old = last.get(ending)
            if old is not None and old.values == cells:
                columns[ending] = old
            elif cells.count(None) != len(cells):
                metric = schema.metrics[ending]
                columns[ending] = Column(metric, cells, cell.width, cell.saturates, cell.factor, cell.divisor)
        self._columns[schema, part] = (values, columns)
        return dict(columns)

    def _raw(self, readings: Sequence[PortReading]) -> Table | None:
        """Make the table of counters under the driver's own names; None where there are none."""
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
