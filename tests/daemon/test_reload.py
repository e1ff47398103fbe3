"""Reloads are whole: one that fails changes nothing that can be observed, one that succeeds equals a new start."""

import asyncio
import json
import logging
import tempfile
import threading
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.config.schema import Config
from exporter.daemon import daemon as daemon_module
from exporter.daemon import prepared as preparation
from exporter.daemon import probe, relay, sources
from exporter.daemon import running as running_sources
from exporter.daemon.daemon import Daemon
from exporter.daemon.settings import Settings
from exporter.mqtt.options import SECTION as MQTT
from exporter.sources.switch.registry import SwitchRegistry

LONG = 60.0

SNMP = {"community": "public", "timeout": "100ms", "retries": 0}

PROFILE = (
    "name: own\nobject_ids: [1.3.6.1.4.1.99999]\ninterval: {interval}s\ntables:\n  traffic:\n    family: traffic\n"
    "    root: 1.3.6.1.2.1.31.1.1.1\n    columns: [{{column: 6, metric: receive_bytes_total}}]\n"
)

QUIET = {name: {"enabled": False} for name in ("bursts", "pci", "optics", "lldp", "nccl_facts", "hostcheck")}
"""Sources that these tests do not need."""


# --- configurations: a valid one is a choice of each part


def switch_target(name, interval, profile):
    made = {"name": name, "address": "127.0.0.1:9", "interval": f"{interval}s", "snmp": SNMP}
    return made | ({"profile": "own"} if profile else {})


VALID = st.fixed_dictionaries(
    {
        "host": st.sampled_from(["gpu-1", "gpu-2"]),
        "interval": st.sampled_from([5, 7]),
        "targets": st.lists(
            st.tuples(st.sampled_from(["leaf-1", "leaf-2", "leaf-3"]), st.sampled_from([30, 60]), st.booleans()),
            unique_by=lambda one: one[0],
            max_size=3,
        ),
        "in_file": st.lists(st.sampled_from(["spine-1", "spine-2"]), unique=True),
        "profile": st.sampled_from([20, 40]),
        "broker": st.sampled_from([None, "127.0.0.1:1", "127.0.0.1:2"]),
        "collector": st.booleans(),
        "job": st.sampled_from([None, 8, 16]),
        "ports": st.sampled_from([None, 4, 8]),
        "allow": st.sampled_from([[], ["198.51.100.0/24"]]),
        "drop": st.sampled_from([[], ["fabric_rdma_*_packets_total"]]),
    }
)


def write(folder, chosen):
    """Write a valid configuration with the files that it names."""
    text = {
        "host": chosen["host"],
        "sources": QUIET
        | {"rdma": {"interval": f"{chosen['interval']}s", "drop": chosen["drop"]}}
        | {"nccl": {"socket": False, "inspector": [str(folder / "none")]}},
        "switches": {
            "profiles": ["own.yml"],
            "files": ["more/*.yml"],
            "targets": [switch_target(*one) for one in chosen["targets"]],
        },
        "probe": {"allow": chosen["allow"]},
        "expect": {} if chosen["ports"] is None else {"rdma_ports": chosen["ports"]},
        "jobs": {} if chosen["job"] is None else {"llm-*": {"parameters": "70B", "data_parallel": chosen["job"]}},
    }
    if chosen["broker"] is not None:
        text["mqtt"] = {"broker": chosen["broker"]}
        text["collector"] = {"slots": "00-ff"} if chosen["collector"] else {}
    (folder / "more").mkdir(exist_ok=True)
    (folder / "own.yml").write_text(PROFILE.format(interval=chosen["profile"]))
    (folder / "more" / "spines.yml").write_text(
        json.dumps({"targets": [switch_target(name, 30, profile=False) for name in chosen["in_file"]]})
    )
    (folder / "config.yml").write_text(json.dumps(text))


