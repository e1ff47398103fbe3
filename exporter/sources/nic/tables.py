"""Tables of network devices: per driver, whose devices share counter widths, by port and by priority.

Each metric has the driver's counter where the driver counts on the wire, else the kernel's.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

from exporter.core.table import (
    Column,
    Kind,
    LabelValues,
    RowKeeper,
    Schema,
    Table,
    Value,
)
from exporter.linux.ethtool_ioctl import DriverInfo
from exporter.linux.netlink.rtnetlink import NetworkLink
from exporter.linux.pci import ADDRESS
from exporter.sources.common.driver_statistics import Statistic
from exporter.sources.common.host_ports import PortPosition, RailNumbers, row_times
from exporter.sources.nic.device import DeviceReading
from exporter.sources.nic.drivers import DRIVERS, INFINIBAND
from exporter.sources.nic.metrics import (
    PRIORITY,
    QUEUE,
    RAW,
    SCHEMA,
)
from exporter.sources.nic.origins import KERNEL, KERNEL_FALLBACK, RATE_LIMIT
from exporter.sources.nic.queueing_query import QueueingReading

KERNEL_32_BIT = frozenset({"link_down_total", "carrier_changes_total"})
"""Counters of the kernel with 32 bits."""

QUEUEING_FIELDS = MappingProxyType(
    {
        "transmit_queue_drops_total": "drops",
        "transmit_queue_overlimits_total": "overlimits",
        "transmit_queue_requeues_total": "requeues",
        "transmit_queue_backlog_bytes": "backlog_bytes",
    }
)
"""Metrics of a queueing discipline, by ending, with the field of `QueueingDiscipline`."""


class _Poll(NamedTuple):
    """What one poll returned, by device, and the time of its links."""

    links: Mapping[str, NetworkLink]
    readings: Mapping[str, DeviceReading]
    epochs: Mapping[str, int]
    now: float


class NicTables:
    """Makes the tables, and reuses the text of their rows from poll to poll."""

    def __init__(self, host: str, rails: Mapping[str, str], unread: Collection[str] = ()) -> None:
        """Store the host's name, the configured rails by device, and the endings that are not exported."""
        self._host = host
        self._rails = RailNumbers(rails)
        self._kernel = {ending: name for ending, name in KERNEL.items() if ending not in unread}
        self._keepers: dict[tuple[Schema, str], RowKeeper] = {}

    def make(
        self,
        links: Mapping[str, NetworkLink],
        readings: Mapping[str, DeviceReading],
        now: float,
        queueing: QueueingReading | None = None,
        epochs: Mapping[str, int] = MappingProxyType({}),
    ) -> list[Table]:
        """Make the tables.

        Args:
            links: Links by device.
            readings: Readings by device.
            now: Time of the dump of the links.
            queueing: Queueing disciplines; None if not known.
            epochs: By device what changes when its counters start again; by default the ifindex.
        """
        poll = _Poll(links, readings, {name: epochs.get(name, one.ifindex) for name, one in links.items()}, now)
        infos = self._infos(links, readings)
        by_driver: dict[str, list[str]] = {}
        for name in links:
            driver = readings[name].driver
            by_driver.setdefault(driver.name if driver else "", []).append(name)
        tables = []
        for part, names in by_driver.items():
            known = DRIVERS.get(part) or INFINIBAND.get(part)
            rows = [self._row(links[name], readings[name], queueing) for name in names]
            columns = _columns(SCHEMA, rows, known.port if known else ())
            columns["info"] = Column(SCHEMA.metrics["info"], [infos[name] for name in names])
            kinds = [readings[name].kind for name in names]
            keys: list[LabelValues] = [(name,) for name in names]
            tables.append(self._table(SCHEMA, part, keys, columns, poll, kinds))
            priority_keys: list[LabelValues] = [(name, number) for name in names for number in readings[name].priority]
            if known and priority_keys:
                cells: list[Mapping[str, Value | None]] = [
                    readings[name].priority[number] for name, number in priority_keys
                ]
                columns = _columns(PRIORITY, cells, known.priority)
                tables.append(self._table(PRIORITY, part, priority_keys, columns, poll))
            raw_keys: list[LabelValues] = [(name, statistic) for name in names for statistic in readings[name].raw]
            if raw_keys:
                values = [readings[name].raw[statistic] for name, statistic in raw_keys]
                columns = {"raw": Column(RAW.metrics["raw"], values)}
                tables.append(self._table(RAW, part, raw_keys, columns, poll))
        if queueing is not None:
            ifindexes = {name: link.ifindex for name, link in links.items() if link.ifindex in queueing.disciplines}
            if ifindexes:
                tables.append(self._queue_table(ifindexes, queueing))
        return tables

    def _queue_table(self, ifindexes: Mapping[str, int], queueing: QueueingReading) -> Table:
        """Make the table of queueing disciplines, for devices that have one; a replaced one has another epoch."""
        found = [queueing.disciplines[index] for index in ifindexes.values()]
        cells: dict[str, list[Value | None]] = {
            ending: [getattr(one, field) for one in found] for ending, field in QUEUEING_FIELDS.items()
        }
        columns = {ending: Column(QUEUE.metrics[ending], values, 32) for ending, values in cells.items()}
        columns["transmit_queue_info"] = Column(QUEUE.metrics["transmit_queue_info"], [(one.kind,) for one in found])
        keys: list[LabelValues] = [(name,) for name in ifindexes]
        rows = self._keepers.setdefault((QUEUE, ""), RowKeeper(QUEUE.labels)).rows(keys)
        epochs = [(index, one.kind, one.handle) for index, one in zip(ifindexes.values(), found, strict=True)]
        return Table(QUEUE, rows, columns, queueing.time, epochs=epochs)

    def _table(
        self,
        schema: Schema,
        part: str,
        keys: Sequence[LabelValues],
        columns: Mapping[str, Column],
        poll: _Poll,
        kinds: Sequence[str | None] | None = None,
    ) -> Table:
        """Make a table whose keys begin with the name of the device."""
        times = [poll.now if (time := poll.readings[key[0]].time) is None else time for key in keys]
        return Table(
            schema,
            self._keepers.setdefault((schema, part), RowKeeper(schema.labels)).rows(keys),
            columns,
            poll.now,
            times=row_times(poll.now, times),
            epochs=[poll.epochs[key[0]] for key in keys],
            kinds=kinds,
            part=part,
            members=[None if poll.links[key[0]].kind else 1 for key in keys],
        )

    def _infos(self, links: Mapping[str, NetworkLink], readings: Mapping[str, DeviceReading]) -> dict[str, LabelValues]:
        """Return the values of the info's labels by device."""
        seats = [
            PortPosition(readings[name].kind, _pci_address(link, readings[name].driver), name)
            for name, link in links.items()
        ]
        rails = self._rails.of(seats)
        return {
            seat.device: (self._host, rail, seat.pci, *_identity_labels(links[seat.device], readings[seat.device]))
            for seat, rail in zip(seats, rails, strict=True)
        }

    def _row(
        self, link: NetworkLink, reading: DeviceReading, queueing: QueueingReading | None
    ) -> dict[str, Value | None]:
        """Return the values of one device by ending."""
        row: dict[str, Value | None] = {}
        if link.kind != "bond":  # a bond's bytes are those of its members: they would be counted twice
            row = {ending: link.stats.get(name) for ending, name in self._kernel.items()}
            row |= {
                ending: link.stats.get(name) for ending, name in KERNEL_FALLBACK.items() if ending not in reading.own
            }
            if "link_down_total" not in reading.own:
                row["link_down_total"] = link.carrier_down_count
        row |= {
            "carrier_changes_total": link.carrier_changes,
            "mtu_bytes": link.mtu,
            "link_up": int(link.carrier and link.operstate in {None, "up", "unknown"}),
        }
        discipline = None if queueing is None else queueing.disciplines.get(link.ifindex)
        if discipline is not None and discipline.rate_bytes_per_second is not None:
            row[RATE_LIMIT] = discipline.rate_bytes_per_second
        return row | dict(reading.port)


def _pci_address(link: NetworkLink, driver: DriverInfo | None) -> str:
    if link.parent_dev_bus_name == "pci":
        return link.parent_dev_name or ""
    # On other buses the driver reports an address of another form.
    return driver.bus if driver is not None and ADDRESS.fullmatch(driver.bus) else ""


def _identity_labels(link: NetworkLink, reading: DeviceReading) -> LabelValues:
    """Return the values of the info's labels from `mac` on."""
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
    """Convert rows to columns, with the widths of the driver's counters."""
    declared = {one.ending: one for one in statistics}
    columns = {}
    for ending in dict.fromkeys(chain.from_iterable(rows)):
        values = [row.get(ending) for row in rows]
        one = declared.get(ending) or Statistic(ending, (), 32 if ending in KERNEL_32_BIT else 64)
        metric = schema.metrics[ending]
        if metric.kind is Kind.GAUGE and one.divisor != 1:  # counters are divided after they are extended to 64 bits
            shares = [value / one.divisor if isinstance(value, int) else None for value in values]
            values = [None if share is None or share > 1 else share for share in shares]  # a ratio above 1 is invalid
        columns[ending] = Column(metric, values, one.width, divisor=one.divisor)
    return columns
