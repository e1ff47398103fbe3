"""Tables of perftest (ib_write_lat, ib_read_lat, ib_write_bw …): latency and bandwidth between two RDMA ports.

perftest prints no host names. The ports are known by their addresses: the GID, which contains the IP address on
Ethernet, or else the LID.
"""

import math
import re
from dataclasses import dataclass, field
from ipaddress import IPv6Address

from exporter.core.printable import printable
from exporter.nccl.decoding import MAX_BANDWIDTH, MAX_BYTES, FormatError

MAX_TEXT = 4 << 20
"""Bytes of an output."""

MAX_LINE = 4096
"""Bytes of a line."""

MAX_ROWS = 1024
"""Rows of a table: one for each size."""


@dataclass(frozen=True, slots=True)
class PerftestRow:
    """One message size.

    Attributes:
        size: Bytes.
        iterations: Number of messages.
        bandwidth: Bytes per second on average; None in tables of latency.
        latency: Seconds: the median, or the mean where the test ran for a time (-D); None in tables of bandwidth.
        latency_p99: Seconds of the 99th percentile; None where absent.
    """

    size: int
    iterations: int
    bandwidth: float | None = None
    latency: float | None = None
    latency_p99: float | None = None


@dataclass(slots=True)
class PerftestRun:
    """One test.

    Attributes:
        test: "RDMA_Write Latency", "RDMA_Read BW", "Send Bidirectional BW" …
        link: "IB" or "Ethernet"; empty where absent.
        ends: Addresses of the local and the remote port, as far as they are known.
        rows: Message sizes.
        failures: Lines that report a failed test.
        bad_rows: Rows that could not be parsed, such as those with a negative result.
    """

    test: str
    link: str = ""
    ends: dict[str, str] = field(default_factory=dict)
    rows: list[PerftestRow] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    bad_rows: int = 0


_TITLE = re.compile(
    r"^ {0,60}(RDMA_Write|RDMA_Read|Send|Atomic)((?: [A-Z][A-Za-z_-]{1,20}){0,3}) (BW|Latency) Test\s*$"
)
_LINK = re.compile(r"^ {0,4}Link type {0,20}: {0,4}(IB|Ethernet)\b")
_ADDRESS = re.compile(r"^ {0,4}(local|remote) address: LID (0x[0-9a-f]{1,8}|0{1,8}) ")
_GID = re.compile(r"^ {0,4}GID: (\d{1,3}(?::\d{1,3}){15})\s*$")
_FAILURE = re.compile(r"Completion with error|Failed status \d|Couldn't connect to|Unexpected CM event|Unable to ")

_NAMES = (
    ("BW average", "BW_average"),
    ("BW peak", "BW_peak"),
    ("BW Port", "BW_Port"),
    ("MsgRate Port", "MsgRate_Port"),
    ("99.9% percentile", "p999"),
    ("99% percentile", "p99"),
    ("tps average", "tps"),
)
"""Names of columns with a space, and names without."""

_MIB, _GIGABIT = float(1 << 20), 1e9 / 8
"""Bytes of the units of bandwidth: what older releases print as MB are 2^20 bytes."""


def is_perftest(data: bytes) -> bool:
    """Return whether a file contains a table or the JSON of perftest."""
    return re.search(rb"#bytes +#", data) is not None or b'"test_info"' in data or b"\ntest_info: {" in data


def parse_perftest(data: bytes) -> list[PerftestRun]:
    """Parse the outputs of one or several tests that were written one after the other into a file.

    Raises:
        FormatError: It is too large, or the JSON of --out_json.
    """
    if len(data) > MAX_TEXT:
        raise FormatError("too_large", f"{len(data)} bytes; at most {MAX_TEXT} are read")
    if b"#bytes" not in data:
        raise FormatError("unsupported", "JSON of perftest, which has no addresses; keep the table that it prints")
    runs: list[PerftestRun] = []
    columns: list[str] = []
    end = ""
    for raw in data.splitlines():
        if len(raw) > MAX_LINE:
            continue
        line = printable(raw.decode("utf-8", "replace").replace("\t", " "))
        if found := _TITLE.match(line):
            runs.append(PerftestRun(f"{found[1]}{found[2]} {found[3]}"))
            columns, end = [], ""
        elif not runs:
            continue
        elif "#bytes" in line:
            columns = _columns(line)
        elif line.strip()[:1].isdigit():
            _add_row(runs[-1], line.split(), columns)
        else:
            end = _add_fact(runs[-1], line, end)
    if not runs:
        raise FormatError("invalid", "a table of perftest without its title, such as RDMA_Write Latency Test")
    return runs


def _columns(line: str) -> list[str]:
    for name, word in _NAMES:
        line = line.replace(name, word)
    return line.split()


def _add_fact(run: PerftestRun, line: str, end: str) -> str:
    """Parse a line that is not a row; returns the end to which a GID in the next line belongs."""
    if found := _ADDRESS.match(line):
        if found[1] not in run.ends and int(found[2], 16):
            run.ends[found[1]] = f"LID {int(found[2], 16)}"
        return found[1]
    if found := _LINK.match(line):
        run.link = found[1]
    elif (found := _GID.match(line)) and end:
        address = _address_of([int(one) for one in found[1].split(":")])
        if address and (run.link == "Ethernet" or end not in run.ends):
            run.ends[end] = address
    elif _FAILURE.search(line) and len(run.failures) < 10:
        run.failures.append(line.strip()[:200])
    return ""


def _address_of(octets: list[int]) -> str:
    """Return the text of a GID, of an IPv4 address where it contains one; empty if it is not a GID, or is 0."""
    if max(octets) > 255 or not any(octets):
        return ""
    address = IPv6Address(bytes(octets))
    return str(address.ipv4_mapped or address)


def _add_row(run: PerftestRun, words: list[str], columns: list[str]) -> None:
    """Add a row, or count it as bad."""
    if len(run.rows) >= MAX_ROWS:
        return
    cells = dict(zip(columns, words, strict=False))
    try:
        size, iterations = int(cells["#bytes"]), int(cells["#iterations"])
        if not 0 <= size <= MAX_BYTES:
            raise ValueError("implausible size")
        row = PerftestRow(
            size, iterations, _bandwidth(cells), _seconds(cells, "t_typical", "t_avg"), _seconds(cells, "p99")
        )
        if (row.bandwidth is None) == (row.latency is None):
            raise ValueError("neither a bandwidth nor a latency")
    except (ValueError, KeyError):
        run.bad_rows += 1
        return
    run.rows.append(row)


def _bandwidth(cells: dict[str, str]) -> float | None:
    for unit, factor in (("Gb/sec", _GIGABIT), ("MB/sec", _MIB), ("MiB/sec", _MIB)):
        if (text := cells.get(f"BW_average[{unit}]")) is not None:
            return _positive(text, factor, MAX_BANDWIDTH)
    return None


def _seconds(cells: dict[str, str], *names: str) -> float | None:
    for name in names:
        if (text := cells.get(f"{name}[usec]")) is not None:
            return _positive(text, 1e-6, math.inf)
    return None


def _positive(text: str, factor: float, largest: float) -> float:
    """Convert a number.

    Raises:
        ValueError: It is not above zero, or not plausible.
    """
    number = float(text) * factor
    if not 0 < number < largest:
        raise ValueError("not above zero")
    return number
