"""What prometheus_client exports about the exporter: read by its parsers, in both formats, beside a page of tables."""

import resource
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from exporter import __version__
from exporter.core.supervision import Supervisor
from exporter.core.table import Kind
from exporter.daemon import own_metrics
from exporter.daemon.own_metrics import LastReload, OwnMetrics
from exporter.daemon.relay import Relay
from exporter.daemon.runtime import LoopLag
from exporter.mqtt.options import MqttOptions
from exporter.outputs.negotiation import Format
from exporter.outputs.webapp import WebStats

every_format = pytest.mark.parametrize("form", Format)


def made(web=None, lag=None, reloads=None, relay=None, supervisor=None):
    watched = supervisor or Supervisor()
    return OwnMetrics(web or WebStats(), lag or LoopLag(), watched, lambda: reloads or LastReload(), lambda: relay)


def families(own, form):
    """Return the families of a page by name, as the parser of its format reads them."""
    text = own.render(form).decode()
    assert "# EOF" not in text, "tables follow on the page"
    read = list(parse_text(text) if form is Format.TEXT else parse_openmetrics(f"{text}# EOF\n"))
    by_name = {one.name: one for one in read}
    assert len(by_name) == len(read)
    assert len(by_name) >= 10
    return by_name


def samples(own, form=Format.TEXT):
    """Return the values by name and labels; a duplicate is an error."""
    found = {}
    for family in families(own, form).values():
        for one in family.samples:
            key = (one.name, tuple(sorted(one.labels.items())))
            assert key not in found, key
            found[key] = one.value
    return found


def exporter_samples(own):
    """Return the values of the exporter's metrics without their prefix; the same in both formats."""
    found = samples(own, Format.TEXT)
    exact = {key: value for key, value in samples(own, Format.OPENMETRICS).items() if key[0].startswith("fabric_")}
    ours = {key: value for key, value in found.items() if key[0].startswith("fabric_")}
    assert ours == exact
    return {(name.removeprefix("fabric_exporter_"), *labels): value for (name, labels), value in ours.items()}


def connected_relay():
    """A relay whose publisher has a state only."""
    relay = Relay(MqttOptions(), "gpu-1", Supervisor())
    relay.dropped = 4
    relay._publisher = SimpleNamespace(
        status=SimpleNamespace(connected=True, reconnects=2, failures=3, refused=5),
        queued=(6, 700),
        omitted_states=1,
        sent=10,
        dropped=20,
        refused=7,
        invalid=8,
    )
    relay._states = 9
    return relay


# --- the exporter


@pytest.mark.parametrize("good", [True, False])
def test_the_exporter(good):
    web, lag = WebStats(), LoopLag()
    web.requests.update({("/metrics", 200): 5, ("other", 404): 1})
    lag.note(0.125)
    found = exporter_samples(made(web, lag, LastReload(good, 1732833144.5)))
    python = ".".join(map(str, sys.version_info[:3]))
    assert found == {
        ("build_info", ("python", python), ("version", __version__)): 1,
        ("config_last_reload_success_timestamp_seconds",): 1732833144.5,
        ("config_last_reload_successful",): int(good),
        ("event_loop_lag_seconds",): 0.125,
        ("http_requests_total", ("code", "200"), ("path", "/metrics")): 5,
        ("http_requests_total", ("code", "404"), ("path", "other")): 1,
        **{
            ("http_refused_total", ("reason", reason)): 0
            for reason in ("connections", "handshake", "client_name", "malformed", "timeout", "authentication")
        },
    }


def test_refused_clients_are_counted_by_reason():
    web = WebStats(malformed_requests=3, timeouts=2, refused_connections=1, authentication_failures=7)
    web.failed_handshakes = 4
    found = exporter_samples(made(web))
    assert {key[1][1]: value for key, value in found.items() if key[0] == "http_refused_total"} == {
        "connections": 1,
        "handshake": 4,
        "client_name": 0,
        "malformed": 3,
        "timeout": 2,
        "authentication": 7,
    }


def test_what_was_not_measured_is_absent():
    names = {key[0] for key in exporter_samples(made())}
    assert names == {
        "build_info",
        "config_last_reload_success_timestamp_seconds",
        "config_last_reload_successful",
        "http_refused_total",
    }


@pytest.mark.parametrize("relay", [None, Relay(MqttOptions(), "gpu-1", Supervisor())], ids=["no broker", "not started"])
def test_metrics_of_the_broker_are_absent_without_a_publisher(relay):
    assert [key for key in exporter_samples(made(relay=relay)) if key[0].startswith("mqtt_")] == []


