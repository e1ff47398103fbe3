"""The daemon as a whole: it serves, reloads, tolerates faults of devices, and stops on a signal."""

import asyncio
import contextlib
import json
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from time import monotonic, sleep

import httpx
import pytest
from blockbuster import blockbuster_ctx
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from exporter.commands import demo
from exporter.config.errors import ConfigError
from exporter.core.definition import SourceSteps
from exporter.daemon import daemon as module
from exporter.daemon import loading, runtime, sources
from exporter.daemon import running as running_sources
from exporter.daemon.daemon import Daemon
from exporter.daemon.pipeline import Expectation
from exporter.daemon.prepared import ConfiguredSource
from exporter.daemon.running import RunningSource
from exporter.daemon.settings import Settings
from exporter.meaning.ports import states as port_states
from exporter.outputs.negotiation import Format
from exporter.simulator.cluster import Cluster
from exporter.simulator.host import HostFiles
from exporter.simulator.snmp_agent import SnmpAgent
from exporter.simulator.switches import DemoLeaf, fill_agent, update_agent
from exporter.simulator.traffic import Training
from exporter.snmp.ber import OCTET_STRING, Typed

LONG = 60.0
OPENMETRICS = {"accept": "application/openmetrics-text; version=1.0.0"}


def samples_of(text, parse=parse_text):
    """Return values by name and labels; a duplicate series is an error."""
    found = {}
    for family in parse(text):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, key
            found[key] = sample.value
    return found


class Page:
    """The samples of one scrape."""

    def __init__(self, text):
        self.samples = samples_of(text)

    def all(self, name, **labels):
        wanted = set(labels.items())
        return {key: value for key, value in self.samples.items() if key[0] == name and wanted <= key[1]}

    def value(self, name, **labels):
        found = self.all(name, **labels)
        assert len(found) <= 1, found
        return next(iter(found.values()), None)


class Served:
    """A daemon in this process, and a client of it."""

    def __init__(self, daemon, client, config_file):
        self.daemon, self.client, self.config_file = daemon, client, config_file

    async def page(self):
        answer = await self.client.get("/metrics")
        assert answer.status_code == 200
        return Page(answer.text)

    async def until(self, condition):
        """Scrape until there is something to see."""
        async with asyncio.timeout(LONG):
            while not condition(page := await self.page()):  # noqa: ASYNC110  # the condition is on a scrape
                await asyncio.sleep(0.01)
        return page

    async def reload(self, text):
        self.config_file.write_text(text)
        return await self.client.post("/-/reload")

    def pollers(self):
        return {key: one.poller for key, one in self.daemon._sources._running.items()}


@contextlib.asynccontextmanager
async def client_of(daemon):
    host, port = daemon.web.addresses[0]
    async with httpx.AsyncClient(base_url=f"http://{host}:{port}", trust_env=False, timeout=LONG) as client:
        yield client


@contextlib.asynccontextmanager
async def serving(folder, config="{}", **settings):
    """Serve by a configuration, on a host without any hardware."""
    file = folder / "config.yml"
    file.write_text(config)
    for name in ("sys", "nic"):
        (folder / name).mkdir(exist_ok=True)
    usual = {"sysfs": folder / "sys", "procfs": folder / "proc", "nic_replay": folder / "nic"}
    daemon = Daemon(Settings(config_file=file, listen_addresses=("127.0.0.1:0",), **(usual | settings)))
    await daemon.start()
    try:
        async with client_of(daemon) as client:
            yield Served(daemon, client, file)
    finally:
        await daemon.stop()


@contextlib.asynccontextmanager
async def leaf(number=0):
    """Serve a leaf switch by SNMP, under a name of its own."""
    training = Training(())
    async with SnmpAgent() as agent:
        fill_agent(agent, DemoLeaf(training.leaves[0], training))
        agent.set((1, 3, 6, 1, 2, 1, 1, 5, 0), Typed(OCTET_STRING, f"switch-{number}".encode()))
        agent.address = "{}:{}".format(*await agent.start())

        def move(seconds):
            training.advance(seconds)
            update_agent(agent, DemoLeaf(training.leaves[0], training))

        agent.move = move
        yield agent


def targets(*agents, **changed):
    """Write the configuration of switches named leaf-0, leaf-1 …; `changed` are intervals by name."""
    listed = [
        {
            "name": f"leaf-{number}",
            "address": agent if isinstance(agent, str) else agent.address,
            "interval": changed.get(f"leaf_{number}", "250ms"),
            "snmp": {"community": "public", "timeout": "20s"},
        }
        for number, agent in enumerate(agents)
    ]
    return json.dumps({"switches": {"targets": listed}})


def is_all_up(page):
    """Return whether every source of the demo is up, with two switches."""
    ups = page.all("fabric_source_up")
    names = sorted(dict(labels)["source"] for _, labels in ups)
    absent = {"lldp", "ibfabric", "nccl_facts", "collector", "pods"}  # no neighbours, fabric, logs, broker; off
    expected = {one.name for one in sources.SOURCES} - absent
    return names == sorted([*expected, "switch"]) and set(ups.values()) == {1}


