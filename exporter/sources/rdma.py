"""RDMA ports of this host, from the files of /sys/class/infiniband.

Each counter file is one firmware command on real hardware, so descriptors are kept, devices are read in turn in one
thread, and what is excluded is never opened. Words of four bytes become bytes; the widths are those of the kernel's
PMA attributes (drivers/infiniband/core/sysfs.c), where counters under 64 bits stick at their top.
"""

import asyncio
import errno
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from exporter import vocabulary
from exporter.linux.infiniband import ACTIVE, parse_counter, parse_guid, parse_numbered, parse_rate
from exporter.linux.kept import COUNTER_SIZE, close_kept, open_kept, read_once, read_text
from exporter.linux.pci import bus_order, driver, netdev_of_port, pci_address
from exporter.serial import HungError, Serial
from exporter.source import Definition, Failure, Host, Options, Reading, Source, SourceError
from exporter.table import Column, RowKeeper, Table
from exporter.vocabulary import counter, gauge, info

LABELS = ("device", "port")

RESCAN = 60.0
"""Seconds after which folders are listed again and facts that change rarely are read again."""

TRIES = 3
"""Times running that a file may answer EINVAL before it rests: each such read makes the kernel log a line."""

REST = 3600.0
"""Seconds that a file rests, unless its link comes up first."""

CALL_DEADLINE = 2.0
"""Seconds that the files of one device may take."""


class CounterFile(NamedTuple):
    """One file of a port: where it is, the ending of its metric, its width, and how it becomes a base unit."""

    path: str
    ending: str
    width: int = 64
    saturates: bool = False
    factor: int = 1


PMA: tuple[CounterFile, ...] = (
    CounterFile("counters/port_rcv_data", "receive_bytes_total", factor=4),
    CounterFile("counters/port_xmit_data", "transmit_bytes_total", factor=4),
    CounterFile("counters/port_rcv_packets", "receive_packets_total"),
    CounterFile("counters/port_xmit_packets", "transmit_packets_total"),
    CounterFile("counters/unicast_rcv_packets", "receive_unicast_packets_total"),
    CounterFile("counters/unicast_xmit_packets", "transmit_unicast_packets_total"),
    CounterFile("counters/multicast_rcv_packets", "receive_multicast_packets_total"),
    CounterFile("counters/multicast_xmit_packets", "transmit_multicast_packets_total"),
    CounterFile("counters/port_rcv_errors", "receive_errors_total", 16, saturates=True),
    CounterFile("counters/port_rcv_remote_physical_errors", "receive_remote_physical_errors_total", 16, saturates=True),
    CounterFile("counters/port_rcv_switch_relay_errors", "receive_switch_relay_errors_total", 16, saturates=True),
    CounterFile("counters/port_rcv_constraint_errors", "receive_constraint_errors_total", 8, saturates=True),
    CounterFile("counters/port_xmit_constraint_errors", "transmit_constraint_errors_total", 8, saturates=True),
    CounterFile("counters/port_xmit_discards", "transmit_discards_total", 16, saturates=True),
    CounterFile("counters/port_xmit_wait", "transmit_wait_ticks_total", 32, saturates=True),
    CounterFile("counters/symbol_error", "symbol_errors_total", 16, saturates=True),
    CounterFile("counters/link_downed", "link_down_total", 8, saturates=True),
    CounterFile("counters/link_error_recovery", "link_error_recovery_total", 8, saturates=True),
    CounterFile("counters/local_link_integrity_errors", "local_link_integrity_errors_total", 4, saturates=True),
    CounterFile("counters/excessive_buffer_overrun_errors", "excessive_buffer_overrun_errors_total", 4, saturates=True),
    CounterFile("counters/VL15_dropped", "vl15_dropped_total", 16, saturates=True),
)
"""The files of `counters/`, the same for every driver that has the folder."""

