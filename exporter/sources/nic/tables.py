"""Readings of network devices to tables: for each driver, whose counters share their widths, by port and by priority.

Here is decided whose count a metric is: the driver's where it counts on the wire, the kernel's where it does not.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import chain

from exporter.core.table import (
    Column,
    Kind,
    LabelValues,
    RowKeeper,
    Schema,
    Table,
    Value,
)
from exporter.linux.ethtool import Driver
from exporter.linux.netlink.rtnetlink import Link
from exporter.linux.pci import ADDRESS
from exporter.sources.common.driver_statistics import Statistic
from exporter.sources.common.host_ports import PortPosition, number_rails, row_times
from exporter.sources.nic.device import DeviceReading
from exporter.sources.nic.drivers import DRIVERS, INFINIBAND
from exporter.sources.nic.metrics import (
    INSTEAD,
    KERNEL,
    PRIORITY,
    QUEUE,
    RATE_LIMIT,
    RAW,
    SCHEMA,
)
from exporter.sources.nic.queues import Queues

NARROW = {"link_down_total", "carrier_changes_total"}
"""What the kernel counts in 32 bits."""

COUNTED = {
    "transmit_queue_drops_total": "drops",
    "transmit_queue_overlimits_total": "overlimits",
    "transmit_queue_requeues_total": "requeues",
    "transmit_queue_backlog_bytes": "backlog_bytes",
}
"""What is exported of how a device queues, by the names that `Queueing` has for it."""


class NicTables:
    """Makes the tables, and keeps the text of their rows from poll to poll."""

    def __init__(self, host: str, rails: Mapping[str, str], unread: Collection[str] = ()) -> None:
        """Take the host's name, the rails of the configuration by device, and endings that nobody is shown."""
        self._host = host
        self._rails = rails
        self._kernel = {ending: name for ending, name in KERNEL.items() if ending not in unread}
        self._keepers: dict[tuple[Schema, str], RowKeeper] = {}

    def make(
        self,
        links: Mapping[str, Link],
        readings: Mapping[str, DeviceReading],
        now: float,
        queues: Queues | None = None,
    ) -> list[Table]:
        """Make the tables.

        Args:
            links: By device.
            readings: By device.
            now: When the links were dumped.
            queues: How devices queue; None where that is not known.
        """
        infos = self._infos(links, readings)
        parts: dict[str, list[str]] = {}
        for name in links:
            driver = readings[name].driver
            parts.setdefault(driver.name if driver else "", []).append(name)
        tables = []
        for part, names in parts.items():
            known = DRIVERS.get(part) or INFINIBAND.get(part)
            rows = [self._row(links[name], readings[name], queues) for name in names]
            columns = _columns(SCHEMA, rows, known.port if known else ())
            columns["info"] = Column(SCHEMA.metrics["info"], [infos[name] for name in names])
            kinds = [readings[name].kind for name in names]
            keys: list[LabelValues] = [(name,) for name in names]
            tables.append(self._table(SCHEMA, part, keys, columns, links, readings, now, kinds))
            finer: list[LabelValues] = [(name, number) for name in names for number in readings[name].priority]
            if known and finer:
                cells: list[Mapping[str, Value | None]] = [readings[name].priority[number] for name, number in finer]
                columns = _columns(PRIORITY, cells, known.priority)
                tables.append(self._table(PRIORITY, part, finer, columns, links, readings, now))
            raw: list[LabelValues] = [(name, statistic) for name in names for statistic in readings[name].raw]
            if raw:
                values = [readings[name].raw[statistic] for name, statistic in raw]
                columns = {"raw": Column(RAW.metrics["raw"], values)}
                tables.append(self._table(RAW, part, raw, columns, links, readings, now))
        if queues is not None:
            queued = {name: link.ifindex for name, link in links.items() if link.ifindex in queues.found}
            if queued:
                tables.append(self._queue_table(queued, queues))
        return tables

    def _queue_table(self, queued: Mapping[str, int], queues: Queues) -> Table:
        """Make the table of what queues count, for devices that have one; a replaced one counts anew."""
        found = [queues.found[index] for index in queued.values()]
        cells: dict[str, list[Value | None]] = {
            ending: [getattr(one, field) for one in found] for ending, field in COUNTED.items()
        }
        columns = {ending: Column(QUEUE.metrics[ending], values, 32) for ending, values in cells.items()}
        columns["transmit_queue_info"] = Column(QUEUE.metrics["transmit_queue_info"], [(one.kind,) for one in found])
        keys: list[LabelValues] = [(name,) for name in queued]
        rows = self._keepers.setdefault((QUEUE, ""), RowKeeper(QUEUE.labels)).rows(keys)
        epochs = [(index, one.kind, one.handle) for index, one in zip(queued.values(), found, strict=True)]
        return Table(QUEUE, rows, columns, queues.time, epochs=epochs)

    def _table(
        self,
        schema: Schema,
        part: str,
        keys: Sequence[LabelValues],
        columns: Mapping[str, Column],
        links: Mapping[str, Link],
        readings: Mapping[str, DeviceReading],
        now: float,
        kinds: Sequence[str | None] | None = None,
    ) -> Table:
        """Put a table together, whose keys begin with the name of the device."""
        times = [now if (time := readings[key[0]].time) is None else time for key in keys]
        return Table(
            schema,
            self._keepers.setdefault((schema, part), RowKeeper(schema.labels)).rows(keys),
            columns,
            now,
            times=row_times(now, times),
            epochs=[links[key[0]].ifindex for key in keys],
            kinds=kinds,
            part=part,
        )

    def _infos(self, links: Mapping[str, Link], readings: Mapping[str, DeviceReading]) -> dict[str, LabelValues]:
        """Give the values of the info's labels for each device."""
        seats = [
            PortPosition(readings[name].kind, _pci(link, readings[name].driver), name) for name, link in links.items()
        ]
        rails = number_rails(seats, self._rails)
        return {
            seat.device: (self._host, rail, seat.pci, *_facts(links[seat.device], readings[seat.device]))
            for seat, rail in zip(seats, rails, strict=True)
        }

    def _row(self, link: Link, reading: DeviceReading, queues: Queues | None) -> dict[str, Value | None]:
        """Put together what one device has, by ending."""
        row: dict[str, Value | None] = {}
        if link.kind != "bond":  # a bond carries what its members carry: its bytes would be counted twice
            row = {ending: link.stats.get(name) for ending, name in self._kernel.items()}
            row |= {ending: link.stats.get(name) for ending, name in INSTEAD.items() if ending not in reading.own}
            if "link_down_total" not in reading.own:
                row["link_down_total"] = link.carrier_down_count
        row |= {
            "carrier_changes_total": link.carrier_changes,
            "mtu_bytes": link.mtu,
            "link_up": int(link.carrier and link.operstate in {None, "up", "unknown"}),
        }
        queueing = None if queues is None else queues.found.get(link.ifindex)
        if queueing is not None and queueing.rate_bytes_per_second is not None:
            row[RATE_LIMIT] = queueing.rate_bytes_per_second
        return row | dict(reading.port)