CHOSEN = {
    "host": "gpu-1",
    "interval": 5,
    "targets": [("leaf-1", 30, True), ("leaf-2", 30, False)],
    "in_file": ["spine-1"],
    "profile": 20,
    "broker": "127.0.0.1:1",
    "collector": True,
    "job": 8,
    "ports": 8,
    "allow": [],
    "drop": [],
}
"""One valid choice."""


# --- faults: each makes a valid configuration wrong


def _edit(folder, **changed):
    file = folder / "config.yml"
    file.write_text(json.dumps(json.loads(file.read_text()) | changed))


def _duplicate_target(folder):
    twice = [switch_target("leaf-9", 30, profile=False)] * 2
    _edit(folder, switches={"targets": twice})


WRONG = {
    "not YAML": lambda folder: (folder / "config.yml").write_text("host: [gpu-1\n"),
    "no file": lambda folder: (folder / "config.yml").unlink(),
    "an unknown key": lambda folder: _edit(folder, sauces={}),
    "a wrong type": lambda folder: _edit(folder, expect={"rdma_ports": "eight"}),
    "a target twice": _duplicate_target,
    "a pattern that matches nothing": lambda folder: _edit(folder, probe={"drop": ["fabric_none_*"]}),
    "an invalid profile": lambda folder: (folder / "own.yml").write_text("name: own\ntables: 7\n"),
    "a profile of another name": lambda folder: (
        (folder / "own.yml").write_text(PROFILE.format(interval=20).replace("own", "other")),
        _edit(folder, switches={"profiles": ["own.yml"], "targets": [switch_target("leaf-1", 30, profile=True)]}),
    ),
    "no profile file": lambda folder: (folder / "own.yml").unlink(),
    "an invalid file of targets": lambda folder: (folder / "more" / "spines.yml").write_text("targets: [{name: a}]"),
    "a target of a file twice": lambda folder: (folder / "more" / "more.yml").write_text(
        json.dumps({"targets": [switch_target("spine-1", 30, profile=False)] * 2})
    ),
    "no baseline": lambda folder: _edit(folder, sources=QUIET | {"nccl": {"baseline": ["none.txt"]}}),
    "a collector without a broker": lambda folder: _edit(folder, mqtt={}, collector={"slots": "00-ff"}),
    "ports that are not read": lambda folder: _edit(
        folder, sources=QUIET | {"rdma": {"enabled": False}}, expect={"rdma_ports": 8}
    ),
    "a job without a pattern": lambda folder: _edit(folder, jobs={"": {"parameters": "70B", "data_parallel": 8}}),
}

BUGS = {
    "load_config": ValueError("a bug"),
    "baseline": ZeroDivisionError("a bug"),
    "make_prober": RuntimeError("a bug"),
}
"""Functions of a reload in which an error of this program is simulated."""


# --- what can be observed


def what_runs(daemon):
    """Return what a daemon does, without the identity of any object."""
    config = daemon._prepared.config
    registry = daemon._shared.get(SwitchRegistry)
    prober, running_relay = daemon._prober, daemon._relay
    return {
        "sources": {key: one.configured.built_from for key, one in daemon._sources._running.items()},
        "expected ports": {key: one.configured.expected.ports for key, one in daemon._sources._running.items()},
        "dropped": {key: one.configured.drop for key, one in daemon._sources._running.items()},
        "profiles": {
            key: one.poller.source._readers[0]._profiles.fingerprint()
            for key, one in daemon._sources._running.items()
            if key[0] == "switch"
        },
        "discovery": daemon._discovery(),
        "registry": {name: (one.label, one.address) for name, one in registry.known.items()},
        "relay": None if running_relay is None else (running_relay.options, running_relay.host),
        "probe": (prober._options, prober._configured, prober._profiles().fingerprint()),
        "jobs": daemon._prepared.known,
        "configuration": (config.host, config.expect, config.jobs, config.measured, config.sources),
    }


