"""Switches in the daemon: polled or probed, by shard, listed for Prometheus, exported while down."""

import asyncio
import json
import re
import subprocess

import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from exporter.config.errors import ConfigError
from exporter.config.shard import Shard, owner
from exporter.daemon.loading import load_config
from tests.daemon.test_daemon import (
    OPENMETRICS,
    Page,
    leaf,
    samples_of,
    serving,
    targets,
)
from tests.helpers.paths import ROOT

SNMP = {"community": "public", "timeout": "20s"}
BYTES = "fabric_switch_receive_bytes_total"


def on_demand(*addresses, **probe):
    """Write a configuration of switches that are not polled, named leaf-0, leaf-1 …"""
    listed = [{"name": f"leaf-{number}", "address": address, "poll": False} for number, address in enumerate(addresses)]
    return json.dumps({"switches": {"defaults": {"snmp": SNMP}, "targets": listed}, "probe": probe})


# /probe.


async def test_a_probe_returns_one_switch_and_a_scrape_does_not(tmp_path):
    async with leaf() as agent, serving(tmp_path, on_demand(agent.address)) as served:
        answer = await served.client.get("/probe", params={"target": "leaf-0"})
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        found = Page(answer.text)
        assert found.value("fabric_probe_success") == 1
        assert len(found.all(BYTES, switch="switch-0")) == 33  # of hosts, spines and management
        assert not found.all("fabric_source_up")
        scraped = await served.page()
        assert not scraped.all(BYTES)
        assert not scraped.all("fabric_source_up", source="switch")
        assert scraped.value("fabric_exporter_http_requests_total", path="/probe", code="200") == 1


async def test_the_second_probe_has_rates_in_the_requested_format(tmp_path):
    async with leaf() as agent, serving(tmp_path, on_demand(agent.address)) as served:
        await served.client.get("/probe", params={"target": "leaf-0"})
        agent.move(10.0)
        answer = await served.client.get("/probe", params={"target": "leaf-0"}, headers=OPENMETRICS)
        samples = samples_of(answer.text, parse_openmetrics)
    assert answer.text.endswith("# EOF\n")
    rates = [value for (name, _), value in samples.items() if name == "fabric_switch_receive_bytes_per_second"]
    assert max(rates) > 0


async def test_the_debug_page_shows_the_result_and_no_secret(tmp_path):
    async with leaf() as agent, serving(tmp_path, on_demand(agent.address)) as served:
        good = await served.client.get("/probe", params={"target": "leaf-0", "debug": "true"})
        agent.faults.silent = True
        headers = {"x-prometheus-scrape-timeout-seconds": "0.7"}
        bad = await served.client.get("/probe", params={"target": "leaf-0", "debug": "true"}, headers=headers)
    assert (good.status_code, bad.status_code) == (200, 200)
    assert good.text.startswith("success after")
    assert f"polled {agent.address} by snmp" in good.text
    assert "  receive_bytes_total: 33" in good.text
    assert bad.text.startswith("FAILURE after")
    assert "timeout: no response within 0.5 s" in bad.text
    assert "public" not in good.text + bad.text


@pytest.mark.parametrize(
    ("params", "status", "message"),
    [
        ({"target": "127.0.0.1"}, 403, "neither a configured switch nor allowed by probe.allow"),
        ({"target": "leaf-0", "module": "arista"}, 400, "remove module and auth"),
        ({}, 400, "give target=HOST"),
    ],
)
async def test_refused_probes_have_a_reason(tmp_path, params, status, message):
    async with serving(tmp_path, on_demand("192.0.2.1")) as served:
        answer = await served.client.get("/probe", params=params)
    assert (answer.status_code, message in answer.text) == (status, True)


async def test_a_reload_changes_the_allowed_probes_and_keeps_unchanged_ones(tmp_path):
    async with leaf() as agent, serving(tmp_path, on_demand(agent.address)) as served:
        await served.client.get("/probe", params={"target": "leaf-0"})
        before = served.daemon._prober
        await served.reload(on_demand(agent.address) + "\n# the same")
        assert served.daemon._prober is before
        await served.reload(on_demand(agent.address, drop=["*_bytes_*"]))
        assert not before._cache
        found = Page((await served.client.get("/probe", params={"target": "leaf-0"})).text)
    assert found.value("fabric_probe_success") == 1
    assert not found.all(BYTES)