def _pci(link: Link, driver: Driver | None) -> str:
    if link.parent_dev_bus_name == "pci":
        return link.parent_dev_name or ""
    # Other buses have other addresses, and the driver tells those too.
    return driver.bus if driver is not None and ADDRESS.fullmatch(driver.bus) else ""


def _facts(link: Link, reading: DeviceReading) -> LabelValues:
    """Give the values of the info's labels from `mac` on."""
    driver = reading.driver
    return (
        link.mac or "",
        driver.name if driver else "",
        driver.firmware if driver else "",
        link.phys_port_name or "",
        "" if link.kind == "bond" else reading.traffic,
    )


def _columns(
    schema: Schema, rows: Sequence[Mapping[str, Value | None]], statistics: Sequence[Statistic]
) -> dict[str, Column]:
    """Turn rows into columns, with the widths that the driver's counters have."""
    declared = {one.ending: one for one in statistics}
    columns = {}
    for ending in dict.fromkeys(chain.from_iterable(rows)):
        values = [row.get(ending) for row in rows]
        one = declared.get(ending) or Statistic(ending, (), 32 if ending in NARROW else 64)
        metric = schema.metrics[ending]
        if metric.kind is Kind.GAUGE and one.divisor != 1:  # counters stay raw until they are extended
            shares = [value / one.divisor if isinstance(value, int) else None for value in values]
            values = [None if share is None or share > 1 else share for share in shares]  # more than all is nonsense
        columns[ending] = Column(metric, values, one.width, divisor=one.divisor)
    return columns
