"""RDMA ports of this host, from the files of /sys/class/infiniband.

Each counter file is one firmware command on real hardware, so descriptors are kept, devices are read in turn in one
thread, and what is excluded is never opened.
"""

import asyncio
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import is_
from time import monotonic

from exporter import vocabulary
from exporter.linux.infiniband import parse_guid
from exporter.linux.kept import read_once, read_text
from exporter.linux.pci import driver, netdev_of_port, pci_address
from exporter.serial import HungError, Serial
from exporter.source import Definition, Failure, Host, Reading, Source, SourceError
from exporter.sources.failures import failure_of
from exporter.sources.host_ports import PortOptions, Seat, number_rails, own_times
from exporter.sources.rdma_files import DRIVERS, MLX5, PMA, CounterFile
from exporter.sources.rdma_port import Port, PortReading
from exporter.table import Column, RowKeeper, Table
from exporter.vocabulary import counter, gauge, info

LABELS = ("device", "port")

RESCAN = 60.0
"""Seconds after which folders are listed again and facts that change rarely are read again."""

CALL_DEADLINE = 2.0
"""Seconds that the files of one device may take."""

_PORT = re.compile(r"[1-9][0-9]{0,4}")
"""Name of a port's folder, as the kernel writes numbers: with `01` beside `1` two ports would have one number."""

SCAN = "/"
"""Name of the call that lists the devices; no device can be named so."""

SCHEMA = vocabulary.schema(
    "fabric_rdma_",
    LABELS,
    [
        *(file.ending for file in (*PMA, *MLX5) if file.ending in vocabulary.ENDINGS),
        "link_up",
        "link_speed_bytes_per_second",
        "link_expected_speed_bytes_per_second",
        "link_degraded",
        "resets_total",
    ],
    {
        "info": info(
            "What the port is and where it sits.",
            "host",
            "rail",
            "pci",
            "netdev",
            "mac",
            "node_guid",
            "link_layer",
            "driver",
            "hca_type",
            "board_id",
            "firmware",
        ),
        "port_state": gauge("Logical state: 0 no change, 1 down, 2 init, 3 armed, 4 active, 5 active, deferred."),
        "port_physical_state": gauge(
            "Physical state: 1 sleep, 2 polling, 3 disabled, 4 training, 5 link up, 6 error recovery, 7 test."
        ),
        "link_lanes": gauge("Lanes of the link as it is now; absent while it is down."),
        "receive_remote_physical_errors_total": counter("Packets received that were marked bad by a port before this."),
        "receive_switch_relay_errors_total": counter("Packets dropped because the switch could not forward them."),
        "receive_constraint_errors_total": counter("Packets received against the partition or raw-packet rules."),
        "transmit_constraint_errors_total": counter("Packets not sent for the partition or raw-packet rules."),
        "transmit_wait_ticks_total": counter(
            "Ticks, of a length that depends on the device, in which there was data but none could be sent."
        ),
        "link_error_recovery_total": counter("Times the link recovered from an error by itself."),
        "local_link_integrity_errors_total": counter("Times that local physical errors exceeded their threshold."),
        "excessive_buffer_overrun_errors_total": counter("Times that buffer overruns went on for too long."),
        "vl15_dropped_total": counter("Management packets dropped for lack of room."),
        "icrc_errors_total": counter("RoCE packets with a wrong invariant checksum: corrupted beyond the frame's own."),
        "out_of_sequence_total": counter("Packets that came with an unexpected sequence number: lost, or reordered."),
        "packet_sequence_errors_total": counter("Replies that told this sender of a sequence error."),
        "implied_nak_sequence_errors_total": counter("Replies that implied a gap in what this sender sent."),
        "local_ack_timeouts_total": counter("Acknowledgements that did not come in time: loss, or a dead peer."),
        "rnr_nak_retries_total": counter("Replies that the peer had posted no buffer."),
        "duplicate_requests_total": counter("Requests that came again: the peer retransmitted."),
        "receive_write_requests_total": counter("RDMA writes received."),
        "receive_read_requests_total": counter("RDMA reads received."),
        "receive_atomic_requests_total": counter("RDMA atomics received."),
        "receive_dct_connects_total": counter("Connections to dynamically connected targets."),
        "adaptive_retransmissions_total": counter("Adaptive retransmissions by this sender."),
        "adaptive_retransmission_timeouts_total": counter("Adaptive retransmissions of this sender that timed out."),
        "slow_restarts_total": counter("Slow restarts of this sender after it was idle."),
        "slow_restart_cnps_total": counter("Congestion notifications that a slow restart made."),
        "slow_restart_transitions_total": counter("Transitions of a connection into slow restart."),
        "requester_completion_errors_total": counter("Requests of this side that completed with an error."),
        "requester_flush_errors_total": counter("Requests of this side that were flushed; normal when a job ends."),
        "requester_remote_access_errors_total": counter("Requests of this side that the peer refused access."),
        "requester_remote_invalid_requests_total": counter("Requests of this side that the peer called invalid."),
        "requester_transport_retries_exceeded_total": counter("Requests given up after all transport retries."),
        "requester_rnr_retries_exceeded_total": counter("Requests given up because the peer never posted a buffer."),
        "responder_completion_errors_total": counter("Requests of peers that completed with an error here."),
        "responder_flush_errors_total": counter("Requests of peers that were flushed here; normal when a job ends."),
        "responder_local_length_errors_total": counter("Requests of peers with a wrong length."),
        "responder_remote_access_errors_total": counter("Requests of peers that were refused access here."),
    },
    note="On mlx5 these are of this function alone (no virtual functions), on Ethernet RDMA alone (no TCP/IP).",
    origins={
        **{file.ending: [file.path] for file in (*PMA, *MLX5)},
        "link_up": ["state"],
        "port_state": ["state"],
        "port_physical_state": ["phys_state"],
        "link_speed_bytes_per_second": ["rate"],
        "link_lanes": ["rate"],
        "info": ["node_guid", "hca_type", "board_id", "fw_ver", "link_layer", "device"],
    },
)


