"""What is exported about the sources: the state of each, its failures by device and reason, and polls of switches."""

from types import SimpleNamespace

import pytest

from exporter.core.poller import Status
from exporter.daemon.health import Health
from exporter.outputs.text import Renderer
from exporter.sources.switch.source import DEFINITION


def poller(name="rdma", target="", rows=0, label="", **status):
    """A running source with a state only."""
    made = SimpleNamespace(
        source=SimpleNamespace(name=name, target=target, label=label),
        status=Status(**status),
        count_rows=lambda: rows,
    )
    return SimpleNamespace(poller=made, configured=SimpleNamespace(polls=DEFINITION.polls if label else None))


def lines(pollers, made=None):
    tables = (made or Health()).tables(pollers)
    text = b"".join(Renderer(openmetrics=False).render(tables)).decode()
    return [line for line in text.splitlines() if not line.startswith("#")]


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


def test_sources_that_go_take_their_rows_with_them():
    made = Health()
    assert len(of_sources(lines([poller(), poller("nic")], made=made))) == 6
    assert len(of_sources(lines([poller("nic")], made=made))) == 3
