"""What a port's own row says of its queues: sums and the fullest one, where the switch tells of queues alone."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from exporter.core.table import Column, LabelValues
from exporter.sources.switch.merge import Part
from exporter.sources.switch.metrics import PORTS, QUEUES

SUMS = {
    "ecn_marked_packets_total": ("queue_ecn_marked_packets_total",),
    "congestion_discards_total": ("queue_full_discards_total", "queue_early_discards_total"),
}
"""Ending of the port's row to those of its queues that are added up."""

DEPTH, DEEPEST = "queue_depth_bytes", "deepest_queue_bytes"

Cell = TypeVar("Cell")


class PortSums:
    """Sums up the queues of each port of one switch, from poll to poll.

    Queues that never tell are no part of a sum. One that told and is silent now makes it absent: else it would fall.
    """

    def __init__(self) -> None:
        self._told: set[tuple[str, LabelValues]] = set()
        self._queue_keys: Sequence[LabelValues] = ()
        self._places: Mapping[LabelValues, Sequence[int]] = {}
        self._keys: Sequence[LabelValues] = ()

    def columns(self, queues: Part) -> tuple[Sequence[LabelValues], dict[str, Column]]:
        """Give keys `(port,)`, and the columns that rows of PORTS with these keys have.

        Args:
            queues: Rows of QUEUES.
        """
        if queues.keys is not self._queue_keys:
            self._queue_keys = queues.keys
            self._places = _by_port(queues.keys)
            self._keys = list(self._places)
        made: dict[str, Column] = {}
        for ending, parts in SUMS.items():
            told = [part for part in parts if part in queues.columns]
            sums = [self._sum(queues, told, of) for of in self._places.values()]
            if any(value is not None for value in sums):
                made[ending] = Column(PORTS.metrics[ending], sums)
        depths = queues.columns.get(DEPTH)
        if depths is not None:
            known = [
                [value for place in of if isinstance(value := depths.values[place], int)]
                for of in self._places.values()
            ]
            made[DEEPEST] = Column(PORTS.metrics[DEEPEST], [max(cells, default=None) for cells in known])
        return self._keys, made

    def added_to(self, ports: Part, parts: Sequence[Part]) -> Part:
        """Give rows of PORTS with the sums of the queues that are among some parts, as far as there are any."""
        queues = next((part for part in parts if part.schema is QUEUES), None)
        if queues is None:
            return ports
        keys, sums = self.columns(queues)
        places = {key: place for place, key in enumerate(keys)}
        columns = {
            ending: Column(column.metric, [column.values[places[key]] if key in places else None for key in ports.keys])
            for ending, column in sums.items()
        }
        return replace(ports, columns={**ports.columns, **columns})

    def part(self, queues: Part) -> Part:
        """Give the same as rows of PORTS, for a reader that knows of ports only by their queues."""
        keys, columns = self.columns(queues)
        firsts = [of[0] for of in self._places.values()]
        return Part(PORTS, keys, columns, queues.time, _picked(queues.times, firsts), _picked(queues.epochs, firsts))

    def _sum(self, queues: Part, endings: Sequence[str], places: Sequence[int]) -> int | None:
        total, told = 0, False
        for ending in endings:
            values = queues.columns[ending].values
            for place in places:
                value, cell = values[place], (ending, queues.keys[place])
                if isinstance(value, int):
                    self._told.add(cell)
                    total, told = total + value, True
                elif cell in self._told:
                    return None
        return total if told else None


def _by_port(keys: Sequence[LabelValues]) -> dict[LabelValues, list[int]]:
    places: dict[LabelValues, list[int]] = {}
    for place, (port, *_) in enumerate(keys):
        places.setdefault((port,), []).append(place)
    return places


def _picked(cells: Sequence[Cell] | None, places: Sequence[int]) -> list[Cell] | None:
    return None if cells is None else [cells[place] for place in places]
