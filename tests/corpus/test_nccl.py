"""Samples of NCCL and related programs: each has a row with its content, and is parsed to this.

Published samples are in the corpus, our own in tests/fixtures; both have the same checks. The numbers of the
expectations were counted by eye and with grep. A row with `none` has the reason why nothing is read of its file.
"""

import json
from collections import Counter
from pathlib import Path

import pytest

from exporter.core.collectives import algorithm_bytes, bus_factor
from exporter.nccl.debug_log import ScanStats, scan
from exporter.nccl.decoding import FormatError
from exporter.nccl.flight_recorder import parse_dump
from exporter.nccl.inspector import parse_line
from exporter.nccl.inspector_textfile import parse_textfile
from exporter.nccl.log_facts import (
    Adapters,
    AsyncEvent,
    Channel,
    Completion,
    Network,
)
from exporter.nccl.nccl_tests import baseline, parse_text
from exporter.nccl.prometheus_text import LineErrors
from exporter.nccl.ras import parse_report
from exporter.nccl.xpu_timer import parse_timings
from tests.helpers.samples import PUBLISHED, sample_path

FOLDER = Path(__file__).parent
CORPUS_FOLDER = f"{PUBLISHED}nccl/"
EXPECTED = {
    **json.loads((FOLDER / "own_nccl_expectations.json").read_text()),
    **{
        f"{CORPUS_FOLDER}{name}": row
        for name, row in json.loads((FOLDER / "nccl_expectations.json").read_text()).items()
    },
}

KINDS = ("facts", "rows", "unsupported", "records", "windows", "labels", "hanging", "entry", "nccl")
"""Keys that a row has by the kind of its sample; each has a test."""


def samples(*keys):
    return [name for name, row in EXPECTED.items() if any(key in row for key in keys)]


def of_kind(key):
    return pytest.mark.parametrize("name", samples(key))


def without_notes(data):
    """Return the data without the lines that the collectors of the published samples added."""
    return b"\n".join(line for line in data.split(b"\n") if not line.startswith(b"## "))


@pytest.fixture
def path(request, name):
    return sample_path(request, name)


def test_every_published_sample_has_a_row_and_every_row_is_tested(corpus):
    folder = corpus / "nccl"
    found = {f"{CORPUS_FOLDER}{path.relative_to(folder)}" for path in folder.rglob("*") if path.is_file()}
    assert found == {name for name in EXPECTED if name.startswith(PUBLISHED)}
    assert sorted(samples("none", *KINDS)) == sorted(EXPECTED)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_sample_is_also_among_our_own(kind):
    assert [name for name in samples(kind) if not name.startswith(PUBLISHED)]


@of_kind("facts")
def test_logs(name, path):
    expected = EXPECTED[name]
    entries = list(scan(without_notes(path.read_bytes()), ScanStats()))
    facts = [entry.fact for entry in entries]
    assert Counter(type(fact).__name__ for fact in facts) == expected["facts"]
    assert bool(facts) is ("nothing" not in expected)
    channels = [fact for fact in facts if isinstance(fact, Channel)]
    assert sum(fact.gdr is True for fact in channels) == expected.get("gdr_channels", 0)
    adapters = {
        f"{one.device}:{one.port}/{one.link}" for fact in facts if isinstance(fact, Adapters) for one in fact.adapters
    }
    assert adapters == set(expected.get("adapters", ()))
    assert {fact.name for fact in facts if isinstance(fact, Network)} == set(expected.get("networks", ()))
    assert [fact.status for fact in facts if isinstance(fact, Completion)] == expected.get("statuses", [])
    events = [
        [entry.host, entry.fact.device, entry.fact.port, entry.fact.event]
        for entry in entries
        if isinstance(entry.fact, AsyncEvent)
    ]
    assert events == expected.get("events", [])