# Serving.


async def test_a_whole_cluster_is_served_on_every_path(tmp_path):
    async with Cluster(tmp_path, interval="500ms", switch_interval="1s") as cluster:
        daemon = Daemon(demo.settings(cluster, listen_addresses=["127.0.0.1:0"]))
        await daemon.start()
        try:
            async with client_of(daemon) as client:
                served = Served(daemon, client, cluster.config_file)
                await served.until(is_all_up)
                await cluster.advance(1.0)
                await served.until(lambda page: page.all("fabric_switch_receive_bytes_per_second"))
                exact = samples_of((await client.get("/metrics", headers=OPENMETRICS)).text, parse_openmetrics)
                assert len(exact) > 1000
                names = {metric.name for metric in sources.metrics()}
                made = {key[0].removesuffix("_bucket").removesuffix("_count").removesuffix("_sum") for key in exact}
                assert {name for name in made if name not in names} == set()
                look = await client.get("/")
                assert (look.status_code, look.headers["content-type"]) == (200, "text/html; charset=utf-8")
                assert all(name in look.text for name in ("leaf-01", "leaf-02", "rdma", "nccl"))
                assert (await client.get("/-/healthy")).text == "healthy\n"
                assert (await client.get("/-/ready")).text == "ready\n"
                assert (await client.post("/-/reload")).text == "reloaded\n"
                assert (await client.get("/nothing")).status_code == 404
        finally:
            await daemon.stop()


@pytest.mark.parametrize("form", Format)
async def test_a_page_has_each_family_once_and_one_end(tmp_path, form):
    async with serving(tmp_path) as served:
        text = (await served.client.get("/metrics", headers={"accept": form.content_type})).text
        families = re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)
        assert {"fabric_source_reads_total", "fabric_source_reads"} & {*families}
        assert {"process_cpu_seconds_total", "process_cpu_seconds"} & {*families}
        assert sorted(families) == sorted({*families})
        ends = re.findall(r"^# EOF.*", text, re.MULTILINE)
        assert ends == (["# EOF"] if form is Format.OPENMETRICS else [])
        assert text.endswith("\n# EOF\n") is (form is Format.OPENMETRICS)
        assert samples_of(text, parse_openmetrics if form is Format.OPENMETRICS else parse_text)


async def test_absent_hardware_is_neither_up_nor_a_failure(tmp_path, caplog):
    async with serving(tmp_path) as served:
        async with asyncio.timeout(LONG):
            for poller in served.pollers().values():
                await poller.first_read.wait()
        page = await served.page()
        assert page.value("fabric_source_reads_total", source="nic") >= 1
        assert page.all("fabric_source_up") == {}
        assert page.all("fabric_source_failures_total") == {}
        assert page.value("fabric_exporter_config_last_reload_successful") == 1
        assert (await served.client.get("/-/ready")).status_code == 200
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_it_is_ready_after_the_first_reads_or_ten_seconds(tmp_path, monkeypatch):
    async with leaf() as agent:
        agent.faults.silent = True
        async with serving(tmp_path, targets(agent, leaf_0="60s")) as served:
            monkeypatch.setattr(module, "READY_AFTER", LONG)
            await served.until(lambda page: page.value("fabric_source_reads_total", source="nic"))
            answer = await served.client.get("/-/ready")
            assert (answer.status_code, answer.text) == (503, "not ready: not read yet: switch leaf-0\n")
            monkeypatch.setattr(module, "READY_AFTER", 0.0)
            assert (await served.client.get("/-/ready")).status_code == 200
            assert (await served.client.get("/-/healthy")).status_code == 200


async def test_series_of_a_switch_that_fell_silent_vanish(tmp_path):
    async with leaf() as agent, serving(tmp_path, targets(agent)) as served:
        name = "fabric_switch_receive_bytes_total"
        page = await served.until(lambda page: page.all(name))
        assert page.value("fabric_source_up", target="leaf-0") == 1
        agent.faults.silent = True
        page = await served.until(lambda page: not page.all(name))
        assert page.value("fabric_source_up", target="leaf-0") == 0
        assert page.value("fabric_source_last_success_timestamp_seconds", target="leaf-0") > 1.7e9
        assert page.value("fabric_source_rows", target="leaf-0") == 0
        assert page.value("fabric_source_failures_total", target="leaf-0", reason="timeout") >= 1
        agent.faults.silent = False
        await served.until(lambda page: page.all(name) and page.value("fabric_source_up", target="leaf-0") == 1)


@pytest.mark.parametrize(
    ("config", "node", "name"),
    [("host: mine", "node-7", "mine"), ("{}", "node-7", "node-7"), ("{}", "", socket.gethostname())],
)
async def test_the_hosts_name_is_that_of_the_configuration_of_kubernetes_or_its_own(
    tmp_path, monkeypatch, config, node, name
):
    monkeypatch.setenv("NODE_NAME", node)
    (tmp_path / "nic").mkdir()
    (tmp_path / "nic" / "eth0.json").write_text(
        '{"link": {"ifindex": 2, "parent_dev_name": "0000:17:00.0", "parent_dev_bus_name": "pci"}}'
    )
    async with serving(tmp_path, config) as served:
        page = await served.until(lambda page: page.all("fabric_nic_info"))
        assert page.value("fabric_nic_info", host=name, device="eth0") == 1