class RdmaOptions(PortOptions, frozen=True):
    """Configuration of `sources.rdma`; include and exclude are names of devices."""


class RdmaSource:
    """Reads the RDMA ports of this host."""

    name = "rdma"
    target = ""
    changed: asyncio.Event | None = None

    def __init__(self, options: RdmaOptions, host: Host) -> None:
        """Take the configuration and the roots of the file systems."""
        self.interval = float(options.interval)
        self.settings = self._options = options
        self._host = host
        self._class = host.sysfs / "class" / "infiniband"
        self._serial = Serial("rdma", CALL_DEADLINE, self._class)
        self._devices: dict[str, list[Port]] = {}
        self._scanned = float("-inf")
        self._scanned_any = False
        self._listed: list[str] = []
        self._wanted: list[str] = []
        self._keepers: dict[str, RowKeeper] = {}
        self._columns: dict[str, tuple[Sequence[list[int | None]], dict[str, Column]]] = {}

    async def applies(self) -> bool:
        """Tell whether there is any RDMA device that is not excluded."""
        found = (await self._serial.run([(SCAN, self._names)]))[SCAN]
        return not isinstance(found, list) or bool(found)  # what cannot be listed is for the read to say

    async def read(self) -> Reading:
        """Read every port; devices fail alone."""
        rescan = monotonic() - self._scanned >= RESCAN
        if rescan:
            self._scanned = monotonic()
        calls: dict[str, Callable[[], object]] = {
            name: partial(self._read_device, name, rescan) for name in self._devices.keys() | self._serial.out - {SCAN}
        }
        results = await self._serial.run([(SCAN, self._names), *sorted(calls.items())])
        names = results.pop(SCAN)
        if not isinstance(names, list):
            raise SourceError("timeout" if isinstance(names, HungError) else "unreadable", str(names))
        fresh = [name for name in names if name not in calls]
        if fresh:
            results |= await self._serial.run([(name, partial(self._read_device, name, rescan)) for name in fresh])
        for gone in self._devices.keys() - set(names) - self._serial.out:
            for port in self._devices.pop(gone):
                port.close()
        readings, failures = self._sorted_out(names, results)
        if self._scanned_any:
            self._scanned_any = False
            self._number_rails()
        return Reading(self._tables(readings), failures)

    async def close(self) -> None:
        """Close all files that no hung call may still be using."""
        self._serial.close()
        for name, ports in self._devices.items():
            if name not in self._serial.out:
                for port in ports:
                    port.close()
        self._devices = {}

    def _sorted_out(
        self, names: Sequence[str], results: Mapping[str, object]
    ) -> tuple[list[PortReading], list[Failure]]:
        """Tell what was read from what failed."""
        readings: list[PortReading] = []
        failures: list[Failure] = []
        for name in names:
            result = results[name]
            if isinstance(result, Exception):
                failures.append(failure_of(name, result, self._class / name))
            elif isinstance(result, list):
                readings += result
        for reading in readings:
            failures += reading.failures
        return readings, failures

    def _names(self) -> list[str]:
        """List the devices that may be touched."""
        try:
            names = sorted(os.listdir(self._class))  # noqa: PTH208  # at each poll; Path objects cost ten times this
        except FileNotFoundError:
            return []
        if names != self._listed:
            self._listed = names
            self._wanted = [name for name in names if self._options.wants(name)]
        return self._wanted

    def _read_device(self, name: str, rescan: bool) -> list[PortReading]:
        """Read all ports of one device; runs in the thread."""
        ports = self._devices.get(name)
        epoch = os.stat(f"{self._class}/{name}").st_ino  # noqa: PTH116  # follows the link: another inode is another device
        if ports is None or not ports or ports[0].epoch != epoch or rescan:
            ports = self._devices[name] = self._scan_device(name, epoch, ports or [])
            self._scanned_any = True
        return [port.read() for port in ports]

    def _scan_device(self, name: str, epoch: int, old: Sequence[Port]) -> list[Port]:
        """Find the ports of a device and what there is to know of each; files of known ports stay open."""
        folder = self._class / name
        known = {port.number: port for port in old if port.epoch == epoch}
        bound = driver(folder)
        hca_type = read_text(folder / "hca_type")
        if not bound and (name.startswith("mlx5") or hca_type.startswith("MT41")):
            bound = "mlx5_core"  # trees without the device's link, as containers see them
        pci = pci_address(folder)
        shared = {
            "host": self._host.name,
            "pci": pci,
            "driver": bound,
            "hca_type": hca_type,
            "node_guid": parse_guid(read_once(folder / "node_guid") or b"") or "",
            "board_id": read_text(folder / "board_id"),
            "firmware": read_text(folder / "fw_ver"),
        }
        ports = []
        for number in sorted(int(entry.name) for entry in (folder / "ports").iterdir() if _PORT.fullmatch(entry.name)):
            place = folder / "ports" / str(number)
            netdev = netdev_of_port(folder, number)
            link_layer = read_text(place / "link_layer")
            mac = read_text(self._host.sysfs / "class" / "net" / netdev / "address") if netdev else ""
            facts = {**shared, "netdev": netdev, "link_layer": link_layer, "mac": mac}
            kind = " ".join(filter(None, (link_layer, hca_type or bound, shared["board_id"])))
            files = DRIVERS.get(bound, PMA)
            port = Port(name, number, place, files, bound, kind, epoch, facts)
            if number in known:
                port.take_over(known.pop(number))
            port.find_files()
            ports.append(port)
        for gone in (*known.values(), *(port for port in old if port.epoch != epoch)):
            gone.close()
        return ports

    def _number_rails(self) -> None:
        """Number the ports of each kind in the order of their PCI addresses, which completes what is told of them."""
        # A copy: a call that hung may come back meanwhile and add its device.
        ports = [port for ports in tuple(self._devices.values()) for port in ports]
        seats = [Seat(port.kind, port.facts["pci"], port.device, port.number) for port in ports]
        for port, rail in zip(ports, number_rails(seats, self._options.rails), strict=True):
            facts = {**port.facts, "rail": rail}
            port.info = tuple(facts[name] for name in SCHEMA.metrics["info"].extra)

    def _tables(self, readings: Iterable[PortReading]) -> list[Table]:
        """Make one table for each driver, whose counters share their widths."""
        parts: dict[str, list[PortReading]] = {}
        for reading in readings:
            parts.setdefault(reading.port.driver, []).append(reading)
        return [self._table(part, readings) for part, readings in parts.items()]

    def _counters(
        self, part: str, files: Sequence[CounterFile], values: Sequence[list[int | None]]
    ) -> dict[str, Column]:
        """Turn the values of ports into columns.

        A column that did not change is the very same object as last time, which costs those who read it nothing.
        """
        before, last = self._columns.get(part, ([], {}))
        if len(before) == len(values) and all(map(is_, before, values)):
            return dict(last)
        metrics = SCHEMA.metrics
        columns: dict[str, Column] = {}
        for file, cells in zip(files, zip(*values, strict=True), strict=True):
            old = last.get(file.ending)
            if old is not None and old.values == cells:
                columns[file.ending] = old
            elif cells.count(None) != len(cells):
                columns[file.ending] = Column(metrics[file.ending], cells, file.width, file.saturates, file.factor)
        self._columns[part] = (values, columns)
        return dict(columns)

    def _table(self, part: str, readings: Sequence[PortReading]) -> Table:
        keeper = self._keepers.setdefault(part, RowKeeper(LABELS))
        ports = [reading.port for reading in readings]
        metrics = SCHEMA.metrics
        values = [reading.values for reading in readings]
        columns = self._counters(part, ports[0].files, values)
        for ending in ("link_up", "link_speed_bytes_per_second", "link_lanes", "port_state", "port_physical_state"):
            columns[ending] = Column(metrics[ending], [reading.link[ending] for reading in readings])
        columns["info"] = Column(metrics["info"], [port.info for port in ports])
        now = readings[0].time
        return Table(
            SCHEMA,
            keeper.rows([(port.device, str(port.number)) for port in ports]),
            columns,
            time=now,
            times=own_times(now, [reading.time for reading in readings]),
            epochs=[port.epoch for port in ports],
            kinds=[port.kind for port in ports],
            part=part,
        )


def _build(options: RdmaOptions, host: Host) -> list[Source]:
    return [RdmaSource(options, host)]


DEFINITION = Definition("rdma", RdmaOptions, (SCHEMA,), _build)