@of_kind("rows")
def test_outputs_of_nccl_tests(name, path):
    expected = EXPECTED[name]
    run = parse_text(without_notes(path.read_bytes()))
    assert run.collective == expected.get("collective")
    assert run.nccl_version == expected.get("version", "")
    assert (run.ranks.total(), len(run.hosts)) == (expected["listed"], expected["hosts"])
    assert (len(run.rows), run.bad_rows) == (expected["rows"], 0)
    assert len(run.failures) == expected.get("failures", 0)
    assert run.out_of_bounds == expected.get("wrong")
    average = expected.get("average")
    assert run.average_bus_bandwidth == (None if average is None else pytest.approx(average * 1e9))
    kind = expected.get("collective") or expected["kind"]
    if "last" in expected:
        size, out_of_place, in_place = expected["last"]
        assert run.rows[-1].size == size
        assert run.rows[-1].out_of_place.bus_bandwidth == pytest.approx(out_of_place * 1e9)
        assert run.rows[-1].in_place.bus_bandwidth == pytest.approx(in_place * 1e9)
    if "refused" in expected:
        with pytest.raises(FormatError, match=expected["refused"]):
            baseline([run], kind)
    else:
        assert baseline([run], kind)[kind, size].bus_bandwidth == pytest.approx(out_of_place * 1e9)


@of_kind("unsupported")
def test_outputs_of_other_programs_are_rejected(name, path):
    with pytest.raises(FormatError, match=EXPECTED[name]["unsupported"]) as caught:
        parse_text(path.read_bytes())
    assert caught.value.reason == "unsupported"


@of_kind("records")
def test_inspector_lines(name, path):
    lines = [parse_line(line) for line in path.read_bytes().splitlines() if line.strip()]
    assert lines
    assert len(lines) == len(EXPECTED[name]["records"])
    for line, expected in zip(lines, EXPECTED[name]["records"], strict=True):
        one = line.collective
        header = [line.header.id, line.header.rank, line.header.n_ranks, line.header.nnodes]
        assert [*header, one.kind, one.sequence, one.message_bytes, one.microseconds, one.timing_source] == expected[
            :-1
        ]
        ranks = line.header.n_ranks
        size = algorithm_bytes(one.kind, one.message_bytes, ranks)
        bandwidth = size * bus_factor(one.kind, ranks) / one.microseconds * 1e6
        assert bandwidth == pytest.approx(expected[-1] * 1e9)


@of_kind("windows")
def test_inspector_text(name, path):
    errors = LineErrors()
    found = [
        [one.metric, one.kind, pytest.approx(one.value), one.min_bytes, one.max_bytes]
        for one in parse_textfile(path.read_bytes(), errors)
    ]
    assert EXPECTED[name]["windows"] == found
    assert not errors.reasons


@of_kind("labels")
def test_inspector_labels(name, path):
    labels = without_notes(path.read_bytes()).strip()
    (found,) = parse_textfile(b"nccl_bus_bandwidth_gbs{" + labels + b"} 1\n", LineErrors())
    assert {key: getattr(found, key) for key in EXPECTED[name]["labels"]} == EXPECTED[name]["labels"]


@of_kind("hanging")
def test_xpu_timer(name, path):
    errors = LineErrors()
    found = list(parse_timings(path.read_bytes(), errors))
    hangs = Counter(one.value for one in found if one.metric == "hang")
    expected = EXPECTED[name]
    assert (hangs[1.0], hangs[0.0], len(found) - hangs.total()) == (
        expected["hanging"],
        expected["running"],
        expected["collectives"],
    )
    assert {one.rank for one in found} == set(range(8))
    assert not errors.reasons


@of_kind("entry")
def test_flight_recorder(name, path):
    expected = EXPECTED[name]
    dump = parse_dump(path.read_bytes())
    (one,) = dump.entries
    assert [
        one.kind,
        one.sequence,
        one.state,
        one.time_created_ns,
        one.time_discovered_completed_ns,
        one.input_bytes,
    ] == expected["entry"]
    (group,) = dump.groups.values()
    assert list(group.ranks) == expected["ranks"]
    assert (dump.version, dump.bad) == (expected["version"], 0)


@of_kind("nccl")
def test_ras_reports(name, path):
    expected = EXPECTED[name]
    report = parse_report(path.read_bytes())
    (one,) = report.communicators
    assert (report.nccl_version, one.hash, one.size) == (expected["nccl"], expected["hash"], expected["size"])
    assert [rank.rank for rank in one.ranks] == expected["answered"]
    missing = [
        [rank.rank, rank.pid, rank.status.unresponsive, rank.status.considered_dead] for rank in one.missing_ranks
    ]
    assert missing == expected["missing"]