async def test_dropped_metrics_are_not_exported(tmp_path):
    (tmp_path / "nic").mkdir()
    (tmp_path / "nic" / "eth0.json").write_text(
        '{"link": {"ifindex": 2, "mtu": 9000, "carrier_changes": 1, "parent_dev_name": "x"}}'
    )
    async with serving(tmp_path, 'sources: {nic: {drop: ["fabric_nic_mtu_*"]}}') as served:
        page = await served.until(lambda page: page.all("fabric_nic_carrier_changes_total"))
        assert page.all("fabric_nic_mtu_bytes") == {}


@pytest.mark.parametrize(
    ("keep", "there"),
    [("[]", set()), ('["fabric_nic_kernel_receive_p*"]', {"fabric_nic_kernel_receive_packets_total"})],
)
async def test_kept_details_are_exported(tmp_path, keep, there):
    (tmp_path / "nic").mkdir()
    (tmp_path / "nic" / "eth0.json").write_text(
        '{"link": {"ifindex": 2, "parent_dev_name": "x", "stats": {"rx_packets": 5, "tx_packets": 6, "rx_dropped": 0}}}'
    )
    async with serving(tmp_path, f"sources: {{nic: {{keep: {keep}}}}}") as served:
        page = await served.until(lambda page: page.all("fabric_nic_kernel_receive_discards_total"))
        assert {name for name, _ in page.samples if re.fullmatch(r"fabric_nic_kernel_\w+_packets_total", name)} == there


def load(folder, text):
    (folder / "config.yml").write_text(text)
    return loading.load_config(folder / "config.yml")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            'sources: {nic: {keep: ["fabric_nic_kernel_recieve_*"]}}',
            "1: sources.nic.keep[0]: 'fabric_nic_kernel_recieve_*' matches no detail; {LISTED}",
        ),
        (  # that is exported anyway
            "sources: {rdma: {keep: [fabric_rdma_link_up]}}",
            "1: sources.rdma.keep[0]: 'fabric_rdma_link_up' matches no detail; {LISTED}",
        ),
        (
            'sources: {nic: {keep: ["fabric_rdma_vl15_*"]}}',
            "1: sources.nic.keep[0]: 'fabric_rdma_vl15_*' matches no detail; {LISTED}",
        ),
        (
            "switches: {keep: [cnp_sent_ratio]}",
            "1: switches.keep[0]: 'cnp_sent_ratio' matches no detail; {LISTED}",
        ),
        (
            "probe:\n  keep:\n  - fabric_nic_kernel_*\n",
            "3: probe.keep[0]: 'fabric_nic_kernel_*' matches no detail; {LISTED}",
        ),
        (
            'sources: {rdma: {drop: ["fabric_rmda_*"]}}',
            "1: sources.rdma.drop[0]: 'fabric_rmda_*' matches no metric; {LISTED}",
        ),
    ],
)
def test_a_pattern_that_matches_no_metric_is_an_error(tmp_path, text, error):
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    listed = "docs/metrics.md lists their full names"
    assert str(caught.value) == f"{tmp_path}/config.yml:{error.replace('{LISTED}', listed)}"


def test_patterns_match_computed_metrics_too(tmp_path):
    patterns = {"keep": ["fabric_rdma_cnp_sent_ratio"], "drop": ["fabric_rdma_ports_*", "*_asymmetry_ratio"]}
    found = load(tmp_path, json.dumps({"sources": {"rdma": patterns}})).sources["rdma"]
    assert (found.keep, found.drop) == (tuple(patterns["keep"]), tuple(patterns["drop"]))


# What is expected of the host.

EXPECTED, READY = "fabric_rdma_ports_expected", "fabric_rdma_ports_ready"


def add_ports(folder, *rates):
    """Put RDMA devices of one port each on the host, by the text of their rate; None is one that is down."""
    for number, rate in enumerate(rates):
        port = folder / "sys" / "class" / "infiniband" / f"mlx5_{number}" / "ports" / "1"
        port.mkdir(parents=True)
        (port / "state").write_text("4: ACTIVE\n" if rate else "1: DOWN\n")
        (port / "phys_state").write_text("5: LinkUp\n" if rate else "3: Disabled\n")
        (port / "rate").write_text(f"{rate or '10 Gb/sec (4X SDR)'}\n")
        (port / "link_layer").write_text("InfiniBand\n")


async def test_as_many_ports_as_expected_until_their_whole_class_vanishes(tmp_path):
    add_ports(tmp_path, "400 Gb/sec (4X NDR)", "400 Gb/sec (4X NDR)", "200 Gb/sec (2X NDR)", None)
    config = "{expect: {rdma_ports: 4}, sources: {rdma: {interval: 200ms}}}"
    async with serving(tmp_path, config) as served:
        page = await served.until(lambda page: page.value("fabric_rdma_link_up", device="mlx5_3") == 0)
        assert (page.value(EXPECTED), page.value(READY)) == (4, 2)
        shutil.rmtree(tmp_path / "sys" / "class" / "infiniband")
        page = await served.until(lambda page: page.value(READY) == 0)
        assert page.value(EXPECTED) == 4
        page = await served.until(lambda page: not page.all("fabric_source_up", source="rdma"))
        assert (page.value(EXPECTED), page.value(READY)) == (4, 0)


