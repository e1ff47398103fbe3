"""Rows of one Cumulus switch: what its ports counted, each at its own time."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic

from exporter.config.units import watts_of_dbm
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
from exporter.sources.switch.options import Target
from exporter.sources.switch.queues import PortSums
from exporter.switch_api.nvue.modules import Lane, Module
from exporter.switch_api.nvue.parser import Port, Qos

_PORT_KEYS = {
    "receive_bytes_total": "in-bytes",
    "receive_packets_total": "in-pkts",
    "receive_errors_total": "in-errors",
    "receive_discards_total": "in-drops",
    "transmit_bytes_total": "out-bytes",
    "transmit_packets_total": "out-pkts",
    "transmit_errors_total": "out-errors",
    "transmit_discards_total": "out-drops",
}
_PRIORITY_KEYS = {"receive_pfc_frames_total": "rx-pause-frames", "transmit_pfc_frames_total": "tx-pause-frames"}
_QUEUE_KEYS = {
    "queue_transmit_bytes_total": "tx-bytes",
    "queue_transmit_packets_total": "tx-frames",
    "queue_ecn_marked_packets_total": "ecn-marked-frames",
    "queue_full_discards_total": "tx-uc-buffer-discards",
    "queue_early_discards_total": "wred-discards",
}
_GROUP_KEYS = {"priority_group_discards_total": "rx-buffer-discards"}
MARKED = "ecn_marked_packets_total"

Cells = Mapping[int, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Counted:
    """What one port counted by priority and queue: `time` is when it was asked, `epoch` changes with a restart."""

    qos: Qos
    time: float
    epoch: int


class NvueRows:
    """What is known of the ports of one switch.

    Attributes:
        ports: By name, of this poll; those that are wanted.
        time: When they were asked for.
        counted: By port; it may be of an earlier poll.
        modules: By port; likewise.
        epoch: Changes with a restart of the switch.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self.ports: Mapping[str, Port] = {}
        self.time = monotonic()
        self.counted: dict[str, Counted] = {}
        self.modules: dict[str, Module] = {}
        self.epoch = 0
        self._links = PartialTableBuilder(PORTS)
        self._marks = PartialTableBuilder(PORTS, "qos")
        self._queues = PartialTableBuilder(QUEUES)
        self._priorities = PartialTableBuilder(PRIORITIES)
        self._groups = PartialTableBuilder(PRIORITY_GROUPS)
        self._modules = PartialTableBuilder(MODULES)
        self._lanes = PartialTableBuilder(LANES)
        self._sums = PortSums()

    def take_ports(self, ports: Mapping[str, Port], time: float) -> None:
        """Take the ports of this poll; what is known of those that are gone is forgotten."""
        self.ports = {name: port for name, port in ports.items() if self._target.matches(name)}
        self.time = time
        self.counted = {name: told for name, told in self.counted.items() if name in self.ports}
        self.modules = {name: told for name, told in self.modules.items() if name in self.ports}

    def parts(self) -> list[PartialTable]:
        """Give all there is."""
        for name, port in self.ports.items():
            self._links.row((name,), self._port(port))
        queues = self._counted(self._queues, lambda qos: qos.queues, _QUEUE_KEYS)
        made = [
            self._links.part(self.time, epochs=[self.epoch] * len(self.ports)),
            queues,
            self._port_sums(queues),
            self._counted(self._priorities, lambda qos: qos.priorities, _PRIORITY_KEYS),
            self._counted(self._groups, lambda qos: qos.groups, _GROUP_KEYS),
            *self._optics(),
        ]
        return [part for part in made if part is not None and part.columns]

    def _port(self, port: Port) -> dict[str, Value | None]:
        row: dict[str, Value | None] = {ending: port.stats.get(key) for ending, key in _PORT_KEYS.items()}
        row["link_up"] = None if port.up is None else int(port.up)
        row["link_speed_bytes_per_second"] = port.speed / 8 if port.up and port.speed else None
        row["info"] = (self._target.name, port.ifindex, port.description, "")
        return row

    def _counted(
        self, builder: PartialTableBuilder, cells_of: Callable[[Qos], Cells | None], keys: Mapping[str, str]
    ) -> PartialTable | None:
        """Make the part of one group of counters."""
        taken: list[Counted] = []
        for name, told in sorted(self.counted.items()):
            for place, cells in sorted((cells_of(told.qos) or {}).items()):
                builder.row((name, str(place)), {ending: cells.get(key) for ending, key in keys.items()})
                taken.append(told)
        return _finished(builder, taken)

    def _port_sums(self, queues: PartialTable | None) -> PartialTable | None:
        """Make what a port's own row has of its queues; it was counted at another time than bytes."""
        sums: Mapping[LabelValues, dict[str, Value | None]] = {}
        if queues is not None:
            keys, columns = self._sums.columns(queues)
            sums = {key: {one: columns[one].values[place] for one in columns} for place, key in enumerate(keys)}
        taken: list[Counted] = []
        for name, told in sorted(self.counted.items()):
            row = sums.get((name,), {})
            if row.get(MARKED) is None and told.qos.queues is None:
                row = {**row, MARKED: told.qos.marked}
            self._marks.row((name,), row)
            taken.append(told)
        return _finished(self._marks, taken)

    def _optics(self) -> Iterable[PartialTable]:
        for name, module in sorted(self.modules.items()):
            if module.temperature is not None or module.voltage is not None:
                told = {"module_temperature_celsius": module.temperature, "module_voltage_volts": module.voltage}
                self._modules.row((name,), told)
            for place, lane in module.lanes.items():
                self._lanes.row((name, str(place)), _lane(lane))
        return self._modules.part(self.time), self._lanes.part(self.time)


def _finished(builder: PartialTableBuilder, taken: Sequence[Counted]) -> PartialTable | None:
    """Make a part of rows that were counted apart."""
    if not taken:
        return None
    times, epochs = [told.time for told in taken], [told.epoch for told in taken]
    return builder.part(max(times), times=times, epochs=epochs)


def _lane(lane: Lane) -> dict[str, Value | None]:
    return {
        "module_lane_receive_power_watts": _watts(lane.receive_milliwatts, lane.receive_dbm),
        "module_lane_transmit_power_watts": _watts(lane.transmit_milliwatts, lane.transmit_dbm),
        "module_lane_bias_amperes": lane.bias,
    }


def _watts(milliwatts: float | None, dbm: float | None) -> float | None:
    """Give watts; by dBm, of which it is known from where on it is dark, where that is told."""
    if dbm is not None:
        return watts_of_dbm(dbm)
    return None if milliwatts is None else milliwatts / 1000