def test_metrics_of_the_broker():
    found = exporter_samples(made(relay=connected_relay()))
    assert {key: value for key, value in found.items() if key[0].startswith("mqtt_")} == {
        ("mqtt_connected",): 1,
        ("mqtt_reconnects_total",): 2,
        ("mqtt_failures_total",): 3,
        ("mqtt_refused_messages_total",): 5,
        ("mqtt_queued_batches",): 6,
        ("mqtt_states",): 8,
        ("mqtt_omitted_states",): 1,
        ("mqtt_batches_total", ("outcome", "sent")): 10,
        ("mqtt_batches_total", ("outcome", "dropped")): 24,
        ("mqtt_batches_total", ("outcome", "refused")): 7,
        ("mqtt_batches_total", ("outcome", "invalid")): 8,
    }


def test_values_are_read_at_each_scrape_and_a_replaced_part_is_followed():
    now = SimpleNamespace(last_reload=LastReload(True, 1.0), relay=None)
    own = OwnMetrics(WebStats(), LoopLag(), Supervisor(), lambda: now.last_reload, lambda: now.relay)
    before = exporter_samples(own)
    now.last_reload, now.relay = LastReload(False, 2.0), connected_relay()
    after = exporter_samples(own)
    good, at = ("config_last_reload_successful",), ("config_last_reload_success_timestamp_seconds",)
    assert [(one[good], one[at], one.get(("mqtt_connected",))) for one in (before, after)] == [(1, 1, None), (0, 2, 1)]


# --- restarts


def restarts(own):
    return {key[1][1]: value for key, value in exporter_samples(own).items() if key[0] == "task_restarts_total"}


def test_restarts_are_counted_from_zero_by_kind_of_task():
    supervisor = Supervisor()
    supervisor.restarts |= {"switch": 2, "port states": 0}
    assert restarts(made()) == {}
    assert restarts(made(supervisor=supervisor)) == {"switch": 2, "port states": 0}


# --- the formats


@every_format
def test_every_declared_metric_has_its_type_help_unit_and_labels(form):
    web, lag = WebStats(), LoopLag()
    web.requests["/metrics", 200] += 1
    lag.note(0.125)
    supervisor = Supervisor()
    supervisor.restarts["switch"] = 1
    own = made(web, lag, relay=connected_relay(), supervisor=supervisor)
    read = families(own, form)
    declared = own_metrics.metrics()
    assert len(declared) > 20
    for metric in declared:
        base = metric.name.removesuffix("_total")
        if metric.kind is Kind.INFO and form is Format.OPENMETRICS:
            base = base.removesuffix("_info")
        family = read.pop(base)
        plain = Kind.GAUGE if metric.kind is Kind.INFO and form is Format.TEXT else metric.kind
        assert (family.type, family.documentation) == (plain.value, metric.help)
        assert family.unit == (metric.unit if form is Format.OPENMETRICS else "")
        assert {one.name for one in family.samples} == {metric.name}, "no _created"
        assert {*family.samples[0].labels} == {*metric.labels, *metric.extra}
    assert read == {}


def test_a_collector_that_fails_hides_no_other_metrics_of_the_page(caplog):
    def fail():
        raise ValueError("an unusual /proc")

    own = OwnMetrics(WebStats(), LoopLag(), Supervisor(), fail, lambda: None)
    assert [own.render(form) for form in Format] == [b"", b""]
    assert "not exported this time" in caplog.text


# --- the process and the interpreter


@every_format
def test_the_process_is_this_one(form):
    before = resource.getrusage(resource.RUSAGE_SELF)
    found = samples(made(), form)
    pages = [int(text) * resource.getpagesize() for text in Path("/proc/self/statm").read_text().split()[:2]]
    descriptors = sum(1 for _ in Path("/proc/self/fd").iterdir()) - 1
    assert found["process_max_fds", ()] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert abs(found["process_open_fds", ()] - descriptors) <= 3
    assert found["process_virtual_memory_bytes", ()] == pytest.approx(pages[0], rel=0.1)
    assert found["process_resident_memory_bytes", ()] == pytest.approx(pages[1], rel=0.1)
    assert abs(found["process_cpu_seconds_total", ()] - before.ru_utime - before.ru_stime) < 1
    assert found["process_start_time_seconds", ()] > 1.7e9


def test_the_interpreter():
    found = samples(made())
    (info,) = (dict(labels) for name, labels in found if name == "python_info")
    assert info["version"] == ".".join(map(str, sys.version_info[:3]))
    assert {key[1][0][1] for key in found if key[0] == "python_gc_collections_total"} == {"0", "1", "2"}