def identities(daemon):
    """Return which objects run; they are kept, so that no later one has the address of an earlier one."""
    pollers = {key: one.poller for key, one in daemon._sources._running.items()}
    tasks = {key: one.task for key, one in daemon._sources._running.items()}
    return pollers, tasks, daemon._relay, daemon._prober, [daemon._prepared.known]


@asynccontextmanager
async def running(folder):
    for name in ("sys", "nic"):
        (folder / name).mkdir(exist_ok=True)
    made = Daemon(
        Settings(
            config_file=folder / "config.yml",
            listen_addresses=("127.0.0.1:0",),
            sysfs=folder / "sys",
            procfs=folder / "proc",
            nic_replay=folder / "nic",
        )
    )
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


async def try_reload(daemon, fault, monkeypatch):
    """Reload with an error of this program in one function of the reload, where `fault` names one."""
    with monkeypatch.context() as patch:
        if fault in BUGS:

            def fail(*_, **__):
                raise BUGS[fault]

            place = {"load_config": daemon_module, "baseline": preparation, "make_prober": probe}[fault]
            patch.setattr(place, fault, fail)
        return await daemon.reload()


STEPS = st.lists(st.tuples(VALID, st.sampled_from([None, None, *WRONG, *BUGS])), min_size=2, max_size=5)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(VALID, STEPS)
def test_a_failed_reload_changes_nothing_and_a_successful_one_equals_a_new_start(monkeypatch, caplog, first, steps):
    caplog.set_level(logging.CRITICAL)

    async def check(folder):
        write(folder, first)
        async with asyncio.timeout(LONG), running(folder) as daemon:
            for chosen, fault in steps:
                before, objects = what_runs(daemon), identities(daemon)
                write(folder, chosen)
                if fault in WRONG:
                    WRONG[fault](folder)
                error = await try_reload(daemon, fault, monkeypatch)
                if fault is not None:
                    assert error, fault
                    assert not daemon._last_reload.succeeded
                    assert (what_runs(daemon), identities(daemon)) == (before, objects), fault
                    (folder / "more" / "more.yml").unlink(missing_ok=True)
                    continue
                assert error is None
                assert daemon._last_reload.succeeded
                after = what_runs(daemon)
                for key, built_from in after["sources"].items():
                    kept = identities(daemon)[0][key] is objects[0].get(key)
                    assert kept == (before["sources"].get(key) == built_from), key
                async with running(folder) as new:
                    assert after == what_runs(new)

    with tempfile.TemporaryDirectory() as temporary:
        asyncio.run(check(Path(temporary)))


@pytest.mark.parametrize("fault", [*WRONG, *BUGS])
async def test_each_fault_is_reported_and_changes_nothing(fault, tmp_path, monkeypatch):
    write(tmp_path, CHOSEN)
    async with running(tmp_path) as daemon:
        before, objects = what_runs(daemon), identities(daemon)
        write(tmp_path, CHOSEN | {"profile": 40, "host": "gpu-2", "broker": "127.0.0.1:2", "in_file": ["spine-2"]})
        if fault in WRONG:
            WRONG[fault](tmp_path)
        error = await try_reload(daemon, fault, monkeypatch)
        assert error
        assert (what_runs(daemon), identities(daemon)) == (before, objects)
        assert not daemon._last_reload.succeeded
        (tmp_path / "more" / "more.yml").unlink(missing_ok=True)
        write(tmp_path, CHOSEN)
        assert await daemon.reload() is None
        assert identities(daemon)[0] == objects[0]
        assert daemon._last_reload.succeeded