@pytest.mark.parametrize("address", ["192.0.2.7", "192.0.2.7:1161", "leaf-7.example.com", "https://192.0.2.7/"])
def test_a_polled_target_cannot_be_probed(tmp_path, address):
    way = {"onyx": {"username": "u", "password": "p"}} if "//" in address else {"snmp": SNMP}
    target = {"name": "a", "address": address, **way}
    config = {"switches": {"targets": [target]}, "probe": {"allow": ["192.0.2.0/24", "leaf-*"]}}
    (tmp_path / "config.yml").write_text(yaml.safe_dump(config))
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "config.yml")
    assert f"config.yml:2: probe.allow: allows {address!r}, which is the switch 'a' that is polled" in str(caught.value)
    target["poll"] = False
    (tmp_path / "config.yml").write_text(yaml.safe_dump(config))
    load_config(tmp_path / "config.yml")


async def test_late_answers_of_before_a_reload_are_not_taken_for_those_after_it(tmp_path):
    """As from a busy agent: the replies to the old requests arrive at the new socket, before its own."""
    async with leaf() as agent, serving(tmp_path, targets(agent)) as served:
        before = (await served.until(lambda page: page.all(BYTES))).all(BYTES, switch="switch-0")
        held, answer = [], agent.answer

        def hold(datagram):
            held.extend(answer(datagram))
            return []

        agent.answer = hold
        while not held:  # noqa: ASYNC110  # what the agent receives sets no event
            await asyncio.sleep(0.01)
        agent.move(10.0)

        def answer_late(datagram):
            return [*held, *answer(datagram)]

        agent.answer = answer_late
        assert (await served.reload(targets(agent, leaf_0="300ms"))).status_code == 200
        page = await served.until(lambda page: page.all(BYTES))
        after = page.all(BYTES, switch="switch-0")
        assert after.keys() == before.keys()
        assert sum(after.values()) > sum(before.values()), "the first values are those of now"
        assert not page.all("fabric_source_failures_total", source="switch")


# Files of targets.


async def test_files_of_targets_are_read_at_the_start_and_at_a_reload(tmp_path):
    more = tmp_path / "switches" / "row-7.yml"
    more.parent.mkdir()
    async with leaf() as agent:
        group = {"name": "row-7", "role": "leaf", "targets": [{"name": "leaf-a", "address": agent.address}]}
        more.write_text(yaml.safe_dump({"groups": [group]}))
        config = {"switches": {"defaults": {"snmp": SNMP, "interval": "250ms"}, "files": ["switches/*.yml"]}}
        async with serving(tmp_path, json.dumps(config)) as served:
            page = await served.until(lambda page: page.all(BYTES))
            assert page.all("fabric_switch_device_info", target="leaf-a", role="leaf")
            more.write_text("targets: [{name: leaf-b}]")
            answer = await served.client.post("/-/reload")
            assert answer.status_code == 500
            assert answer.text == f"{more}:1: targets[0]: missing key 'address'; add it\n"
            assert (await served.page()).all("fabric_source_up", target="leaf-a")
            more.write_text(f"targets: [{{name: leaf-b, address: '{agent.address}'}}]")
            assert (await served.client.post("/-/reload")).status_code == 200
            await served.until(lambda page: page.value("fabric_source_up", target="leaf-b") == 1)


