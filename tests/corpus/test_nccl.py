"""Published samples of NCCL and its neighbours: each has a row of what it holds, and is read to this.

The numbers of nccl_expectations.json were read off the samples by eye and with grep. A row with `none` says why nothing
is read of its file.
"""

import json
from collections import Counter
from pathlib import Path

import pytest

from exporter.core.collectives import algorithm_bytes, bus_factor
from exporter.nccl.debug_log import Scan, scan
from exporter.nccl.decoding import FormatError
from exporter.nccl.flight_recorder import parse
from exporter.nccl.inspector import parse_line
from exporter.nccl.inspector_textfile import windows
from exporter.nccl.log_facts import (
    Adapters,
    AsyncEvent,
    Channel,
    Completion,
    Network,
)
from exporter.nccl.nccl_tests import baseline, parse_text
from exporter.nccl.prometheus_text import Lost
from exporter.nccl.ras import parse_event, parse_report
from exporter.nccl.ras_text import parse_text as parse_ras_text
from exporter.nccl.xpu_timer import timings

EXPECTED = json.loads((Path(__file__).parent / "nccl_expectations.json").read_text())


def rows(*keys):
    return [name for name, row in EXPECTED.items() if any(key in row for key in keys)]


def own(data):
    """Leave out the lines that whoever collected the samples put in."""
    return b"\n".join(line for line in data.split(b"\n") if not line.startswith(b"## "))


def test_every_sample_has_a_row_and_every_row_is_tested(corpus):
    folder = corpus / "nccl"
    samples = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert samples == EXPECTED.keys()
    tested = rows(
        "none",
        "facts",
        "rows",
        "unsupported",
        "records",
        "windows",
        "labels",
        "hanging",
        "entry",
        "event",
        "nccl",
        "text",
    )
    assert sorted(tested) == sorted(EXPECTED)


@pytest.mark.parametrize("name", rows("facts"))
def test_logs(corpus, name):
    expected = EXPECTED[name]
    entries = list(scan(own((corpus / "nccl" / name).read_bytes()), Scan()))
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


@pytest.mark.parametrize("name", rows("rows"))
def test_benchmarks(corpus, name):
    expected = EXPECTED[name]
    run = parse_text(own((corpus / "nccl" / name).read_bytes()))
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


@pytest.mark.parametrize("name", rows("unsupported"))
def test_tables_of_other_programs_are_refused(corpus, name):
    with pytest.raises(FormatError, match=EXPECTED[name]["unsupported"]) as caught:
        parse_text((corpus / "nccl" / name).read_bytes())
    assert caught.value.reason == "unsupported"


@pytest.mark.parametrize("name", rows("records"))
def test_inspector_lines(corpus, name):
    text = (corpus / "nccl" / name).read_bytes()
    lines = [parse_line(line) for line in text.splitlines() if line.strip()]
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


@pytest.mark.parametrize("name", rows("windows"))
def test_inspector_text(corpus, name):
    lost = Lost()
    found = windows((corpus / "nccl" / name).read_bytes(), lost)
    told = [[one.metric, one.kind, pytest.approx(one.value), one.least_bytes, one.most_bytes] for one in found]
    assert EXPECTED[name]["windows"] == told
    assert not lost.reasons


@pytest.mark.parametrize("name", rows("labels"))
def test_inspector_labels(corpus, name):
    labels = own((corpus / "nccl" / name).read_bytes()).strip()
    (found,) = windows(b"nccl_bus_bandwidth_gbs{" + labels + b"} 1\n", Lost())
    assert {key: getattr(found, key) for key in EXPECTED[name]["labels"]} == EXPECTED[name]["labels"]


@pytest.mark.parametrize("name", rows("hanging"))
def test_xpu_timer(corpus, name):
    lost = Lost()
    found = list(timings((corpus / "nccl" / name).read_bytes(), lost))
    hangs = Counter(one.value for one in found if one.metric == "hang")
    expected = EXPECTED[name]
    assert (hangs[1.0], hangs[0.0], len(found) - hangs.total()) == (
        expected["hanging"],
        expected["running"],
        expected["collectives"],
    )
    assert {one.rank for one in found} == set(range(8))
    assert not lost.reasons


@pytest.mark.parametrize("name", rows("entry"))
def test_flight_recorder(corpus, name):
    expected = EXPECTED[name]
    dump = parse((corpus / "nccl" / name).read_bytes())
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
    status = group.status
    assert list(group.ranks) == expected["ranks"]
    assert [
        status.last_enqueued_collective,
        status.last_started_collective,
        status.last_completed_collective,
    ] == expected["status"]
    assert (dump.version, dump.bad) == (expected["version"], 0)


@pytest.mark.parametrize("name", rows("event"))
def test_ras_events(corpus, name):
    event = parse_event((corpus / "nccl" / name).read_bytes())
    assert [event.event, event.group, event.peer.host, event.peer.pid, list(event.peer.nvml_devs)] == EXPECTED[name][
        "event"
    ]


@pytest.mark.parametrize("name", rows("nccl"))
def test_ras_reports(corpus, name):
    expected = EXPECTED[name]
    report = parse_report((corpus / "nccl" / name).read_bytes())
    (one,) = report.communicators
    assert (report.nccl_version, one.hash, one.size) == (expected["nccl"], expected["hash"], expected["size"])
    assert [rank.rank for rank in one.ranks] == expected["answered"]
    missing = [
        [rank.rank, rank.pid, rank.status.unresponsive, rank.status.considered_dead] for rank in one.missing_ranks
    ]
    assert missing == expected["missing"]


@pytest.mark.parametrize("name", rows("text"))
def test_ras_text(corpus, name):
    expected = EXPECTED[name]
    report = parse_ras_text(own((corpus / "nccl" / name).read_bytes()))
    assert report.nccl_version == expected["text"]
    groups = [[one.communicators, one.nodes, one.ranks, one.status, one.errors] for one in report.groups]
    assert groups == expected["groups"]
    mismatches = [
        [one.communicator, one.kind, [list(pair) for pair in one.counts], one.behind] for one in report.mismatches
    ]
    assert mismatches == expected["mismatches"]