async def test_numbers_of_ports_are_exported_only_where_expected(tmp_path):
    add_ports(tmp_path, "400 Gb/sec (4X NDR)")
    async with serving(tmp_path, "{expect: {rdma_speed: 400Gb/s}}") as served:
        page = await served.until(lambda page: page.all("fabric_rdma_link_up"))
        assert (page.all(EXPECTED), page.all(READY)) == ({}, {})
        await served.reload("{expect: {rdma_ports: 1}}")
        page = await served.until(lambda page: page.all(EXPECTED))
        assert (page.value(EXPECTED), page.value(READY)) == (1, 1)


class NeverRead:
    """A poller whose first read hangs, or has ended without a device."""

    def __init__(self, *, read):
        self.first_read = asyncio.Event()
        if read:
            self.first_read.set()

    def fresh_tables(self):
        return ()


@pytest.mark.parametrize(
    ("read", "seconds", "is_exported"), [(False, 10.0, False), (False, 10.1, True), (True, 0.0, True)]
)
async def test_ready_ports_are_0_after_a_first_read_that_hangs(stopped_clock, read, seconds, is_exported):
    clock = stopped_clock(running_sources)
    configured = ConfiguredSource(None, None, SourceSteps(), Expectation(ports=8), (), (), ())
    running = RunningSource(configured, NeverRead(read=read), None, since=clock.now)
    clock.now += seconds
    values = [table.values("ports_ready") for table in running.tables()]
    assert values == ([[0]] if is_exported else [])


@pytest.mark.parametrize(
    ("dropped", "left"),
    [
        ([EXPECTED], {READY}),
        ([READY], {EXPECTED}),
        (["fabric_rdma_ports_*"], set()),
        (["fabric_rdma_link_*"], {EXPECTED, READY}),
    ],
)
async def test_numbers_of_ports_can_be_dropped_and_need_no_other_metric(tmp_path, dropped, left):
    add_ports(tmp_path, "400 Gb/sec (4X NDR)", None)
    config = {"expect": {"rdma_ports": 2}, "sources": {"rdma": {"drop": dropped}}}
    async with serving(tmp_path, json.dumps(config)) as served:
        page = await served.until(lambda page: page.all("fabric_rdma_info"))
        values = {EXPECTED: page.value(EXPECTED), READY: page.value(READY)}
        assert {name: value for name, value in values.items() if value is not None} == {
            name: {EXPECTED: 2, READY: 1}[name] for name in left
        }


async def test_the_class_of_a_host_is_found_by_its_name(tmp_path):
    text = "{host: login-3, expect: {rdma_ports: 8, classes: [{hosts: ['login-*'], rdma_ports: 1}]}}"
    async with serving(tmp_path, text) as served:
        page = await served.until(lambda page: page.all(EXPECTED))
        assert (page.value(EXPECTED), page.value(READY)) == (1, 0)
        await served.reload(text.replace("login-3", "gpu-3"))
        await served.until(lambda page: page.value(EXPECTED) == 8)


@pytest.mark.parametrize(
    ("expect", "place", "ports"),
    [
        ("{rdma_ports: 8}", "expect.rdma_ports", 8),
        ("{rdma_ports: 8, classes: [{hosts: [head], rdma_ports: 2}]}", "expect.rdma_ports", 8),
        (
            "{classes: [{hosts: [head], rdma_ports: 2}, {hosts: ['gpu-*'], rdma_ports: 0}]}",
            "expect.classes[1].rdma_ports",
            0,
        ),
    ],
)
def test_report_97_ports_that_are_expected_and_not_read_are_an_error(tmp_path, monkeypatch, expect, place, ports):
    monkeypatch.setenv("NODE_NAME", "gpu-1")
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, f"{{expect: {expect}, sources: {{rdma: {{enabled: false}}}}}}")
    assert str(caught.value) == (
        f"{tmp_path}/config.yml:1: {place}: is {ports} for the host 'gpu-1', and sources.rdma.enabled is false, so that"
        " no port is counted; remove one of the two"
    )


@pytest.mark.parametrize("expect", ["{rdma_speed: 400Gb/s}", "{classes: [{hosts: ['gpu-*'], rdma_ports: 8}]}"])
def test_expectations_of_other_hosts_need_no_ports_of_this_one(tmp_path, expect):
    text = f"{{host: head, expect: {expect}, sources: {{rdma: {{enabled: false}}}}}}"
    assert load(tmp_path, text).sources["rdma"].enabled is False