async def test_a_changed_profile_restarts_the_switches_that_may_use_it(tmp_path):
    chosen = {"host": "gpu-1", "interval": 5, "in_file": [], "profile": 20, "broker": None, "collector": False}
    chosen |= {"job": None, "ports": None, "allow": [], "drop": []}
    write(tmp_path, chosen | {"targets": [("leaf-1", 30, True), ("leaf-2", 30, False)]})
    config = json.loads((tmp_path / "config.yml").read_text())
    config["switches"]["targets"].append(
        {"name": "spine-9", "address": "127.0.0.1:9", "profile": "arista", "interval": "30s", "snmp": SNMP}
    )
    (tmp_path / "config.yml").write_text(json.dumps(config))
    async with running(tmp_path) as daemon:
        before = identities(daemon)[0]
        (tmp_path / "own.yml").write_text(PROFILE.format(interval=40))
        assert await daemon.reload() is None
        after = identities(daemon)[0]
        changed = {
            target for (name, target), poller in after.items() if name == "switch" and before[name, target] != poller
        }
        assert changed == {"leaf-1", "leaf-2"}  # leaf-2 may match any profile, spine-9 has another
        reader = daemon._sources._running["switch", "leaf-1"].poller.source._readers[0]
        assert reader._profiles.by_name("own").interval == 40.0


class Port:
    """A source that opens a port that only one can have, and closes it slowly."""

    def __init__(self, options, opened):
        self.name, self.target, self.interval, self.changed = "rdma", "", 60.0, None
        self.settings, self._opened = options, opened

    async def applies(self):
        return True

    async def read(self):
        from exporter.core.source import Reading  # noqa: PLC0415

        assert not self._opened, "the port is in use"
        self._opened.append(self)
        return Reading([])

    async def close(self):
        await asyncio.sleep(0.2)
        self._opened.remove(self)


async def test_a_source_has_closed_before_its_successor_opens(tmp_path, monkeypatch):
    opened = []
    others = [one for one in sources.SOURCES if one.name != "rdma"]
    rdma = next(one for one in sources.SOURCES if one.name == "rdma")
    made = replace(rdma, build=lambda options, context: [Port(options, opened)])
    monkeypatch.setattr(sources, "SOURCES", (*others, made))
    (tmp_path / "config.yml").write_text("sources: {rdma: {interval: 60s}}")
    async with running(tmp_path) as daemon:
        poller = daemon._sources._running["rdma", ""].poller
        async with asyncio.timeout(LONG):
            await poller.first_read.wait()
        (tmp_path / "config.yml").write_text("sources: {rdma: {interval: 61s}}")
        assert await daemon.reload() is None
        successor = daemon._sources._running["rdma", ""].poller
        assert successor is not poller
        async with asyncio.timeout(LONG):
            await successor.first_read.wait()
        assert successor.status.up is True
        assert opened == [successor.source]


async def test_an_error_while_closing_is_logged_and_delays_no_reload(tmp_path, monkeypatch, caplog):
    class Stubborn(Port):
        async def close(self):
            raise OSError("the device is gone")

    others = [one for one in sources.SOURCES if one.name != "rdma"]
    rdma = next(one for one in sources.SOURCES if one.name == "rdma")
    made = replace(rdma, build=lambda options, context: [Stubborn(options, [])])
    monkeypatch.setattr(sources, "SOURCES", (*others, made))
    (tmp_path / "config.yml").write_text("sources: {rdma: {interval: 60s}}")
    async with running(tmp_path) as daemon:
        poller = daemon._sources._running["rdma", ""].poller
        (tmp_path / "config.yml").write_text("sources: {rdma: {interval: 61s}}")
        assert await daemon.reload() is None
        assert daemon._sources._running["rdma", ""].poller is not poller
    assert "rdma: error while closing" in caplog.text
    assert "the device is gone" in caplog.text


