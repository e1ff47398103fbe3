"""Rows of one Onyx switch: what its commands told, from poll to poll."""

from collections.abc import Collection, Mapping, Sequence
from time import monotonic

from exporter.core.table import Value
from exporter.sources.switch.merge import PartialTable, PartialTableBuilder
from exporter.sources.switch.metrics import PORTS, PRIORITIES, QUEUES
from exporter.sources.switch.options import Target
from exporter.sources.switch.queues import PortSums
from exporter.switch_api.onyx.parser import (
    Congestion,
    Counters,
    Pfc,
    PortState,
)

DISCARDS = "congestion_discards_total"


class OnyxRows:
    """What is known of the ports of one switch.

    Attributes:
        counters: By port, of this poll.
        states: By port, of this poll.
        time: When counters were asked for.
        congestion: By port, of this poll.
        congestion_time: When it was asked for.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._pfc: dict[int, tuple[float, Mapping[str, Pfc]]] = {}
        self._ports = PartialTableBuilder(PORTS)
        self._congestion = PartialTableBuilder(PORTS, "congestion")
        self._queues = PartialTableBuilder(QUEUES)
        self._priorities = PartialTableBuilder(PRIORITIES)
        self._sums = PortSums()
        self.begin()

    def begin(self) -> None:
        """Forget what each poll asks for anew."""
        self.counters: Mapping[str, Counters] = {}
        self.states: Mapping[str, PortState] = {}
        self.congestion: Mapping[str, Congestion] = {}
        self.time = self.congestion_time = monotonic()

    def __bool__(self) -> bool:
        """Tell whether this poll brought any port."""
        return bool(self.counters or self.states)

    def take_pfc(self, priority: int, time: float, ports: Mapping[str, Pfc]) -> None:
        """Take what PFC counted of one priority, by port; it is repeated until it is asked for anew."""
        if ports:
            self._pfc[priority] = time, ports
        else:
            self._pfc.pop(priority, None)

    def keep(self, priorities: Collection[int]) -> None:
        """Forget the priorities that are not asked for any more."""
        self._pfc = {priority: told for priority, told in self._pfc.items() if priority in priorities}

    def parts(self) -> list[PartialTable]:
        """Give all there is."""
        for port in {**self.counters, **self.states}:
            if self._target.matches(port):
                self._ports.row((port,), self._port(self.counters.get(port), self.states.get(port)))
        return [self._ports.part(self.time), *self._congestion_parts(), *self._pfc_parts()]

    def _port(self, counters: Counters | None, state: PortState | None) -> dict[str, Value | None]:
        """Put one port's records together, by ending."""
        row: dict[str, Value | None] = {}
        if counters is not None:
            for way in ("receive", "transmit"):
                for what in ("bytes", "packets", "errors", "discards", "pause_frames"):
                    row[f"{way}_{what}_total"] = getattr(counters, f"{way}_{what}")
            row["fcs_errors_total"] = counters.receive_fcs_errors
            row["symbol_errors_total"] = counters.receive_symbol_errors
        if state is not None:
            row["link_up"] = None if state.up is None else int(state.up)
            row["link_speed_bytes_per_second"] = state.speed / 8 if state.up and state.speed else None
        alias = (state.description if state else None) or ""
        row["info"] = (self._target.name, "", alias, "")
        return row

    def _congestion_parts(self) -> Sequence[PartialTable]:
        """Give queues, and what ports have of marks and drops, which were counted at another time than bytes."""
        wanted = {port: told for port, told in self.congestion.items() if self._target.matches(port)}
        if not wanted:
            return ()
        for port, told in wanted.items():
            for queue, dropped in sorted(told.red_dropped_packets.items()):
                self._queues.row((port, str(queue)), {"queue_early_discards_total": dropped})
        queues = self._queues.part(self.congestion_time)
        keys, columns = self._sums.columns(queues)
        sums = dict(zip(keys, columns[DISCARDS].values, strict=True)) if DISCARDS in columns else {}
        for port, told in wanted.items():
            row = {"ecn_marked_packets_total": told.ecn_marked_packets, DISCARDS: sums.get((port,))}
            self._congestion.row((port,), row)
        return [self._congestion.part(self.congestion_time), *([queues] if queues.columns else [])]

    def _pfc_parts(self) -> Sequence[PartialTable]:
        times = []
        for priority, (time, ports) in sorted(self._pfc.items()):
            for port, told in ports.items():
                if self._target.matches(port):
                    frames = {
                        "receive_pfc_frames_total": told.receive_frames,
                        "transmit_pfc_frames_total": told.transmit_frames,
                    }
                    self._priorities.row((port, str(priority)), frames)
                    times.append(time)
        if not times:
            return ()
        return [self._priorities.part(max(times), times=times)]