def test_check_config_checks_every_class_of_hosts(tmp_path):
    text = "host: head\nexpect:\n  classes:\n  - hosts: [gpu-*]\n    rdma_ports: 8\nsources: {rdma: {enabled: false}}\n"
    load(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        loading.check(tmp_path / "config.yml", None)
    assert str(caught.value).startswith(f"{tmp_path}/config.yml:5: expect.classes[0].rdma_ports: is 8, and sources.")


PLANNED = "{parameters: 70B, data_parallel: 32, model_parallel: 16, link_speed: 400Gb/s}"


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        ('"llama-[0-9": %s', "jobs.llama-[0-9: the pattern 'llama-[0-9' has an unclosed ["),
        ('"*": %s\n  llama-*: %s', "jobs.llama-*: is never used: '*' comes before it and matches the same names"),
        ("llama-*: %s\n  llama-70b-*: %s", "jobs.llama-70b-*: is never used: 'llama-*' comes before it"),
        ("llama-*: %s\n  llama-70b: %s", "jobs.llama-70b: is never used: 'llama-*' comes before it"),
        ('"": %s', "jobs: a pattern is empty"),
    ],
)
def test_a_plan_that_no_job_can_have_is_an_error(tmp_path, jobs, message):
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "jobs:\n  " + jobs.replace("%s", PLANNED) + "\n")
    assert message in str(caught.value)


def test_plans_stand_in_any_order_that_makes_sense(tmp_path):
    text = "".join(f"  {one!r}: {PLANNED}\n" for one in ("llama-70b", "llama-?", "llama-*", "[!x]*", "*"))
    assert len(load(tmp_path, f"jobs:\n{text}").jobs) == 5


def test_check_config_prints_what_follows_from_job_plans(tmp_path):
    path = tmp_path / "config.yml"
    path.write_text(f"jobs:\n  llama-*: {PLANNED}\n  other: {{parameters: 7B, data_parallel: 8}}\n")
    first, large, small = loading.check(path, None)
    assert first.startswith(f"{path}: valid; ")
    groups = "512 ranks, data-parallel groups of 32 on 32 hosts"
    assert large == f"{path}: jobs.llama-*: {groups}, 0.339 s of network a step at least"
    assert small == f"{path}: jobs.other: 8 ranks, data-parallel groups of 8 on 1 host"


async def test_a_reload_that_stops_reading_the_ports_that_are_expected_changes_nothing(tmp_path):
    add_ports(tmp_path, "400 Gb/sec (4X NDR)")
    text = "{host: gpu-1, expect: {rdma_ports: 1}, sources: {rdma: {interval: 200ms}}}"
    async with serving(tmp_path, text) as served:
        assert (await served.reload(text.replace("interval: 200ms", "enabled: false"))).status_code == 500
        page = await served.until(lambda page: page.value("fabric_source_reads_total", source="rdma") > 1)
        assert (page.value(EXPECTED), page.value(READY)) == (1, 1)


# Reloading.


async def test_a_collector_without_a_broker_is_an_error_of_the_reload(tmp_path):
    with_broker = "mqtt: {broker: '127.0.0.1:1'}\ncollector: {slots: 00-ff}\n"
    async with serving(tmp_path, with_broker) as served:
        relay = served.daemon._relay
        assert (await served.reload("collector: {slots: 00-ff}\n")).status_code == 500
        assert served.daemon._relay is relay
        assert (await served.page()).value("fabric_exporter_mqtt_connected") == 0
        assert (await served.reload("host: another\n" + with_broker)).status_code == 200
        assert served.daemon._relay.host == "another"


