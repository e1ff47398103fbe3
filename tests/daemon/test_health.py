"""What is exported about the exporter itself: each source's state, failures by device and reason, and the process."""

import os
import resource
import sys
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry, ProcessCollector

from exporter import __version__
from exporter.core.poller import Status
from exporter.core.table import Rows
from exporter.daemon import health
from exporter.daemon.health import Health, Process, Reloads
from exporter.outputs.text import Renderer
from exporter.outputs.webapp import WebStats


def poller(name="rdma", target="", rows=0, label="", **status):
    """A poller with a state only."""
    table = SimpleNamespace(rows=Rows(("device",), [(str(number),) for number in range(rows)], {}))
    return SimpleNamespace(
        source=SimpleNamespace(name=name, target=target, **({"label": label} if label else {})),
        status=Status(**status),
        tables=[table] if rows else [],
        fresh_tables=lambda: [table] if rows else [],
        count_rows=lambda: rows,
    )


def lines(pollers=(), reloads=None, requests=None, refused=None, lag=0.0, made=None):
    tables = (made or Health()).tables(pollers, reloads or Reloads(), requests or {}, refused or {}, lag)
    text = b"".join(Renderer(openmetrics=False).render(tables)).decode()
    return [line for line in text.splitlines() if not line.startswith(("#", "process_"))]


def of_sources(found):
    return [line for line in found if line.startswith("fabric_source_")]


def test_a_source_that_was_not_read_yet_or_has_nothing_to_read_is_neither_up_nor_down():
    assert of_sources(lines([poller()])) == [
        'fabric_source_overruns_total{source="rdma"} 0',
        'fabric_source_reads_total{source="rdma"} 0',
        'fabric_source_rows{source="rdma"} 0',
    ]


@pytest.mark.parametrize("up", [True, False])
def test_a_source_that_was_read(up):
    one = poller("switch", "leaf-01", 3, up=up, last_success=1.7e9, duration=0.25, reads=7, overruns=2)
    labels = '{source="switch",target="leaf-01"}'
    assert of_sources(lines([one])) == [
        f"fabric_source_last_success_timestamp_seconds{labels} 1700000000.0",
        f"fabric_source_overruns_total{labels} 2",
        f"fabric_source_read_duration_seconds{labels} 0.25",
        f"fabric_source_reads_total{labels} 7",
        f"fabric_source_rows{labels} 3",
        f"fabric_source_up{labels} {int(up)}",
    ]


@pytest.mark.parametrize("up", [True, False, None])
def test_the_metrics_of_polls_remain_while_a_switch_is_down(up):
    one = poller("switch", "leaf-01", label="leaf-01.example.com", up=up, duration=0.25, overruns=2)
    labels = '{switch="leaf-01.example.com",target="leaf-01"}'
    found = [line for line in lines([one, poller()]) if line.startswith("fabric_switch_")]
    assert found == [
        f"fabric_switch_overruns_total{labels} 2",
        f"fabric_switch_poll_duration_seconds{labels} 0.25",
        *([] if up is None else [f"fabric_switch_up{labels} {int(up)}"]),
    ]


def test_failures_by_device_and_reason():
    failures = {("", "timeout"): 2, ('mlx5"1', "einval"): 3, ("other", "eio"): 4}
    found = [line for line in lines([poller("nic", failures=failures)]) if "failures" in line]
    assert found == [
        'fabric_source_failures_total{source="nic",reason="timeout"} 2',
        'fabric_source_failures_total{source="nic",device="mlx5\\"1",reason="einval"} 3',
        'fabric_source_failures_total{source="nic",device="other",reason="eio"} 4',
    ]


@pytest.mark.parametrize("good", [True, False])
def test_the_exporter(good):
    found = lines(reloads=Reloads(good, 1.7e9), requests={("/metrics", 200): 5, ("other", 404): 1}, lag=0.125)
    python = ".".join(map(str, sys.version_info[:3]))
    assert found == [
        f'fabric_exporter_build_info{{version="{__version__}",python="{python}"}} 1',
        "fabric_exporter_config_last_reload_success_timestamp_seconds 1700000000.0",
        f"fabric_exporter_config_last_reload_successful {int(good)}",
        "fabric_exporter_event_loop_lag_seconds 0.125",
        'fabric_exporter_http_requests_total{path="/metrics",code="200"} 5',
        'fabric_exporter_http_requests_total{path="other",code="404"} 1',
    ]


def test_sources_that_go_take_their_rows_with_them():
    made = Health()
    assert len(of_sources(lines([poller(), poller("nic")], made=made))) == 6
    assert len(of_sources(lines([poller("nic")], made=made))) == 3


def test_the_process_as_the_usual_client_library_sees_it():
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    ours = Process().values()
    theirs = {name: registry.get_sample_value(f"process_{name}") for name in ours}
    assert theirs.keys() == ours.keys()
    assert None not in theirs.values()
    exact = {"max_fds"}
    near = {"start_time_seconds": 1.0, "cpu_seconds_total": 0.5, "open_fds": 3}
    for name, value in ours.items():
        if name in exact:
            assert value == theirs[name]
        elif name in near:
            assert abs(value - theirs[name]) <= near[name], name
        else:
            assert value == pytest.approx(theirs[name], rel=0.1), name


def test_open_descriptors_are_counted_on_kernels_before_6_2(monkeypatch):
    process = Process()
    exact = len(list(health.Path("/proc/self/fd").iterdir())) - 1
    size = health.Path("/proc/self/fd").stat().st_size
    real = os.stat
    empty = SimpleNamespace(st_size=0)
    monkeypatch.setattr(os, "stat", lambda path, **how: empty if path == "/proc/self/fd" else real(path, **how))
    assert abs(process.values()["open_fds"] - exact) <= 1
    if size:
        assert abs(size - exact) <= 1


def test_an_unlimited_number_of_descriptors_is_exported(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1234, 5678))
    assert Process().values()["max_fds"] == 1234


def test_a_process_name_with_blanks_and_brackets(monkeypatch):
    began = Process().values()["start_time_seconds"]
    usual = health.Path("/proc/self/stat").read_bytes()
    number, _, rest = usual.partition(b" (")
    strange = number + b" (a) b (c " + rest[rest.index(b")") :]
    monkeypatch.setattr(health.Path, "read_bytes", lambda _: strange)
    assert Process().values()["start_time_seconds"] == pytest.approx(began, abs=0.1)


def test_refused_clients_are_counted_by_reason():
    stats = WebStats(
        malformed_requests=3, timeouts=2, refused_connections=1, authentication_failures=7, failed_handshakes=4
    )
    refused = {line for line in lines(refused=stats.refused()) if "refused" in line}
    assert refused == {
        'fabric_exporter_http_refused_total{reason="connections"} 1',
        'fabric_exporter_http_refused_total{reason="handshake"} 4',
        'fabric_exporter_http_refused_total{reason="client_name"} 0',
        'fabric_exporter_http_refused_total{reason="malformed"} 3',
        'fabric_exporter_http_refused_total{reason="timeout"} 2',
        'fabric_exporter_http_refused_total{reason="authentication"} 7',
    }
