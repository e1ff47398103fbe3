"""Rows of one Cumulus switch: counters of its ports, each with the time at which it was read."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from types import MappingProxyType

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
from exporter.sources.switch.port_kinds import port_info
from exporter.sources.switch.queues import PortSums
from exporter.sources.switch.readers import api_reader
from exporter.sources.switch.readers.empty_cages import has_module, is_measured
from exporter.sources.switch.settings_rows import SettingsRows
from exporter.switch_api.nvue.modules import NvueLane, NvueModule
from exporter.switch_api.nvue.parser import NvueInterface, NvueQos

_PORT_KEYS = MappingProxyType(
    {
        "receive_bytes_total": "in-bytes",
        "receive_packets_total": "in-pkts",
        "receive_errors_total": "in-errors",
        "receive_discards_total": "in-drops",
        "transmit_bytes_total": "out-bytes",
        "transmit_packets_total": "out-pkts",
        "transmit_errors_total": "out-errors",
        "transmit_discards_total": "out-drops",
    }
)
_PRIORITY_KEYS = MappingProxyType(
    {"receive_pfc_frames_total": "rx-pause-frames", "transmit_pfc_frames_total": "tx-pause-frames"}
)
_QUEUE_KEYS = MappingProxyType(
    {
        "queue_transmit_bytes_total": "tx-bytes",
        "queue_transmit_packets_total": "tx-frames",
        "queue_ecn_marked_packets_total": "ecn-marked-frames",
        "queue_full_discards_total": "tx-uc-buffer-discards",
        "queue_early_discards_total": "wred-discards",
    }
)
_GROUP_KEYS = MappingProxyType({"priority_group_discards_total": "rx-buffer-discards"})
ECN_MARKED = "ecn_marked_packets_total"
_RECEIVED, _TRANSMITTED, _BIAS = (
    "module_lane_receive_power_watts",
    "module_lane_transmit_power_watts",
    "module_lane_bias_amperes",
)

CountersByNumber = Mapping[int, Mapping[str, int]]
"""Counters by the number of a priority, queue or priority group, and by the key of NVUE."""


@dataclass(frozen=True, slots=True)
class QosReading:
    """QoS counters of one port: `time` is when they were read, `epoch` changes with a restart."""

    qos: NvueQos
    time: float
    epoch: int


class NvueRows:
    """Last values of the ports of one switch.

    Attributes:
        ports: By name, of this poll; those that the target selects.
        time: When they were read.
        qos: By port; it may be from an earlier poll.
        modules: By port; likewise.
        epoch: Changes with a restart of the switch.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self.ports: Mapping[str, NvueInterface] = {}
        self.time = monotonic()
        self.qos: dict[str, QosReading] = {}
        self.modules: dict[str, NvueModule] = {}
        self.epoch = 0
        self._ports_builder = PartialTableBuilder(PORTS)
        self._port_qos_builder = PartialTableBuilder(PORTS, "qos")
        self._queues_builder = PartialTableBuilder(QUEUES)
        self._priorities_builder = PartialTableBuilder(PRIORITIES)
        self._groups_builder = PartialTableBuilder(PRIORITY_GROUPS)
        self._modules_builder = PartialTableBuilder(MODULES)
        self._lanes_builder = PartialTableBuilder(LANES)
        self._sums = PortSums()
        self._settings = SettingsRows()

    def set_ports(self, ports: Mapping[str, NvueInterface], time: float) -> None:
        """Set the ports of this poll; values of ports that no longer exist are dropped."""
        self.ports = {name: port for name, port in ports.items() if self._target.matches(name)}
        self.time = time
        self.qos = {name: reading for name, reading in self.qos.items() if name in self.ports}
        self.modules = {name: module for name, module in self.modules.items() if name in self.ports}

    def parts(self) -> list[PartialTable]:
        """Return all rows."""
        for name, port in self.ports.items():
            self._ports_builder.row((name,), self._port_row(name, port))
        queues = self._qos_part(self._queues_builder, lambda qos: qos.queues, _QUEUE_KEYS)
        parts = [
            self._ports_builder.part(self.time, epochs=[self.epoch] * len(self.ports)),
            queues,
            self._port_qos_part(queues),
            self._qos_part(self._priorities_builder, lambda qos: qos.priorities, _PRIORITY_KEYS),
            self._qos_part(self._groups_builder, lambda qos: qos.groups, _GROUP_KEYS),
            *self._module_parts(),
            *self._settings.parts(self.time, {name: port.settings for name, port in self.ports.items()}),
        ]
        return [part for part in parts if part is not None and part.columns]

    def _port_row(self, name: str, port: NvueInterface) -> dict[str, Value | None]:
        row: dict[str, Value | None] = {ending: port.counters.get(key) for ending, key in _PORT_KEYS.items()}
        row |= api_reader.state_cells(port.up, None, port.speed)
        row["info"] = port_info(self._target.name, name, port.ifindex, port.description, "")
        return row

    def _qos_part(
        self,
        builder: PartialTableBuilder,
        group_of: Callable[[NvueQos], CountersByNumber | None],
        keys: Mapping[str, str],
    ) -> PartialTable | None:
        """Return the rows of one group of counters; None where no port has any."""
        readings: list[QosReading] = []
        for name, reading in sorted(self.qos.items()):
            for number, counters in sorted((group_of(reading.qos) or {}).items()):
                builder.row((name, str(number)), {ending: counters.get(key) for ending, key in keys.items()})
                readings.append(reading)
        return _part(builder, readings)

    def _port_qos_part(self, queues: PartialTable | None) -> PartialTable | None:
        """Return the sums of queues by port, which were read at another time than the bytes of the ports."""
        sums: Mapping[LabelValues, dict[str, Value | None]] = {}
        if queues is not None:
            keys, columns = self._sums.columns(queues)
            sums = {
                key: {ending: column.values[index] for ending, column in columns.items()}
                for index, key in enumerate(keys)
            }
        readings: list[QosReading] = []
        for name, reading in sorted(self.qos.items()):
            row = sums.get((name,), {})
            if row.get(ECN_MARKED) is None and reading.qos.queues is None:
                row = {**row, ECN_MARKED: reading.qos.ecn_marked}
            self._port_qos_builder.row((name,), row)
            readings.append(reading)
        return _part(self._port_qos_builder, readings)

    def _module_parts(self) -> Iterable[PartialTable]:
        for name, module in sorted(self.modules.items()):
            lanes = {number: _lane_cells(lane) for number, lane in module.lanes.items()}
            if not has_module(module.voltage, [module.temperature, *_numbers(lanes.values())]):
                continue
            if module.temperature is not None or module.voltage is not None:
                measured = {"module_temperature_celsius": module.temperature, "module_voltage_volts": module.voltage}
                self._modules_builder.row((name,), measured)
            for number, cells in lanes.items():
                if is_measured(cells[_BIAS], cells[_RECEIVED], cells[_TRANSMITTED]):
                    self._lanes_builder.row((name, str(number)), cells)
        return self._modules_builder.part(self.time), self._lanes_builder.part(self.time)


def _part(builder: PartialTableBuilder, readings: Sequence[QosReading]) -> PartialTable | None:
    """Return the rows of a builder, each with the time and epoch of its reading."""
    if not readings:
        return None
    times, epochs = [reading.time for reading in readings], [reading.epoch for reading in readings]
    return builder.part(max(times), times=times, epochs=epochs)


def _numbers(rows: Iterable[Mapping[str, float | None]]) -> Iterator[float]:
    return (value for row in rows for value in row.values() if value is not None)


def _lane_cells(lane: NvueLane) -> dict[str, float | None]:
    return {
        _RECEIVED: _watts(lane.receive_milliwatts, lane.receive_dbm),
        _TRANSMITTED: _watts(lane.transmit_milliwatts, lane.transmit_dbm),
        _BIAS: lane.bias,
    }


def _watts(milliwatts: float | None, dbm: float | None) -> float | None:
    """Convert power to watts; from dBm where it is reported, since its value for no light is known."""
    if dbm is not None:
        return watts_of_dbm(dbm)
    return None if milliwatts is None else milliwatts / 1000