@pytest.mark.parametrize(
    ("main", "file", "error"),
    [
        (
            "targets: [{name: a, address: b}]",
            "targets:\n- {name: a, address: c}",
            "more.yml:2: targets[0]: the target 'a'",
        ),
        (
            "",
            "targets:\n- {name: a, address: b}\n- {name: a, address: c}",
            "more.yml:3: targets[1]: the target 'a' is in",
        ),
        (
            "",
            "groups:\n- name: g\n  targets:\n  - {name: c,\n     address: 'c:0'}",
            "more.yml:4: groups[0].targets[0]: ",
        ),
        (
            "",
            "targets:\n- name: a\n  address: b\n  profile: none",
            "more.yml:4: targets[0].profile: there is no profile 'none'",
        ),
        (
            "",
            "targets:\n- name: a\n  address: b\n  uplinks: [a, 'b[']",
            "more.yml:4: targets[0].uplinks[1]: the pattern",
        ),
        ("", "target: []", "more.yml:1: target: unknown key; did you mean 'targets'?"),
        (
            "targets: [{name: a, address: b}, {name: a, address: c}]",
            "",
            "c.yml:5: switches.targets[1]: two targets are",
        ),
        ("profiles: [none.yml]", "", "c.yml:5: switches.profiles[0]: file not found"),
    ],
)
def test_errors_have_file_and_line(tmp_path, main, file, error):
    (tmp_path / "more.yml").write_text(file)
    text = f"switches:\n  defaults:\n    snmp: {{community: c}}\n  files: [more.yml]\n  {main}\n"
    (tmp_path / "c.yml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "c.yml")
    assert str(caught.value).startswith(f"{tmp_path}/{error}")


@pytest.mark.parametrize("profile", ["", "profile: generic, "])
def test_version_1_has_no_counters_for_traffic(tmp_path, profile):
    text = f"switches:\n  targets:\n  - {{name: a, address: b, {profile}snmp: {{community: c, version: 1}}}}\n"
    (tmp_path / "c.yml").write_text(text)
    with pytest.raises(ConfigError, match=r"c\.yml:3: switches\.targets\[0\]\.snmp: version 1 has no 64-bit counters"):
        load_config(tmp_path / "c.yml")
    own = {
        "name": "old",
        "tables": {
            "traffic": {
                "family": "traffic",
                "root": "1.3.6.1.2.1.2.2.1",
                "index": ["port"],
                "columns": [{"column": 10, "metric": "receive_bytes_total", "width": 32}],
            }
        },
    }
    (tmp_path / "old.yml").write_text(yaml.safe_dump(own))
    (tmp_path / "c.yml").write_text(
        text.replace(profile or "snmp", "profile: old, " if profile else "profile: old, snmp")
    )
    with (tmp_path / "c.yml").open("a") as file:
        file.write("  profiles: [old.yml]\n")
    load_config(tmp_path / "c.yml")


# Sharding.


async def test_each_shard_polls_its_own_and_lists_all(tmp_path):
    async with leaf(0) as one, leaf(1) as two, leaf(2) as three:
        config = targets(one, two, three)
        for number in range(2):
            folder = tmp_path / str(number)
            folder.mkdir()
            async with serving(folder, config, shard=Shard(number, 2)) as served:
                own = {f"leaf-{one}" for one in range(3) if owner(f"leaf-{one}", 2) == number}
                page = await served.until(lambda page, own=own: len(page.all("fabric_switch_up")) == len(own))
                assert {dict(labels)["target"] for _, labels in page.all("fabric_switch_up")} == own
                assert page.all("fabric_source_reads_total", source="rdma")  # the host's own are everybody's
                listed = (await served.client.get("/sd")).json()
                found = [one["labels"].get("__meta_fabric_name") for one in listed[:3]]
                assert found == ["leaf-0", "leaf-1", "leaf-2"]


# Service discovery.


async def test_prometheus_accepts_the_service_discovery(tmp_path, program):
    async with leaf() as agent, serving(tmp_path, on_demand(agent.address)) as served:
        readme = (ROOT / "deploy" / "README.md").read_text()
        (job,) = yaml.safe_load(re.search(r"```yaml\n(.*?)```", readme, re.DOTALL)[1])["scrape_configs"]
        job["http_sd_configs"] = [{"url": f"{served.client.base_url}/sd"}]
        (tmp_path / "prometheus.yml").write_text(yaml.safe_dump({"scrape_configs": [job]}))
        command = [program("promtool"), "check", "service-discovery", tmp_path / "prometheus.yml", "switches"]
        done = await asyncio.to_thread(
            subprocess.run, [*command, "--timeout=2s"], capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)
    assert found["labels"] == {
        "__address__": "fabric-exporter-switches.fabric-exporter-switches.svc:10315",
        "__metrics_path__": "/probe",
        "__param_target": "leaf-0",
        "__scheme__": "http",
        "__scrape_interval__": "1m",
        "__scrape_timeout__": "10s",
        "instance": "leaf-0",
        "job": "switches",
    }
    labels = found["discoveredLabels"]
    assert labels["__meta_fabric_polled"] == "false"
    assert labels["__meta_fabric_protocols"] == "snmp"
    assert labels["__meta_fabric_name"] == "leaf-0"


# Health.


async def test_a_switch_that_is_down_is_exported_with_the_reason(tmp_path):
    async with leaf() as agent, serving(tmp_path, targets(agent)) as served:
        page = await served.until(lambda page: page.all(BYTES))
        assert page.value("fabric_switch_up", switch="switch-0", target="leaf-0") == 1
        agent.faults.silent = True
        page = await served.until(lambda page: not page.all(BYTES))
        assert page.value("fabric_switch_up", switch="switch-0", target="leaf-0") == 0
        assert page.value("fabric_switch_poll_duration_seconds", switch="switch-0", target="leaf-0") > 0
        assert page.value("fabric_switch_overruns_total", switch="switch-0", target="leaf-0") >= 0
        assert "<small>" in (text := (await served.client.get("/")).text)
        assert "before a response to" in text or "no response" in text or "no answer" in text
