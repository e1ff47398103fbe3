"""Rows of one Onyx switch: the last results of its commands."""

from collections.abc import Collection, Mapping, Sequence
from time import monotonic

from exporter.core.table import Value
from exporter.sources.switch.merge import PartialTable, PartialTableBuilder
from exporter.sources.switch.metrics import PORTS, PRIORITIES, QUEUES
from exporter.sources.switch.options import Target
from exporter.sources.switch.port_kinds import port_info
from exporter.sources.switch.queues import PortSums
from exporter.sources.switch.readers import api_reader
from exporter.sources.switch.settings_rows import SettingsRows
from exporter.switch_api.onyx.facts import OnyxFlowControl
from exporter.switch_api.onyx.parser import (
    OnyxCongestion,
    OnyxCounters,
    OnyxPfc,
    OnyxPortState,
)
from exporter.switch_api.port_settings import PortSettings

DISCARDS = "congestion_discards_total"


class OnyxRows:
    """Last values of the ports of one switch.

    Attributes:
        counters: By port, of this poll.
        states: By port, of this poll.
        time: When the counters were read.
        congestion: By port, of this poll.
        congestion_time: When it was read.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._pfc: dict[int, tuple[float, Mapping[str, OnyxPfc]]] = {}
        self._ports_builder = PartialTableBuilder(PORTS)
        self._congestion_builder = PartialTableBuilder(PORTS, "congestion")
        self._queues_builder = PartialTableBuilder(QUEUES)
        self._priorities_builder = PartialTableBuilder(PRIORITIES)
        self._sums = PortSums()
        self._settings_rows = SettingsRows()
        self._settings: Sequence[PartialTable] = ()
        self.start_poll()

    def start_poll(self) -> None:
        """Drop the values that are read at each poll."""
        self.counters: Mapping[str, OnyxCounters] = {}
        self.states: Mapping[str, OnyxPortState] = {}
        self.congestion: Mapping[str, OnyxCongestion] = {}
        self.time = self.congestion_time = monotonic()

    @property
    def has_ports(self) -> bool:
        """Whether this poll read any port."""
        return bool(self.counters or self.states)

    def set_pfc(self, priority: int, time: float, ports: Mapping[str, OnyxPfc]) -> None:
        """Set the PFC counters of one priority by port, which are kept until they are read again."""
        if ports:
            self._pfc[priority] = time, ports
        else:
            self._pfc.pop(priority, None)

    def set_flow_control(self, found: OnyxFlowControl, time: float) -> None:
        """Set the priorities with PFC of each port, which are kept until they are read again."""
        lossless = tuple(sorted(found.lossless))
        pfc = {port: lossless if on else () for port, on in found.ports.items() if self._target.matches(port)}
        self._settings = self._settings_rows.parts(
            time, {port: PortSettings(pfc=priorities) for port, priorities in pfc.items()}
        )

    def retain_priorities(self, priorities: Collection[int]) -> None:
        """Drop the PFC counters of all other priorities."""
        self._pfc = {priority: reading for priority, reading in self._pfc.items() if priority in priorities}

    def parts(self) -> list[PartialTable]:
        """Return all rows."""
        for port in {**self.counters, **self.states}:
            if self._target.matches(port):
                self._ports_builder.row((port,), self._port_row(port, self.counters.get(port), self.states.get(port)))
        return [self._ports_builder.part(self.time), *self._congestion_parts(), *self._pfc_parts(), *self._settings]

    def _port_row(
        self, port: str, counters: OnyxCounters | None, state: OnyxPortState | None
    ) -> dict[str, Value | None]:
        row: dict[str, Value | None] = {}
        if counters is not None:
            for direction in ("receive", "transmit"):
                for kind in ("bytes", "packets", "errors", "discards", "pause_frames"):
                    row[f"{direction}_{kind}_total"] = getattr(counters, f"{direction}_{kind}")
            row["fcs_errors_total"] = counters.receive_fcs_errors
            row["symbol_errors_total"] = counters.receive_symbol_errors
        if state is not None:
            row |= api_reader.state_cells(state.up, None, state.speed)
        alias = (state.description if state else None) or ""
        row["info"] = port_info(self._target.name, port, "", alias, "")
        return row

    def _congestion_parts(self) -> Sequence[PartialTable]:
        """Return ECN marks and drops of queues and ports, which were read at another time than the bytes."""
        congestion = {port: counters for port, counters in self.congestion.items() if self._target.matches(port)}
        if not congestion:
            return ()
        for port, counters in congestion.items():
            for queue, dropped in sorted(counters.red_dropped_packets.items()):
                self._queues_builder.row((port, str(queue)), {"queue_early_discards_total": dropped})
        queues = self._queues_builder.part(self.congestion_time)
        keys, columns = self._sums.columns(queues)
        sums = dict(zip(keys, columns[DISCARDS].values, strict=True)) if DISCARDS in columns else {}
        for port, counters in congestion.items():
            row = {"ecn_marked_packets_total": counters.ecn_marked_packets, DISCARDS: sums.get((port,))}
            self._congestion_builder.row((port,), row)
        return [self._congestion_builder.part(self.congestion_time), *([queues] if queues.columns else [])]

    def _pfc_parts(self) -> Sequence[PartialTable]:
        times = []
        for priority, (time, ports) in sorted(self._pfc.items()):
            for port, counters in ports.items():
                if self._target.matches(port):
                    cells = {
                        "receive_pfc_frames_total": counters.receive_frames,
                        "transmit_pfc_frames_total": counters.transmit_frames,
                    }
                    self._priorities_builder.row((port, str(priority)), cells)
                    times.append(time)
        if not times:
            return ()
        return [self._priorities_builder.part(max(times), times=times)]