MLX5: tuple[CounterFile, ...] = (
    CounterFile("hw_counters/np_ecn_marked_roce_packets", "ecn_marked_packets_total"),
    CounterFile("hw_counters/np_cnp_sent", "cnp_sent_total"),
    CounterFile("hw_counters/rp_cnp_handled", "cnp_handled_total"),
    CounterFile("hw_counters/rp_cnp_ignored", "cnp_ignored_total"),
    CounterFile("hw_counters/rx_icrc_encapsulated", "icrc_errors_total"),
    CounterFile("hw_counters/out_of_buffer", "out_of_buffer_total", 32),
    CounterFile("hw_counters/out_of_sequence", "out_of_sequence_total", 32),
    CounterFile("hw_counters/packet_seq_err", "packet_sequence_errors_total", 32),
    CounterFile("hw_counters/implied_nak_seq_err", "implied_nak_sequence_errors_total", 32),
    CounterFile("hw_counters/local_ack_timeout_err", "local_ack_timeouts_total", 32),
    CounterFile("hw_counters/rnr_nak_retry_err", "rnr_nak_retries_total", 32),
    CounterFile("hw_counters/duplicate_request", "duplicate_requests_total", 32),
    CounterFile("hw_counters/rx_write_requests", "receive_write_requests_total", 32),
    CounterFile("hw_counters/rx_read_requests", "receive_read_requests_total", 32),
    CounterFile("hw_counters/rx_atomic_requests", "receive_atomic_requests_total", 32),
    CounterFile("hw_counters/rx_dct_connect", "receive_dct_connects_total", 32),
    CounterFile("hw_counters/roce_adp_retrans", "adaptive_retransmissions_total", 32),
    CounterFile("hw_counters/roce_adp_retrans_to", "adaptive_retransmission_timeouts_total", 32),
    CounterFile("hw_counters/roce_slow_restart", "slow_restarts_total", 32),
    CounterFile("hw_counters/roce_slow_restart_cnps", "slow_restart_cnps_total", 32),
    CounterFile("hw_counters/roce_slow_restart_trans", "slow_restart_transitions_total", 32),
    CounterFile("hw_counters/req_cqe_error", "requester_completion_errors_total", 32),
    CounterFile("hw_counters/req_cqe_flush_error", "requester_flush_errors_total", 32),
    CounterFile("hw_counters/req_remote_access_errors", "requester_remote_access_errors_total", 32),
    CounterFile("hw_counters/req_remote_invalid_request", "requester_remote_invalid_requests_total", 32),
    CounterFile("hw_counters/req_transport_retries_exceeded", "requester_transport_retries_exceeded_total", 32),
    CounterFile("hw_counters/req_rnr_retries_exceeded", "requester_rnr_retries_exceeded_total", 32),
    CounterFile("hw_counters/resp_cqe_error", "responder_completion_errors_total", 32),
    CounterFile("hw_counters/resp_cqe_flush_error", "responder_flush_errors_total", 32),
    CounterFile("hw_counters/resp_local_length_error", "responder_local_length_errors_total", 32),
    CounterFile("hw_counters/resp_remote_access_errors", "responder_remote_access_errors_total", 32),
)
"""The files of `hw_counters/` of mlx5 (drivers/infiniband/hw/mlx5/counters.c); its q-counters wrap at 32 bits."""

STATES = ("state", "phys_state", "rate")
"""The files that tell of a port's link."""

DRIVERS: Mapping[str, tuple[CounterFile, ...]] = {"mlx5_core": (*PMA, *MLX5)}
"""What there is to read for a driver; PMA alone for any other."""

