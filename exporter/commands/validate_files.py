"""Files of the command `validate`: they are read, recognised, and converted to runs that can be compared."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from exporter.core.collectives import OTHER, known_kind
from exporter.core.printable import printable
from exporter.linux.untrusted_files import read_untrusted
from exporter.meaning.benchmarks.results import Kind, Point, Run, Tool
from exporter.nccl.benchmark import BenchmarkRun, Row
from exporter.nccl.decoding import FormatError
from exporter.nccl.nccl_tests import MAX_JSON, parse_outputs, rejection_reason
from exporter.nccl.perftest import PerftestRun, is_perftest, parse_perftest
from exporter.sources.nccl.baseline import kind_in_name

SHOWN_EVERY = 100
"""Files after which the progress is shown."""

ENOUGH_SAMPLES = 1000
"""Messages from which a 99th percentile is used: of 100 it is the maximum."""


def read_runs(paths: Sequence[str]) -> list[Run]:
    """Read files, each once. Blocks; shows its progress if standard error is a terminal."""
    runs: list[Run] = []
    shows = sys.stderr.isatty() and len(paths) > SHOWN_EVERY
    for number, path in enumerate(dict.fromkeys(paths), 1):
        runs += _runs_of_file(path)
        if shows and number % SHOWN_EVERY == 0:
            print(f"\r{number} of {len(paths)} files", end="", file=sys.stderr, flush=True)  # noqa: T201
    if shows:
        print("\r\033[K", end="", file=sys.stderr, flush=True)  # noqa: T201
    return runs


def _runs_of_file(path: str) -> list[Run]:
    """Read the runs of a file; one that is refused if it cannot be read."""
    shown = printable(path)
    try:
        data, _ = read_untrusted(str(Path(path).resolve()), MAX_JSON)
        runs: list[PerftestRun | BenchmarkRun]
        runs = [*parse_perftest(data)] if is_perftest(data) else [*parse_outputs(data)]
    except (OSError, RuntimeError) as error:  # the latter by a loop of links
        reason = getattr(error, "strerror", None) or str(error)
        return [Run(shown, (shown,), Kind(Tool.NCCL, ""), named=False, refused=f"cannot be read: {reason}")]
    except FormatError as error:
        return [Run(shown, (shown,), Kind(Tool.NCCL, ""), named=False, refused=str(error))]
    names = [shown] if len(runs) == 1 else [f"{shown} (run {number})" for number in range(1, len(runs) + 1)]
    return [
        _of_perftest(run, name) if isinstance(run, PerftestRun) else _of_nccl_tests(run, name, Path(path).name)
        for run, name in zip(runs, names, strict=True)
    ]


def _of_nccl_tests(run: BenchmarkRun, source: str, file_name: str) -> Run:
    factor = _factor(run)
    row = run.rows[0] if run.rows else None
    reduces = row is not None and row.redop not in {"", "none"}
    test = (
        run.collective or _kind(file_name) or ("AllReduce" if reduces and factor is not None and factor > 1.01 else "")
    )
    known = run.n_nodes is not None
    kind = Kind(
        Tool.NCCL,
        test,
        run.n_ranks if known else None,
        run.n_nodes,
        " ".join(word for word in (row.type, row.redop) if word and word != "none") if row else "",
        run.nccl_version,
        ", ".join(sorted(run.models)),
        factor=None if known else factor,
    )
    failed = f"the test failed: {run.failures[0]}" if run.failures else run.wrong_results
    nodes = tuple(sorted(run.hosts))
    return Run(
        source,
        nodes or (source,),
        kind,
        dict(_points(run.rows)),
        named=bool(nodes),
        failed=failed,
        refused=(rejection_reason(run, test) or "") if not failed else "",
        bad_rows=run.bad_rows,
    )


def _kind(file_name: str) -> str:
    """Return the collective in the name of a file; empty if there is none."""
    found = known_kind(kind_in_name(file_name) or "")
    return "" if found == OTHER else found


def _factor(run: BenchmarkRun) -> float | None:
    """Return bus bandwidth over algorithm bandwidth, by the largest size, with two decimals; None without a result."""
    halves = [half for row in run.rows for half in (row.out_of_place or row.in_place,) if half is not None]
    best = max(halves, key=lambda half: half.algorithm_bandwidth, default=None)
    return round(best.bus_bandwidth / best.algorithm_bandwidth, 2) if best and best.algorithm_bandwidth else None


def _points(rows: Sequence[Row]) -> Iterator[tuple[Point, float]]:
    """List the bus bandwidth at each point, the best of repeated sizes last."""
    halves = [
        (Point(row.size, place), half.bus_bandwidth)
        for row in rows
        for place, half in (("out of place", row.out_of_place), ("in place", row.in_place))
        if half is not None and row.size
    ]
    yield from sorted(halves, key=lambda one: one[1])


def _of_perftest(run: PerftestRun, source: str) -> Run:
    tool = Tool.LATENCY if run.test.endswith("Latency") else Tool.LINK
    ends = tuple(sorted(set(run.ends.values()))) if len(run.ends) == 2 else ()
    values = {
        Point(row.size): value
        for row in run.rows
        for value in (row.latency if tool is Tool.LATENCY else row.bandwidth,)
        if value is not None
    }
    first = min(run.rows, key=lambda row: row.size, default=None)
    sure = first is not None and first.iterations >= ENOUGH_SAMPLES and run.test == "RDMA_Write Latency"
    failed = f"the test failed: {run.failures[0]}" if run.failures else ""
    return Run(
        source,
        ends or (source,),
        Kind(tool, run.test, nodes=len(ends) or None, link=run.link),
        values,
        named=bool(ends),
        tail=first.latency_p99 if sure and first is not None else None,
        failed=failed,
        refused="" if failed or values else "no row with a result",
        bad_rows=run.bad_rows,
    )