async def test_states_are_published_after_the_broker_was_removed_and_added_again(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(module, "STATES_INTERVAL", 0.01)
    called, go = threading.Event(), threading.Event()

    def slow(*_):
        called.set()
        go.wait(LONG)
        raise ValueError("once")

    monkeypatch.setattr(port_states, "step", slow)
    async with serving(tmp_path, "mqtt: {broker: '127.0.0.1:1'}\n") as served:
        assert await asyncio.to_thread(called.wait, LONG)
        assert (await served.reload("{}")).status_code == 200
        called.clear()
        go.set()
        assert (await served.reload("mqtt: {broker: '127.0.0.1:1'}\n")).status_code == 200
        assert await asyncio.to_thread(called.wait, LONG)
    assert "port states: ended by an error in this program" in caplog.text


async def test_a_reload_restarts_changed_sources_only(tmp_path):
    async with leaf(0) as first, leaf(1) as second, serving(tmp_path, targets(first, second)) as served:
        name = "fabric_switch_receive_bytes_total"
        both = {"switch-0", "switch-1"}
        await served.until(lambda page: {dict(key[1])["switch"] for key in page.all(name)} == both)
        before = served.pollers()
        reads = before["switch", "leaf-1"].status.reads
        second.move(1.0)
        assert (await served.reload(targets(first, second, leaf_0="300ms"))).status_code == 200
        after = served.pollers()
        assert after.keys() == before.keys()
        assert {key for key in after if after[key] is not before[key]} == {("switch", "leaf-0")}
        assert after["switch", "leaf-0"].source.interval == 0.3
        page = await served.until(
            lambda page: (
                {dict(key[1])["switch"] for key in page.all(name)} == both
                and page.value("fabric_source_reads_total", target="leaf-1") > reads + 2
            )
        )
        assert set(page.all("fabric_switch_resets_total").values()) == {0}
        assert page.all("fabric_switch_receive_bytes_per_second", switch="switch-1")


async def test_a_reload_still_knows_calls_that_hang(tmp_path):
    add_ports(tmp_path, "400 Gb/sec (4X NDR)")
    text = "{host: gpu-1, sources: {rdma: {interval: 200ms}}}"
    async with serving(tmp_path, text) as served:
        before = served.pollers()["rdma", ""].source
        before._serial._turns.hanging.add("mlx5_9")  # as a call that does not return
        assert (await served.reload(text.replace("200ms", "300ms"))).status_code == 200
        after = served.pollers()["rdma", ""].source
        assert after is not before
        assert "mlx5_9" in after._serial.hanging


async def test_a_changed_nic_speed_does_not_restart_switches(tmp_path):
    async with leaf() as agent, serving(tmp_path, targets(agent)) as served:
        before = served.pollers()
        config = json.loads(targets(agent)) | {"expect": {"nic_speed": "400Gb/s"}}
        assert (await served.reload(json.dumps(config))).status_code == 200
        after = served.pollers()
        assert {key for key in after if after[key] is not before[key]} == {("nic", ""), ("hostcheck", "")}


async def test_changed_job_plans_restart_no_source_and_apply_at_once(tmp_path):
    text = "collector: {slots: 00-ff}\nmqtt: {broker: '127.0.0.1:1'}\nsources: {nccl: {inspector: [.]}}\n"
    async with serving(tmp_path, text) as served:
        before = served.pollers()
        assert (await served.reload(f"{text}jobs:\n  llama-*: {PLANNED}\n")).status_code == 200
        assert served.pollers() == before
        assert served.daemon._prepared.known.plan("llama-70b").data_parallel == 32
        assert (await served.reload(text)).status_code == 200
        assert served.daemon._prepared.known.plan("llama-70b") is None


async def test_pollers_of_removed_targets_end_and_their_series_are_removed(tmp_path):
    async with leaf(0) as first, leaf(1) as second, serving(tmp_path, targets(first, second)) as served:
        name = "fabric_switch_link_up"
        await served.until(lambda page: len({dict(key[1])["switch"] for key in page.all(name)}) == 2)
        task = served.daemon._sources._running["switch", "leaf-1"].task
        await served.reload(targets(first))
        page = await served.page()
        assert {dict(key[1])["switch"] for key in page.all(name)} == {"switch-0"}
        assert page.all("fabric_source_up", target="leaf-1") == {}
        async with asyncio.timeout(LONG):
            await task.wait()
        requests = second.requests
        await served.until(lambda page: page.value("fabric_source_reads_total", target="leaf-0") > 5)
        assert second.requests == requests
        await served.reload("sources: {nic: {enabled: false}, rdma: {enabled: false}}")
        assert not {("nic", ""), ("rdma", ""), ("switch", "leaf-0")} & served.pollers().keys()


async def test_an_invalid_configuration_changes_nothing_and_is_reported(tmp_path, caplog):
    async with leaf() as agent, serving(tmp_path, targets(agent)) as served:
        page = await served.page()
        since = page.value("fabric_exporter_config_last_reload_success_timestamp_seconds")
        before = served.pollers()
        for wrong, message in (
            ("nonsense: 1", "unknown key"),
            ("a: [", "is not valid YAML"),
            (targets(agent, agent).replace("leaf-1", "leaf-0"), "two targets are named 'leaf-0'"),
        ):
            answer = await served.reload(wrong)
            assert answer.status_code == 500
            assert answer.text.startswith(f"{served.config_file}:")
            assert message in answer.text
            assert "remains in use" in caplog.records[-1].getMessage()
            page = await served.page()
            assert page.value("fabric_exporter_config_last_reload_successful") == 0
            assert page.value("fabric_exporter_config_last_reload_success_timestamp_seconds") == since
            assert served.pollers() == before
        served.config_file.unlink()
        assert "No such file" in (await served.client.post("/-/reload")).text
        assert (await served.reload(targets(agent))).status_code == 200
        page = await served.page()
        assert page.value("fabric_exporter_config_last_reload_successful") == 1
        assert page.value("fabric_exporter_config_last_reload_success_timestamp_seconds") > since
        assert served.pollers() == before


async def test_concurrent_reload_requests_share_one_reload(tmp_path, monkeypatch):
    async with serving(tmp_path) as served:
        load, reads, gate = loading.load_config, [], threading.Event()

        def slowly(path):
            reads.append(path)
            assert gate.wait(LONG)
            return load(path)

        monkeypatch.setattr(module, "load_config", slowly)
        first = asyncio.create_task(served.daemon.reload())
        async with asyncio.timeout(LONG):
            while not reads:  # noqa: ASYNC110  # appended by a thread
                await asyncio.sleep(0.001)
        others = [asyncio.create_task(served.daemon.reload()) for _ in range(100)]
        await asyncio.sleep(0)
        gate.set()
        assert await asyncio.gather(first, *others) == [None] * 101
        assert len(reads) == 2  # the one under way may have read the file before it changed


async def test_concurrent_reloads_run_one_after_the_other(tmp_path):
    async with leaf() as agent, serving(tmp_path, targets(agent)) as served:
        assert await asyncio.gather(*[served.daemon.reload() for _ in range(5)]) == [None] * 5
        assert len(served.pollers()) == len(set(served.pollers().values()))


# Without holding anything up.


async def test_nothing_blocks_the_loop(tmp_path):
    """Polls, scrapes in both formats, the page, reloads good and bad, a silent switch and a dead one, and the end."""
    with blockbuster_ctx() as watch, socket.socket() as dead:
        # Once, before anything is served: the configuration, and procfs files of this process.
        for call in ("io.BufferedReader.read", "os.stat", "os.scandir"):
            watch.functions[call].can_block_in("exporter/daemon/daemon.py", {"__init__"})
        watch.functions["io.TextIOWrapper.read"].can_block_in("exporter/daemon/runtime.py", {"warn_of_own_namespace"})
        # procfs files of this process are in memory; a fast rendering runs on the event loop.
        for call in ("io.BufferedReader.read", "os.listdir"):
            watch.functions[call].can_block_in("prometheus_client/process_collector.py", {"collect"})
        dead.bind(("127.0.0.1", 0))
        dead.listen()
        async with Cluster(tmp_path, interval="500ms", switch_interval="1s") as cluster:
            daemon = Daemon(demo.settings(cluster, listen_addresses=["127.0.0.1:0"]))
            await daemon.start()
            try:
                async with client_of(daemon) as client:
                    served = Served(daemon, client, cluster.config_file)
                    await served.until(is_all_up)
                    text = await asyncio.to_thread(cluster.config_file.read_text)
                    more = f"    - {{name: dead, address: 'http://127.0.0.1:{dead.getsockname()[1]}', onyx: "
                    more += "{username: u, password: p}}\n"
                    await asyncio.to_thread(cluster.config_file.write_text, text + more)
                    assert (await client.post("/-/reload")).status_code == 200
                    cluster.agent.faults.silent = True
                    await served.until(lambda page: page.value("fabric_source_up", target="dead") == 0)
                    await served.until(lambda page: page.value("fabric_source_up", target="leaf-01") == 0)
                    await cluster.advance(1.0)
                    for path in ("/", "/-/ready", "/metrics"):
                        assert (await client.get(path, headers=OPENMETRICS)).status_code == 200
                    await asyncio.to_thread(cluster.config_file.write_text, "wrong: [")
                    assert (await client.post("/-/reload")).status_code == 500
                    page = await served.page()
                    assert not [
                        key for key in page.all("fabric_source_failures_total") if ("reason", "internal") in key[1]
                    ]
            finally:
                await daemon.stop()


def test_the_lag_is_the_maximum_of_the_current_and_the_last_half_minute(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(runtime, "monotonic", lambda: now[0])
    lag = runtime.LoopLag(since=0.0)
    assert lag.longest() is None
    seen = []
    for at, late in ((1, 0.5), (29, 0.2), (31, 0.1), (62, 0.3), (93, 0.0), (124, 0.0)):
        now[0] = at
        lag.note(late)
        seen.append(lag.longest())
    assert seen == [0.5, 0.5, 0.5, 0.3, 0.3, 0.0]
    now[0] = 154
    assert lag.longest() == 0.0
    now[0] = 214
    assert lag.longest() is None, "nothing was due for a minute"


@pytest.mark.parametrize("same", [True, False])
def test_a_daemon_in_another_network_namespace_logs_a_warning(tmp_path, caplog, same):
    folder = tmp_path / "1" / "net"
    folder.mkdir(parents=True)
    devices = Path("/proc/self/net/dev").read_text()
    (folder / "dev").write_text(devices if same else devices.replace("lo:", "lo: 1\n gpu0:"))
    runtime.warn_of_own_namespace(tmp_path)
    runtime.warn_of_own_namespace(tmp_path / "none")
    assert [record.getMessage().partition(",")[0] for record in caplog.records] == (
        [] if same else ["this process is not in the host's network namespace"]
    )


# As a process.

HANGS = """
import sys, threading
from exporter import cli
from exporter.linux.nic_reader import ReplayNic
usual = ReplayNic.statistics
def statistics(self, device):
    with open(sys.argv[1], "a") as calls:
        print(device, file=calls)
    if device == "eth4":
        threading.Event().wait()
    return usual(self, device)
ReplayNic.statistics = statistics
sys.exit(cli.main(sys.argv[2:]))
"""
"""The program with one NIC whose driver never returns."""


class Process:
    """A daemon in a process of its own."""

    def __init__(self, process, log):
        self.process, self.log, self.url = process, log, ""

    def until(self, condition):
        end = monotonic() + LONG
        while not (found := condition()):
            assert self.process.poll() is None, self.log.read_text()
            assert monotonic() < end, self.log.read_text()
            sleep(0.02)
        return found

    def page(self):
        return Page(httpx.get(f"{self.url}/metrics", trust_env=False, timeout=LONG).text)

    def listening(self):
        lines = [line for line in self.log.read_text().splitlines() if "listening on" in line]
        self.url = f"http://{lines[0].split('listening on ')[1].split(chr(34))[0]}" if lines else ""
        return bool(self.url)


@contextlib.contextmanager
def process(folder, *command):
    log = folder / "log"
    with log.open("wb") as out, subprocess.Popen([sys.executable, *map(str, command)], stderr=out) as one:
        try:
            started = Process(one, log)
            started.until(started.listening)
            yield started
        finally:
            one.kill()


def test_sighup_reloads_and_sigterm_ends(tmp_path):
    file = tmp_path / "config.yml"
    file.write_text("{}")
    for name in ("sys/class", "nic"):
        (tmp_path / name).mkdir(parents=True)
    flags = ["--path.sysfs", tmp_path / "sys", "--path.nic-replay", tmp_path / "nic", "--config.file", file]
    successful = "fabric_exporter_config_last_reload_successful"
    with process(tmp_path, "-m", "exporter", "--web.listen-address", "127.0.0.1:0", *flags) as running:
        assert running.page().value(successful) == 1
        file.write_text("nonsense: 1")
        running.process.send_signal(signal.SIGHUP)
        running.until(lambda: running.page().value(successful) == 0)
        assert "unknown key" in running.log.read_text()
        file.write_text("sources: {rdma: {enabled: false}}")
        running.process.send_signal(signal.SIGHUP)
        running.until(lambda: running.page().value(successful) == 1)
        assert running.page().all("fabric_source_reads_total", source="rdma") == {}
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(timeout=5) == 0
    assert running.log.read_text().splitlines()[-1].count("stopping") == 1


def test_several_blocked_devices_delay_no_others_and_the_daemon_stops(tmp_path):
    """A pipe among the counters, a driver and a file that hang, a switch without an answer and one that is dead."""
    HostFiles(tmp_path, Training(())).create()
    (tmp_path / "proc").mkdir()
    pipe = tmp_path / "sys" / "class" / "infiniband" / "mlx5_3" / "ports" / "1" / "counters" / "port_rcv_data"
    pipe.unlink()
    os.mkfifo(pipe)
    os.mkfifo(tmp_path / "ca.pem")
    calls = tmp_path / "calls"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent, socket.socket() as dead:
        for one in (silent, dead):
            one.bind(("127.0.0.1", 0))
        dead.listen()
        onyx = {"username": "u", "password": "p"}
        switches = [
            {
                "name": "silent",
                "address": f"127.0.0.1:{silent.getsockname()[1]}",
                "snmp": {"community": "public"},
            },
            {"name": "dead", "address": f"http://127.0.0.1:{dead.getsockname()[1]}", "onyx": onyx},
            {"name": "stuck", "address": "127.0.0.1", "onyx": onyx | {"ca_file": str(tmp_path / "ca.pem")}},
        ]
        config = {
            "sources": {"rdma": {"interval": "100ms"}, "nic": {"interval": "3s"}, "nccl": {"enabled": False}},
            "switches": {"defaults": {"interval": "500ms"}, "targets": switches},
        }
        (tmp_path / "config.yml").write_text(json.dumps(config))
        (tmp_path / "hangs.py").write_text(HANGS)
        flags = ["--web.listen-address=127.0.0.1:0", "--config.file", tmp_path / "config.yml"]
        flags += ["--path.sysfs", tmp_path / "sys", "--path.nic-replay", tmp_path / "nic"]
        flags += ["--path.procfs", tmp_path / "proc"]
        with process(tmp_path, tmp_path / "hangs.py", calls, *flags) as running:

            def look():
                page = running.page()
                reads = {name: page.value("fabric_source_reads_total", source=name) or 0 for name in ("rdma", "nic")}
                down = [page.value("fabric_source_up", target=one["name"]) for one in switches]
                return page if reads["rdma"] > 20 and reads["nic"] > 2 and down == [0.0] * 3 else None

            page = running.until(look)
            for source in ("rdma", "nic"):
                assert page.value("fabric_source_up", source=source) == 1
            received = {dict(key[1])["device"] for key in page.all("fabric_rdma_receive_bytes_total")}
            assert received == {f"mlx5_{number}" for number in range(8)} - {"mlx5_3"}
            assert page.value("fabric_rdma_transmit_bytes_total", device="mlx5_3") > 0
            received = {dict(key[1])["device"] for key in page.all("fabric_nic_receive_bytes_total")}
            assert received == {f"eth{number}" for number in range(10) if number not in {1, 4}}
            assert page.value("fabric_nic_link_up", device="eth4") == 1
            assert page.value("fabric_source_failures_total", source="nic", device="eth4", reason="timeout") >= 2
            called = calls.read_text().split()
            assert called.count("eth4") == 1
            assert called.count("eth5") >= 3
            assert page.value("fabric_exporter_event_loop_lag_seconds") is not None
            running.process.send_signal(signal.SIGTERM)
            assert running.process.wait(timeout=5) == 0
            assert "exiting despite a blocked call" in running.log.read_text().splitlines()[-1]
