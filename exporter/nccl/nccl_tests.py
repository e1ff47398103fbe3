"""Output of nccl-tests and rccl-tests: tables of all releases, the JSON of -J, and the baseline derived from them.

Tables are parsed by column, after the prefixes and tags of launchers are removed. Neither environment nor arguments of
the JSON are kept: the environment is complete and contains secrets.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType

import msgspec

from exporter.core.collectives import OTHER, known_kind
from exporter.core.printable import printable
from exporter.nccl.benchmark import BenchmarkRun, Measurement, Row
from exporter.nccl.decoding import (
    MAX_BANDWIDTH,
    MAX_BYTES,
    MAX_RANKS,
    FormatError,
    decode,
)

MAX_TEXT = 16 << 20
"""Bytes of an output."""

MAX_LINE = 4096
"""Bytes of a line."""

MAX_JSON = 64 << 20
"""Bytes of a JSON file, which may contain the time of every iteration."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """Bus bandwidth reached by a collective at one size.

    Attributes:
        bus_bandwidth: Bytes per second, out of place if measured: the best of the rows of this size.
        n_ranks: Number of ranks; None if unknown.
        n_nodes: Number of hosts; None if unknown.
    """

    bus_bandwidth: float
    n_ranks: int | None
    n_nodes: int | None


_TAG = re.compile(r"\[\d{1,6}\]|\[\d{1,6},\d{1,6}\](?:<\w{1,16}>:?)?")
_LABEL = re.compile(r"^\s*(?:\d{1,7}: |\d{4}-\d\d-\d\d\S{0,32} )")
_DEVICE = re.compile(
    r"# *Rank +(\d{1,7}) +(?:Group +\d{1,7} +)?Pid +\d{1,10} +on +(\S{1,255}) +device +\d{1,4} "
    r"(?: *\[[^\]]{1,64}\] +(\S.{0,99}))?"
)
_NAME = re.compile(r"# Collective test (?:starting|concluded): (\w{1,40}?)(?:_perf)?\s*$")
_LIBRARY = re.compile(r"\b[nr]ccl-library=(\d{4,6})")
_VERSION = re.compile(r"[NR]CCL version (?:: )?(\d{1,3}\.\d{1,3}\.\d{1,3})")
_BOUNDS = re.compile(r"# Out of bounds values +: +(\d{1,12}) ")
_AVERAGE = re.compile(r"# Avg bus bandwidth +: +(\S{1,32})")
_FAILURE = re.compile(r"Test NCCL failure|: Test failure |Test CUDA failure")
_STAMP = re.compile(r"(?: {1,64}\d{4}-\d\d-\d\d {1,64}\d\d:\d\d:\d\d)\s*$")
_REDOP = re.compile(r"[a-z]{3,12}")

_START = re.compile(rb"# (?:nccl|rccl)-tests version |# Collective test starting: |nThread +\d+ +nGpus +\d+ ")
"""Lines before the ranks of a run: all of them in current releases, the last one alone in old ones."""

_RESULT = re.compile(
    rb"(?:\A|[\s>\]])\d{1,18} +\d{1,18} +[a-z]\w{1,15} "
    rb"|# Out of bounds values|# Avg bus bandwidth|Test NCCL failure|: Test failure |Test CUDA failure"
)
"""Lines after which a line of _START begins another run: rows of a table, and what ends one."""

_PER_SIDE = MappingProxyType({8: 4, 16: 8, 4: 4})
"""Columns of one half by the number of numeric columns: time, two bandwidths, wrong elements; with -I four more.

