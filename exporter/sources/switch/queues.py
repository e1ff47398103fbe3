"""Queue totals of a port: sums over its queues and the deepest one, where a switch reports them by queue only."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from exporter.core.table import Column, LabelValues
from exporter.sources.switch.merge import PartialTable
from exporter.sources.switch.metrics import PORTS, QUEUES

SUMS = MappingProxyType(
    {
        "ecn_marked_packets_total": ("queue_ecn_marked_packets_total",),
        "congestion_discards_total": ("queue_full_discards_total", "queue_early_discards_total"),
    }
)
"""Ending of the port's row to those of its queues that are added up."""

DEPTH, DEEPEST = "queue_depth_bytes", "deepest_queue_bytes"


class PortSums:
    """Sums over the queues of each port of one switch, from poll to poll.

    Queues that never had a value are not part of a sum. If a queue with an earlier value has none now, the sum is
    absent: otherwise it would decrease.
    """

    def __init__(self) -> None:
        self._counted: set[tuple[str, LabelValues]] = set()
        self._queue_keys: Sequence[LabelValues] = ()
        self._rows_by_port: Mapping[LabelValues, Sequence[int]] = {}
        self._keys: Sequence[LabelValues] = ()

    def columns(self, queues: PartialTable) -> tuple[Sequence[LabelValues], dict[str, Column]]:
        """Return keys `(port,)`, and columns of PORTS for these keys.

        Args:
            queues: Rows of QUEUES.
        """
        if queues.keys is not self._queue_keys:
            self._queue_keys = queues.keys
            self._rows_by_port = _rows_by_port(queues.keys)
            self._keys = list(self._rows_by_port)
        columns: dict[str, Column] = {}
        for ending, queue_endings in SUMS.items():
            present = [one for one in queue_endings if one in queues.columns]
            sums = [self._sum(queues, present, rows) for rows in self._rows_by_port.values()]
            if any(value is not None for value in sums):
                columns[ending] = Column(PORTS.metrics[ending], sums)
        depths = queues.columns.get(DEPTH)
        if depths is not None:
            known = [
                [value for row in rows if isinstance(value := depths.values[row], int)]
                for rows in self._rows_by_port.values()
            ]
            columns[DEEPEST] = Column(PORTS.metrics[DEEPEST], [max(cells, default=None) for cells in known])
        return self._keys, columns

    def add_to(self, ports: PartialTable, parts: Sequence[PartialTable]) -> PartialTable:
        """Return rows of PORTS with the sums of the QUEUES among `parts`, if there are any."""
        queues = next((part for part in parts if part.schema is QUEUES), None)
        if queues is None:
            return ports
        keys, sums = self.columns(queues)
        row_of = {key: row for row, key in enumerate(keys)}
        columns = {
            ending: Column(column.metric, [column.values[row_of[key]] if key in row_of else None for key in ports.keys])
            for ending, column in sums.items()
        }
        return replace(ports, columns={**ports.columns, **columns})

    def _sum(self, queues: PartialTable, endings: Sequence[str], rows: Sequence[int]) -> int | None:
        total, counted = 0, False
        for ending in endings:
            values = queues.columns[ending].values
            for row in rows:
                value, cell = values[row], (ending, queues.keys[row])
                if isinstance(value, int):
                    self._counted.add(cell)
                    total, counted = total + value, True
                elif cell in self._counted:
                    return None
        return total if counted else None


def _rows_by_port(keys: Sequence[LabelValues]) -> dict[LabelValues, list[int]]:
    rows: dict[LabelValues, list[int]] = {}
    for row, (port, *_) in enumerate(keys):
        rows.setdefault((port,), []).append(row)
    return rows
