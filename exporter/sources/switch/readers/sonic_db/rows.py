"""Rows of one SONiC switch from the values of its databases."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from exporter.core.table import LabelValues, Value
from exporter.sources.switch.merge import PartialTable, PartialTableBuilder
from exporter.sources.switch.metrics import (
    LANES,
    MODULES,
    PORTS,
    PRIORITIES,
    PRIORITY_GROUPS,
    QUEUES,
)
from exporter.sources.switch.port_kinds import port_info
from exporter.sources.switch.queues import PortSums
from exporter.sources.switch.readers import api_reader
from exporter.switch_api.sonic_db import parser
from exporter.switch_api.sonic_db.parser import PortTableEntry
from exporter.switch_api.transceiver import Transceiver

MICROSECONDS_PER_SECOND = 10**6

Counters = Mapping[LabelValues, Mapping[str, int]]
"""Counters by the labels of a port, queue or priority group, and by ending."""

PRIORITY_ENDINGS: Mapping[str, str] = MappingProxyType(
    {
        form.format(priority): f"{priority}/{ending}"
        for priority in range(parser.PRIORITIES)
        for form, ending in parser.PRIORITY_COUNTERS.items()
    }
)
"""Field of a port's counters to the priority and ending of its metric, `3/receive_pfc_frames_total`."""


class SonicRows:
    """Builds the rows of each poll.

    Attributes:
        modules: Optical modules by port.
        queue_watermarks: Highest depths by `(port, queue)`, and by ending.
        group_watermarks: Likewise by `(port, priority group)`.
    """

    def __init__(self, target_name: str) -> None:
        self._target_name = target_name
        self.modules: Mapping[str, Transceiver] = {}
        self.queue_watermarks: Counters = {}
        self.group_watermarks: Counters = {}
        self._builders = {
            schema: PartialTableBuilder(schema)
            for schema in (PORTS, PRIORITIES, QUEUES, PRIORITY_GROUPS, MODULES, LANES)
        }
        self._sums = PortSums()

    def parts(
        self, time: float, ports: Counters, states: Sequence[PortTableEntry], queues: Counters, groups: Counters
    ) -> list[PartialTable]:
        """Return all rows.

        Args:
            time: When the counters were read.
            ports: By `(port,)`; those of priorities by PRIORITY_ENDINGS.
            states: Of the same ports.
            queues: By `(port, queue)`.
            groups: By `(port, priority group)`.
        """
        for ((name,), counters), state in zip(ports.items(), states, strict=True):
            self._add_port(name, counters, state)
        for schema, objects, watermarks in (
            (QUEUES, queues, self.queue_watermarks),
            (PRIORITY_GROUPS, groups, self.group_watermarks),
        ):
            for key, counters in objects.items():
                self._builders[schema].row(key, {**counters, **watermarks.get(key, {})})
        for name, module in self.modules.items():
            api_reader.add_module_rows(self._builders[MODULES], self._builders[LANES], name, module)
        built = [builder.part(time) for builder in self._builders.values()]
        parts = [_in_seconds(part) if part.schema is PRIORITIES else part for part in built if part.keys]
        return [self._sums.add_to(part, parts) if part.schema is PORTS else part for part in parts]

    def _add_port(self, name: str, counters: Mapping[str, int], state: PortTableEntry) -> None:
        row: dict[str, Value | None] = {ending: count for ending, count in counters.items() if "/" not in ending}
        row |= api_reader.packet_sum_cells(counters)
        row |= api_reader.state_cells(state.up, state.admin_up, state.speed)
        row["info"] = port_info(self._target_name, name, "", state.description or state.alias, "")
        self._builders[PORTS].row((name,), row)
        for priority in range(parser.PRIORITIES):
            cells = {
                ending: counters[key]
                for ending in parser.PRIORITY_COUNTERS.values()
                if (key := f"{priority}/{ending}") in counters
            }
            if cells:
                self._builders[PRIORITIES].row((name, str(priority)), cells)


def _in_seconds(part: PartialTable) -> PartialTable:
    """Set the divisor of the columns of durations, which are in microseconds."""
    columns = {
        ending: column._replace(divisor=MICROSECONDS_PER_SECOND) if ending.endswith("_seconds_total") else column
        for ending, column in part.columns.items()
    }
    return PartialTable(part.schema, part.keys, columns, part.time)