SCHEMA = vocabulary.schema(
    "fabric_rdma_",
    LABELS,
    [
        *(file.ending for file in (*PMA, *MLX5) if file.ending in vocabulary.ENDINGS),
        "link_up",
        "link_speed_bytes_per_second",
        "link_expected_speed_bytes_per_second",
        "link_degraded",
        "counter_resets_total",
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
            "Ticks, of a length that depends on the device, in which data waited for credits of the peer."
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


class RdmaOptions(Options, frozen=True):
    """Configuration of `sources.rdma`; include and exclude are names of devices.

    Attributes:
        rails: Rail of each device, for nodes where the order of the PCI addresses does not tell.
    """

    rails: dict[str, str] = {}  # noqa: RUF012  # msgspec copies mutable defaults


@dataclass(slots=True)
class _Kept:
    """One file of a port, which stays open: the place of its value, and how often running it answered EINVAL."""

    place: int
    path: str
    descriptor: int = -1
    refusals: int = 0
    rests_until: float = 0.0

    def read(self) -> bytes:
        """Read the file, opening it where it is not open; one whose device went is opened anew next time.

        Raises:
            OSError: As open and read do.
        """
        if self.descriptor < 0:
            self.descriptor = open_kept(self.path)
        try:
            return os.pread(self.descriptor, COUNTER_SIZE, 0)
        except OSError as error:
            if error.errno == errno.ENODEV:
                self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        close_kept(self.descriptor)
        self.descriptor = -1


@dataclass(slots=True)
class Port:
    """One port: what was found out about it, and its open files."""

    device: str
    number: int
    folder: Path
    files: tuple[CounterFile, ...]
    driver: str
    kind: str
    epoch: int
    facts: Mapping[str, str]
    states: list[_Kept] = field(default_factory=list)
    kept: list[_Kept] = field(default_factory=list)
    was_up: bool = False

    def close(self) -> None:
        """Close all files."""
        for one in (*self.states, *self.kept):
            one.close()
        self.states, self.kept = [], []


class PortReading(NamedTuple):
    """What one read of a port gave: its link, the values of its files in their order, and what failed."""

    port: Port
    link: Mapping[str, int | float | None]
    values: list[int | None]
    failures: list[Failure]
    time: float


class RdmaSource:
    """Reads the RDMA ports of this host."""

    name = "rdma"
    target = ""
    changed: asyncio.Event | None = None

    def __init__(self, options: RdmaOptions, host: Host) -> None:
        """Take the configuration and the roots of the file systems."""
        self.interval = float(options.interval)
        self._options = options
        self._host = host
        self._class = host.sysfs / "class" / "infiniband"
        self._serial = Serial("rdma", CALL_DEADLINE)
        self._devices: dict[str, list[Port]] = {}
        self._scanned = float("-inf")
        self._rails: dict[tuple[str, int], str] = {}
        self._keepers: dict[str, RowKeeper] = {}

    async def applies(self) -> bool:
        """Tell whether there is any RDMA device that is not excluded."""
        found = await self._serial.run([("scan", self._names)])
        return isinstance(found["scan"], list) and bool(found["scan"])

    async def read(self) -> Reading:
        """Read every port; devices fail alone."""
        names = (await self._serial.run([("scan", self._names)]))["scan"]
        if not isinstance(names, list):
            raise SourceError("timeout" if isinstance(names, HungError) else "unreadable", str(names))
        rescan = monotonic() - self._scanned >= RESCAN
        if rescan:
            self._scanned = monotonic()
        for gone in self._devices.keys() - set(names) - self._serial.out:
            for port in self._devices.pop(gone):
                port.close()
        calls: list[tuple[str, Callable[[], list[PortReading]]]] = [
            (name, partial(self._read_device, name, rescan)) for name in names
        ]
        results = await self._serial.run(calls)
        readings: list[PortReading] = []
        failures: list[Failure] = []
        for name in names:
            result = results[name]
            if isinstance(result, HungError):
                failures.append(Failure(name, "timeout", str(result)))
            elif isinstance(result, Exception):
                failures.append(_failure(name, self._class / name, result))
            else:
                readings += result
        self._number_rails()
        failures += [failure for reading in readings for failure in reading.failures]
        return Reading(self._tables(readings), failures)

    async def close(self) -> None:
        """Close all files that no hung call may still be using."""
        self._serial.close()
        for name, ports in self._devices.items():
            if name not in self._serial.out:
                for port in ports:
                    port.close()
        self._devices = {}

    def _names(self) -> list[str]:
        """List the devices that may be touched."""
        try:
            names = sorted(os.listdir(self._class))  # noqa: PTH208  # at each poll; Path objects cost ten times this
        except FileNotFoundError:
            return []
        chosen = self._options
        return [
            name
            for name in names
            if any(fnmatchcase(name, pattern) for pattern in chosen.include)
            and not any(fnmatchcase(name, pattern) for pattern in chosen.exclude)
        ]

    def _read_device(self, name: str, rescan: bool) -> list[PortReading]:
        """Read all ports of one device; runs in the thread."""
        ports = self._devices.get(name)
        epoch = os.stat(self._class / name).st_ino  # noqa: PTH116  # follows the link: another inode is another device
        if ports is None or not ports or ports[0].epoch != epoch or rescan:
            ports = self._devices[name] = self._scan_device(name, epoch, ports or [])
        return [_read_port(port) for port in ports]

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
        for number in sorted(int(entry.name) for entry in (folder / "ports").iterdir() if entry.name.isdecimal()):
            place = folder / "ports" / str(number)
            netdev = netdev_of_port(folder, number)
            link_layer = read_text(place / "link_layer")
            mac = read_text(self._host.sysfs / "class" / "net" / netdev / "address") if netdev else ""
            facts = {**shared, "netdev": netdev, "link_layer": link_layer, "mac": mac}
            kind = f"{link_layer} {hca_type or bound}".strip()
            files = DRIVERS.get(bound, PMA)
            port = Port(name, number, place, files, bound, kind, epoch, facts)
            if number in known:
                before = known.pop(number)
                port.states, port.kept, port.was_up = before.states, before.kept, before.was_up
            _find_files(port)
            ports.append(port)
        for gone in (*known.values(), *(port for port in old if port.epoch != epoch)):
            gone.close()
        return ports

    def _number_rails(self) -> None:
        """Number the ports of each kind in the order of their PCI addresses."""
        kinds: dict[str, list[Port]] = {}
        for ports in tuple(self._devices.values()):  # a call that hung may come back meanwhile and add its device
            for port in ports:
                kinds.setdefault(port.kind, []).append(port)
        self._rails = {}
        for ports in kinds.values():
            ports.sort(key=lambda port: (bus_order(port.facts["pci"], port.device), port.number))
            for rail, port in enumerate(ports):
                self._rails[port.device, port.number] = self._options.rails.get(port.device, str(rail))

    def _tables(self, readings: Iterable[PortReading]) -> list[Table]:
        """Make one table for each driver, whose counters share their widths."""
        parts: dict[str, list[PortReading]] = {}
        for reading in readings:
            parts.setdefault(reading.port.driver, []).append(reading)
        return [self._table(part, readings) for part, readings in parts.items()]

    def _table(self, part: str, readings: Sequence[PortReading]) -> Table:
        keeper = self._keepers.setdefault(part, RowKeeper(LABELS))
        ports = [reading.port for reading in readings]
        metrics = SCHEMA.metrics
        columns = {
            file.ending: Column(metrics[file.ending], values, file.width, file.saturates, file.factor)
            for file, values in zip(ports[0].files, zip(*(one.values for one in readings), strict=True), strict=True)
            if any(value is not None for value in values)
        }
        for ending in ("link_up", "link_speed_bytes_per_second", "link_lanes", "port_state", "port_physical_state"):
            columns[ending] = Column(metrics[ending], [reading.link[ending] for reading in readings])
        extra = metrics["info"].extra
        columns["info"] = Column(
            metrics["info"],
            [
                tuple(self._rails[port.device, port.number] if name == "rail" else port.facts[name] for name in extra)
                for port in ports
            ],
        )
        return Table(
            SCHEMA,
            keeper.rows([(port.device, str(port.number)) for port in ports]),
            columns,
            time=readings[0].time,
            epochs=[port.epoch for port in ports],
            kinds=[port.kind for port in ports],
            part=part,
        )


def _find_files(port: Port) -> None:
    """Find the files of a port that are not known yet; those that are not there are no failure."""
    if not port.states:
        port.states = [_Kept(place, str(port.folder / name)) for place, name in enumerate(STATES)]
    have = {one.place for one in port.kept}
    for place, file in enumerate(port.files):
        path = f"{port.folder}/{file.path}"
        if place not in have and os.path.exists(path):  # noqa: PTH110  # unlike Path's, it never raises
            port.kept.append(_Kept(place, path))


def _read_port(port: Port) -> PortReading:
    """Read the files of one port, each of which fails alone; runs in the thread."""
    failures: list[Failure] = []
    now = monotonic()
    link = _read_link(port, failures)
    values: list[int | None] = [None] * len(port.files)
    came_up = link["link_up"] == 1 and not port.was_up
    port.was_up = link["link_up"] == 1
    for one in port.kept:
        if one.rests_until:
            if now < one.rests_until and not came_up:
                continue
            one.rests_until = 0.0
        try:
            values[one.place] = parse_counter(one.read())
        except (OSError, ValueError) as error:
            failures.append(_failure(port.device, one.path, error))
            if isinstance(error, OSError):
                _rest(one, error, now)
        else:
            one.refusals = 0
    return PortReading(port, link, values, failures, now)


def _rest(one: _Kept, error: OSError, now: float) -> None:
    """Let a file rest that only ever answers EINVAL."""
    if error.errno == errno.EINVAL:
        one.refusals += 1
        if one.refusals >= TRIES:
            one.refusals, one.rests_until = 0, now + REST


def _read_link(port: Port, failures: list[Failure]) -> dict[str, int | float | None]:
    """Read state and speed; a speed that is only a placeholder is not told."""
    state, physical, rate = (_read_state(port, place, failures) for place in range(3))
    number = parse_numbered(state)
    speed = parse_rate(rate)
    up = None if number is None else int(number >= ACTIVE)
    if up != 1 or (
        speed is not None and port.facts["link_layer"] == "Ethernet" and rate.startswith(b"40 Gb/sec (4X QDR)")
    ):
        speed = None  # a down port shows the lowest rate there is; mlx5 shows 40G where it cannot name the speed
    return {
        "link_up": up,
        "link_speed_bytes_per_second": None if speed is None else speed.bytes_per_second,
        "link_lanes": None if speed is None else speed.lanes,
        "port_state": number,
        "port_physical_state": parse_numbered(physical),
    }


def _read_state(port: Port, place: int, failures: list[Failure]) -> bytes:
    one = port.states[place]
    try:
        return one.read()
    except OSError as error:
        failures.append(_failure(port.device, one.path, error))
        return b""


def _failure(device: str, path: str | Path, error: Exception) -> Failure:
    """Say what went wrong with a file; the reason is the errno's name, or `malformed`."""
    if isinstance(error, OSError) and error.errno is not None:
        reason = errno.errorcode.get(error.errno, "oserror").lower()
        return Failure(device, reason, f"{path}: {error.strerror}")
    return Failure(device, "malformed", f"{path}: {error}")


def _build(options: RdmaOptions, host: Host) -> list[Source]:
    return [RdmaSource(options, host)]


DEFINITION = Definition("rdma", RdmaOptions, (SCHEMA,), _build)
