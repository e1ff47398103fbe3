"""The shipped rules on recorded series of the simulated fabric: incidents fire for the right place, routine does not.

Recorded by exporters of all hosts and switches in virtual time (`benchmarks/detection`), evaluated by promtool.
"""

import asyncio

import pytest

from benchmarks.detection.runs import Plan, run
from benchmarks.detection.shipped_rules import RecordedSeries, alerts_of, rule_names
from benchmarks.detection.table import PAGES
from benchmarks.detection.virtual_fabric import INTERVAL, VirtualFabric
from tests.helpers.paused_job import PausedJob

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

HOSTS = {"gpu-001", "gpu-002", "gpu-003", "gpu-004"}


def fired(fault, target="", onset=310.0, seconds=1080.0):
    """Simulate a fault; give the alerts that fired after its onset, by name, and none that fired before."""
    alerts = [one for one in run(Plan(1, fault, target, onset, onset + seconds)).alerts if one.fired is not None]
    assert [one for one in alerts if one.fired < onset] == []
    names = {one.labels["alertname"] for one in alerts}
    return {name: [one.labels for one in alerts if one.labels["alertname"] == name] for name in names}


def values(found, label):
    return {labels.get(label) for labels in found}


@pytest.fixture(autouse=True)
def needs_promtool(program):
    program("promtool")


def test_a_job_on_tcp_that_has_no_log():
    found = fired("tcp", seconds=600.0)
    assert values(found["FabricJobOnTcp"], "host") == HOSTS
    assert values(found["FabricJobOnTcp"], "severity") == {"critical"}


def test_gpudirect_off_on_one_host_by_the_log():
    found = fired("gpudirect-off", "gpu-002", seconds=900.0)
    assert values(found["FabricJobGpudirectOff"], "host") == {"gpu-002"}
    assert values(found["FabricJobGpudirectOff"], "train_job") == {"demo"}


def test_half_of_the_adapters_are_used():
    found = fired("half-adapters")
    assert values(found["FabricJobAdaptersUnused"], "host") == HOSTS


def test_one_spine_gets_twice_the_flows_of_an_even_hash():
    found = fired("one-spine", "spine-02")
    assert values(found["FabricUplinkImbalance"], "switch") == {"leaf-01", "leaf-02", "leaf-03", "leaf-04"}


def test_short_pauses_name_the_host():
    found = fired("short-pauses", "gpu-003")
    pauses = [labels for name in found if name.startswith("FabricPause") for labels in found[name]]
    assert values(pauses, "host") == {"gpu-003"}
    assert values(pauses, "rail") == set("01234567")


def test_a_job_that_is_slower_than_its_past():
    found = fired("slower-job", onset=970.0)
    assert values(found["FabricJobSlower"], "train_job") == {"demo"}


# --- what fires nothing


START, CHECKPOINTS, END, BOOT, BOOTED = 310.0, ((1200.0, 1260.0), (2100.0, 2160.0)), 2700.0, 2820.0, 3060.0


async def routine(folder):
    """Record an hour in which a job starts, writes checkpoints and ends, exporters are updated, and a host reboots."""
    reboot = [f"link-down:gpu-004/{rail}@{BOOT:.0f}s-{BOOTED:.0f}s" for rail in range(8)]
    updates = {1500.0 + place * 90.0: host for place, host in enumerate(sorted(HOSTS))}
    fabric = VirtualFabric(folder, faults=reboot)
    model = fabric.cluster.model
    model.job = PausedJob(model.job, [(0.0, START), *CHECKPOINTS, (END, float("inf"))])
    series = RecordedSeries(rule_names(), INTERVAL)
    async with fabric:
        async for scrape in fabric.scrapes(place * INTERVAL for place in range(1, 121)):
            gone = {updates[scrape.time]} if scrape.time in updates else set()
            gone |= {"gpu-004"} if BOOT < scrape.time <= BOOTED else set()
            series.add(scrape.time, scrape.pages | dict.fromkeys(gone))
    return series


def test_an_hour_of_routine_fires_nothing(tmp_path, program):
    series = asyncio.run(routine(tmp_path))
    found = alerts_of(series, program("promtool"))
    assert [one for one in found if one.fired is not None and one.labels["severity"] in PAGES] == []