async def test_a_source_that_does_not_close_delays_a_reload_for_a_limited_time(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(running_sources, "CLOSE_SECONDS", 0.05)

    class Hanging(Port):
        async def close(self):
            await asyncio.Event().wait()

    others = [one for one in sources.SOURCES if one.name != "rdma"]
    rdma = next(one for one in sources.SOURCES if one.name == "rdma")
    made = replace(rdma, build=lambda options, context: [Hanging(options, [])])
    monkeypatch.setattr(sources, "SOURCES", (*others, made))
    (tmp_path / "config.yml").write_text("sources: {rdma: {interval: 60s}}")
    async with running(tmp_path) as daemon:
        (tmp_path / "config.yml").write_text("sources: {rdma: {interval: 61s}}")
        async with asyncio.timeout(LONG):
            assert await daemon.reload() is None
    assert "rdma: not closed within 0.05 s" in caplog.text


async def test_a_reload_that_a_stop_overtakes_starts_nothing(tmp_path, monkeypatch, caplog):
    (tmp_path / "config.yml").write_text("host: gpu-1\n")
    loaded, go = threading.Event(), threading.Event()
    load = daemon_module.load_config

    def slowly(path):
        found = load(path)
        loaded.set()
        go.wait(LONG)
        return found

    async with running(tmp_path) as daemon:
        monkeypatch.setattr(daemon_module, "load_config", slowly)
        (tmp_path / "config.yml").write_text("host: gpu-2\nmqtt: {broker: '127.0.0.1:1'}\n")
        reloading = asyncio.create_task(daemon.reload())
        assert await asyncio.to_thread(loaded.wait, LONG)
        await daemon.stop()
        go.set()
        assert await reloading == daemon_module.STOPPING
        assert daemon._sources.all() == []
        assert daemon._relay is None
    assert "Traceback" not in caplog.text


async def test_a_broker_that_does_not_respond_delays_no_source(tmp_path, monkeypatch):
    ending, go = asyncio.Event(), asyncio.Event()

    async def slow_stop(_self):
        ending.set()
        await go.wait()

    write(tmp_path, CHOSEN)
    async with running(tmp_path) as daemon:
        monkeypatch.setattr(relay.Relay, "stop", slow_stop)
        write(tmp_path, CHOSEN | {"host": "gpu-2", "broker": "127.0.0.1:2"})
        reloading = asyncio.create_task(daemon.reload())
        async with asyncio.timeout(LONG):
            await ending.wait()
        assert {one.configured.built_from[1].name for one in daemon._sources.all()} == {"gpu-2"}
        go.set()
        assert await reloading is None


async def test_a_switch_at_another_address_has_the_label_of_a_new_one(tmp_path):
    write(tmp_path, CHOSEN)
    async with running(tmp_path) as daemon:
        registry = daemon._shared.get(SwitchRegistry)
        assert registry.claim_label("leaf-1", "switch-x") == "switch-x"
        registry.update("leaf-1", chassis="02:00:00:00:00:01")
        text = (tmp_path / "config.yml").read_text()
        (tmp_path / "config.yml").write_text(text.replace("127.0.0.1:9", "127.0.0.1:10"))
        assert await daemon.reload() is None
        async with running(tmp_path) as new:
            assert daemon._discovery() == new._discovery()
            assert what_runs(daemon) == what_runs(new)
        assert registry.known["leaf-1"].chassis == ""


def test_the_configurations_differ_in_every_part(tmp_path):
    """The property says little if the files do not reach the configuration."""
    from exporter.daemon.loading import load_config  # noqa: PLC0415

    base = {"host": "gpu-1", "interval": 5, "targets": [("leaf-1", 30, True)], "in_file": [], "profile": 20}
    base |= {"broker": "127.0.0.1:1", "collector": False, "job": None, "ports": None, "allow": [], "drop": []}
    write(tmp_path, base)
    loaded = load_config(tmp_path / "config.yml")
    assert isinstance(loaded, Config)
    assert loaded.sources[MQTT.name].broker == "127.0.0.1:1"
    others = {"host": "gpu-2", "interval": 7, "targets": [], "in_file": ["spine-1"], "profile": 40, "broker": None}
    others |= {
        "collector": True,
        "job": 8,
        "ports": 4,
        "allow": ["198.51.100.0/24"],
        "drop": ["fabric_rdma_*_packets_total"],
    }
    for key, value in others.items():
        write(tmp_path, base | {key: value})
        assert load_config(tmp_path / "config.yml") != loaded, key