Replayed traces are measured in place only.
"""


def parse_outputs(data: bytes) -> list[BenchmarkRun]:
    """Parse the outputs of one or several runs, text or JSON.

    Raises:
        FormatError: As by `parse_runs` and `parse_json_runs`.
    """
    return parse_json_runs(data) if data.lstrip()[:1] == b"{" else parse_runs(data)


def parse_runs(data: bytes) -> list[BenchmarkRun]:
    """Parse the outputs of one or several runs that were written one after the other into a file.

    Raises:
        FormatError: As by `parse_text`.
    """
    if len(data) > MAX_TEXT:
        raise FormatError("too_large", f"{len(data)} bytes; at most {MAX_TEXT} are read")
    starts, place, ended = [0], 0, False
    for line in data.splitlines(keepends=True):
        if len(line) > MAX_LINE:
            pass
        elif ended and _START.search(line):
            starts.append(place)
            ended = False
        elif not ended:
            ended = _RESULT.search(line) is not None
        place += len(line)
    return [parse_text(data[start:end]) for start, end in zip(starts, [*starts[1:], len(data)], strict=True)]


def parse_text(data: bytes) -> BenchmarkRun:
    """Parse the output of one run; lines that are not of the test are skipped.

    Raises:
        FormatError: It is too large, or of another program: nccom-test (Trainium), the JSON of Meta's fork.
    """
    if len(data) > MAX_TEXT:
        raise FormatError("too_large", f"{len(data)} bytes; at most {MAX_TEXT} are read")
    if b"time:avg(us)" in data:
        raise FormatError("unsupported", "a table of nccom-test, not of nccl-tests")
    if b'"nccl-tests structured output"' in data:
        raise FormatError("unsupported", "JSON of a fork of nccl-tests; run it without --json, or upstream with -J")
    run = BenchmarkRun()
    columns: list[str] | None = None
    for raw in data.splitlines():
        if len(raw) > MAX_LINE:
            run.bad_rows += 1
            continue
        line = _LABEL.sub("", raw.decode("utf-8", "replace")).replace("\0", " ")
        words = _TAG.sub(" ", line).replace("#wrong", "wrong").split()
        if {"size", "count", "type", "busbw"} <= set(words):
            columns = [word for word in words if word != "#"]
            run.foreign_column |= columns[0] != "size"
        elif words and words[0].isdigit():
            _row(run, _STAMP.sub("", _TAG.sub(" ", line)).split(), columns)
        else:
            _fact(run, _TAG.sub("", line) if "Rank" not in line else line)
    return run


def _fact(run: BenchmarkRun, line: str) -> None:
    """Parse a line that is not a row."""
    if (found := _DEVICE.search(line)) and int(found[1]) < MAX_RANKS:
        run.ranks[int(found[1])] += 1
        run.hosts.add(printable(found[2]))
        run.add_model(printable(found[3] or ""))
    elif found := _NAME.search(line):
        run.collective = _collective(found[1])
    elif found := _LIBRARY.search(line):
        run.nccl_version = _version(int(found[1]))
    elif found := _VERSION.search(line):
        run.nccl_version = found[1]
    elif found := _BOUNDS.search(line):
        run.out_of_bounds = int(found[1])
    elif found := _AVERAGE.search(line):
        run.average_bus_bandwidth = _bandwidth(found[1])
    elif _FAILURE.search(line) and len(run.failures) < 100:
        run.failures.append(printable(line.strip()[:200]))


def _version(number: int) -> str:
    """Return the text of NCCL_VERSION_CODE: 2804 is 2.8.4, and 22304 is 2.23.4."""
    major = 1000 if number < 10_000 else 10_000
    return f"{number // major}.{number % major // 100}.{number % 100}"


def _collective(name: str) -> str | None:
    kind = known_kind(name.removesuffix("_perf"))
    return None if kind == OTHER else kind


def _row(run: BenchmarkRun, words: list[str], columns: list[str] | None) -> None:
    """Add a row, or count it as bad: rows lose numbers where outputs are interleaved."""
    start = columns.index("size") if columns else 0
    words = words[start:]
    try:
        size, count, kind = int(words[0]), int(words[1]), words[2]
        rest = words[3:]
        redop = rest.pop(0) if rest and _REDOP.fullmatch(rest[0]) else ""
        if len(rest) % 2:  # the root column; halves have an even number of columns
            rest.pop(0)
        side = _PER_SIDE[len(rest)]
        rounded = columns is not None and "error" in columns
        in_place = _measure(rest[-side:], rounded=rounded)
        out_of_place = _measure(rest[:side], rounded=rounded) if len(rest) > side else None
    except (ValueError, LookupError):
        run.bad_rows += 1
        return
    if not (0 <= size <= MAX_BYTES and kind.isascii() and kind.isalnum() and len(kind) <= 16):
        run.bad_rows += 1
        return
    run.rows.append(Row(size, count, kind, redop, out_of_place, in_place))


def _measure(words: list[str], *, rounded: bool) -> Measurement:
    """Parse one half of a row.

    Raises:
        ValueError: It is malformed.
    """
    algorithm, bus = _bandwidth(words[1]), _bandwidth(words[2])
    seconds = float(words[0]) / 1e6
    if algorithm is None or bus is None or not 0 <= seconds < math.inf:
        raise ValueError("no time or bandwidth")
    wrong = None if rounded or words[3] == "N/A" else _whole(words[3])
    return Measurement(seconds, algorithm, bus, wrong)


def _whole(text: str) -> int | None:
    """Return a number of wrong elements; None for a rounding error (2e-07, where no header names the column)."""
    number = float(text)
    if not 0 <= number < math.inf:
        raise ValueError("not a finite number")
    return int(number) if number.is_integer() and "e-" not in text and "e+00" not in text else None


def _bandwidth(text: str) -> float | None:
    """Convert GB/s to bytes per second; None if malformed."""
    try:
        number = float(text) * 1e9
    except ValueError:
        return None
    return number if 0 <= number <= MAX_BANDWIDTH else None


class _Half(msgspec.Struct, frozen=True):
    alg_bw: float | str
    bus_bw: float | str
    time: float | str | None = None
    cpu_time: float | str | None = None
    nwrong: float | str | None = None


class _Result(msgspec.Struct, frozen=True):
    size: int
    count: int
    type: str = ""
    redop: str = ""
    out_of_place: _Half | None = None
    in_place: _Half | None = None
    experiment_name: str = ""


class _Device(msgspec.Struct, frozen=True):
    rank: int
    hostname: str = ""
    device_info: str = ""


class _Config(msgspec.Struct, frozen=True):
    devices: list[_Device] = []


class _OutOfBounds(msgspec.Struct, frozen=True):
    count: int | None = None


class _Average(msgspec.Struct, frozen=True):
    bandwidth: float | str | None = None


class _Document(msgspec.Struct, frozen=True):
    """The JSON of -J. `env` is omitted on purpose, so that it is never decoded."""

    version: int
    results: list[msgspec.Raw]
    args: list[str] = []
    nccl_version: int = 0
    config: _Config = _Config()
    out_of_bounds: _OutOfBounds = _OutOfBounds()
    average_bus_bandwidth: _Average = _Average()
    errors: list[str] = []


_document = msgspec.json.Decoder(_Document)
_result = msgspec.json.Decoder(_Result)


_NEXT_DOCUMENT = re.compile(rb'\}\s{0,64}(?=\{\s{0,64}"\w)')
"""What is between two documents, and nowhere in one: members have commas, and a quote in a text is escaped."""


def parse_json_runs(data: bytes) -> list[BenchmarkRun]:
    """Parse the outputs of -J of one or several runs that were written one after the other into a file.

    Raises:
        FormatError: As by `parse_json`.
    """
    ends = [found.start() + 1 for found in _NEXT_DOCUMENT.finditer(data)]
    return [parse_json(data[start:end]) for start, end in zip([0, *ends], [*ends, len(data)], strict=True)]


def parse_json(data: bytes) -> BenchmarkRun:
    """Parse the output of -J; invalid results are counted and skipped.

    Raises:
        FormatError: It is not such a file, or too large.
    """
    document = decode(_document, data, MAX_JSON)
    run = BenchmarkRun(out_of_bounds=document.out_of_bounds.count)
    if 0 < document.nccl_version < 1_000_000:
        run.nccl_version = _version(document.nccl_version)
    if document.args:
        run.collective = _collective(document.args[0].rsplit("/", 1)[-1][:64])
    for device in document.config.devices:
        if 0 <= device.rank < MAX_RANKS:
            run.ranks[device.rank] += 1
            run.hosts.add(printable(device.hostname[:255]))
            run.add_model(printable(device.device_info[:100]))
    for raw in document.results:
        try:
            result = decode(_result, bytes(raw), MAX_JSON)
            halves = [_half(one) for one in (result.out_of_place, result.in_place)]
            if not 0 <= result.size <= MAX_BYTES:
                raise FormatError("invalid", "implausible size")
        except FormatError:
            run.bad_rows += 1
            continue
        run.collective = run.collective or _collective(result.experiment_name[:64])
        run.rows.append(Row(result.size, result.count, result.type[:16], result.redop[:16], *halves))
    average = document.average_bus_bandwidth.bandwidth
    run.average_bus_bandwidth = _bandwidth(str(average)) if average is not None else None
    # NCCL's last error may be of an attempt that was retried with success; missing sizes show that the run failed.
    run.failures = [printable(one[:200]) for one in document.errors[:100] if one and not run.rows]
    return run


def _half(half: _Half | None) -> Measurement | None:
    if half is None:
        return None
    seconds = half.time if half.time is not None else half.cpu_time
    wrong = "N/A" if half.nwrong is None else str(half.nwrong)
    try:
        return _measure([str(seconds), str(half.alg_bw), str(half.bus_bw), wrong], rounded=False)
    except ValueError as error:
        raise FormatError("invalid", str(error)) from None


def baseline(runs: Iterable[BenchmarkRun], collective: str | None = None) -> dict[tuple[str, int], Baseline]:
    """Return the best bus bandwidth by collective and size in bytes, as nccl-tests counts sizes.

    Args:
        runs: Parsed outputs.
        collective: Collective of runs whose output does not name it.

    Raises:
        FormatError: A run is not usable as a baseline (`refused`); the text contains the reason, and which one it is of
            several.
    """
    best: dict[tuple[str, int], Baseline] = {}
    runs = list(runs)
    for number, run in enumerate(runs, 1):
        kind = run.collective or (known_kind(collective) if collective else OTHER)
        if reason := rejection_reason(run, kind):
            raise FormatError("refused", reason if len(runs) == 1 else f"run {number} of {len(runs)}: {reason}")
        for row in run.rows:
            measure = row.out_of_place or row.in_place
            if row.size and measure is not None and measure.bus_bandwidth:
                known = best.get((kind, row.size))
                if known is None or known.bus_bandwidth < measure.bus_bandwidth:
                    best[kind, row.size] = Baseline(measure.bus_bandwidth, run.n_ranks, run.n_nodes)
    return best


def rejection_reason(run: BenchmarkRun, kind: str) -> str | None:
    """Return why a run is not usable as a baseline; None if it is."""
    checks = (
        (
            any(times > 1 for times in run.ranks.values()),
            "ranks are listed twice: runs are mixed, as of a build without MPI",
        ),
        (run.n_ranks == 1, "one rank alone: no data crossed the network"),
        (bool(run.failures), f"the test failed: {run.failures[:1]}"),
        (bool(run.wrong_results), run.wrong_results),
        (run.foreign_column, "a column before the sizes: rows of different runs"),
        (not run.rows, "no row with a size"),
        (not any(_busy(row) for row in run.rows), "no bus bandwidth above 0, as with one rank alone"),
        (kind == OTHER, "the output does not name the collective; specify it"),
        (
            kind in REDUCING and any(row.redop == "none" for row in run.rows),
            f"the rows are not of {kind}: no reduction",
        ),
    )
    return next((text for wrong, text in checks if wrong), None)


REDUCING = frozenset({"AllReduce", "ReduceScatter", "Reduce"})
"""Collectives whose rows name a reduction; those of others have `none`, or no such column."""


def _busy(row: Row) -> bool:
    return any(half is not None and half.bus_bandwidth > 0 for half in (row.out_of_place, row.in_place))
