"""The running fabric: the files of its hosts in a directory, its switches on loopback, advanced together.

    async with FabricCluster(folder, faults=["late-rank:5@60s"]) as cluster:
        await cluster.advance(1.0)

The exporter of a host reads it by the paths in `hosts`, and that of the switches by `poller_config`.
"""

import asyncio
import glob
import json
import secrets
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple, Self

from exporter.simulator.fabric.collective_files import CollectiveFiles
from exporter.simulator.fabric.hosts import FabricHost
from exporter.simulator.fabric.job_processes import ProcessFiles
from exporter.simulator.fabric.model import FabricModel
from exporter.simulator.fabric.nccl_logs import NcclLogs
from exporter.simulator.fabric.recorder_dumps import EVERY, RecorderDumps
from exporter.simulator.fabric.switches import FabricSwitch
from exporter.simulator.host import HostFiles
from exporter.simulator.onyx import OnyxSimulator, OnyxSwitch
from exporter.simulator.snmp_agent import SnmpAgent
from exporter.simulator.switches import fill_agent, fill_onyx, update_agent, update_onyx
from exporter.simulator.training.engine import Ended

COMMUNITY = "demo"

SILENT = 3600.0
"""Seconds before a silent switch responds to a request of HTTP: longer than anything waits."""

_HOST_CONFIG = """\
host: {host}
sources:
  rdma: {{interval: {interval}}}
  nic: {{interval: {interval}, include: ["eth*"]}}
  pci: {{interval: {module_interval}}}
  hostcheck: {{interval: {module_interval}}}
  optics: {{enabled: true, interval: {module_interval}}}
  nccl: {{interval: {interval}, inspector: [{inspector}], recorder: [{recorder}]}}
  nccl_facts: {{interval: {interval}, logs: [{logs}], textfiles: []}}
expect: {{rdma_ports: {rails}, rdma_speed: 400Gb/s}}
mqtt: {mqtt}
"""


class HostPaths(NamedTuple):
    """What the exporter of a host reads: its configuration, directories in place of /sys and /proc, and recordings."""

    config: Path
    sysfs: Path
    procfs: Path
    recordings: Path


class FabricCluster:
    """All devices of a fabric. Every second leaf has the JSON API of Onyx, all other switches have an SNMP agent.

    Attributes:
        model: The model.
        hosts: What the exporter of each host reads, by name.
        poller_config: Configuration of the exporter that polls the switches.
    """

    def __init__(
        self,
        folder: Path,
        *,
        faults: Iterable[str] = (),
        seed: int = 1,
        interval: str = "5s",
        switch_interval: str = "15s",
        module_interval: str = "60s",
        broker: str | None = None,
        nccl_log: bool = True,
        dump_interval: float = EVERY,
    ) -> None:
        """Create the model; `async with` starts the devices.

        Args:
            folder: Empty directory for all files.
            faults: Faults, see `faults.GRAMMAR`.
            seed: Seed of all random numbers.
            interval: Interval of the sources of hosts in their configurations.
            switch_interval: Interval of switches.
            module_interval: Interval of PCIe links and optical modules, a minute at least.
            nccl_log: Whether the job writes NCCL's logs, which it does with NCCL_DEBUG=INFO.
            broker: Address of the broker that the exporters of hosts and of switches publish to.
            dump_interval: Seconds between dumps of the Flight Recorder in a hang.

        Raises:
            ValueError: A fault is invalid.
        """
        self.model = FabricModel(faults, seed=seed)
        topology = self.model.topology
        self.poller_config = folder / "poller.yaml"
        self._folder, self._interval, self._switch_interval = folder, interval, switch_interval
        self._module_interval, self._mqtt = module_interval, json.dumps({"broker": broker})
        self._hosts = {name: FabricHost(self.model, name, seed=seed) for name in topology.hosts}
        self._files = {name: HostFiles(folder / name, host) for name, host in self._hosts.items()}
        self.hosts = {
            name: HostPaths(folder / name / "config.yaml", files.sysfs, folder / name / "proc", files.recordings)
            for name, files in self._files.items()
        }
        self._collectives: list[CollectiveFiles] = []
        self._dumps: list[RecorderDumps] = []
        self._logs: list[NcclLogs] = []
        self._processes: list[ProcessFiles] = []
        self._nccl_log, self._dump_interval = nccl_log, dump_interval
        switches = {name: FabricSwitch(self.model, name, self._hosts) for name in (*topology.leaves, *topology.spines)}
        onyx = set(topology.leaves[1::2])
        self._agents = [(one, SnmpAgent(community=COMMUNITY)) for name, one in switches.items() if name not in onyx]
        self._onyx = [(switches[name], OnyxSwitch(password=secrets.token_hex(8))) for name in sorted(onyx)]
        self._shown = self.model.conditions
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Start all devices and write the files.

        Raises:
            OSError: The directory cannot be written, or no port is free.
        """
        targets: list[dict[str, object]] = []
        async with AsyncExitStack() as stack:
            for switch, agent in self._agents:
                fill_agent(agent, switch)
                host, port = await agent.start()
                stack.callback(agent.close)
                targets.append({"name": switch.name, "address": f"{host}:{port}", "snmp": self._snmp()})
            for switch, onyx in self._onyx:
                fill_onyx(onyx, switch)
                simulator = await stack.enter_async_context(OnyxSimulator(onyx))
                secret = str(self._folder / f"{switch.name}.password")
                way = {"username": "monitor", "password_file": secret}
                targets.append({"name": switch.name, "address": simulator.url, "onyx": way})
            await asyncio.to_thread(self._create, targets)
            self._open = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop all devices; the directory is not removed."""
        await self._open.aclose()

    async def advance(self, seconds: float) -> None:
        """Advance all devices; files are written in a thread, and are complete when this returns.

        Raises:
            OSError: A file cannot be written.
        """
        ended = await asyncio.to_thread(self.model.advance, seconds)
        changed = self.model.conditions is not self._shown  # then neighbours may have changed
        self._shown = self.model.conditions
        for switch, agent in self._agents:
            (fill_agent if changed else update_agent)(agent, switch)
        for switch, onyx in self._onyx:
            (fill_onyx if changed else update_onyx)(onyx, switch)
            onyx.faults.delay = SILENT if switch.silent else 0.0
        await asyncio.to_thread(self._write, ended)

    def _snmp(self) -> dict[str, object]:
        path = str(self._folder / "community")
        return {"version": "2c", "community_file": path, "timeout": "2s", "retries": 1}

    def _create(self, targets: list[dict[str, object]]) -> None:
        """Write all files; runs in a thread."""
        rails = self.model.topology.shape.rails
        for name, paths in self.hosts.items():
            self._files[name].create()
            paths.procfs.mkdir()
            folder = self._folder / name / "nccl"
            ranks = self.model.topology.ranks_of(name)
            self._collectives.append(CollectiveFiles(folder, self.model.job, name, ranks))
            self._processes.append(ProcessFiles(paths.procfs, self.model.job, self._hosts[name], ranks))
            dumps = self._folder / name / "recorder"
            self._dumps.append(RecorderDumps(dumps, self.model.job, ranks, every=self._dump_interval))
            logs = self._folder / name / "nccl-logs"
            if self._nccl_log:
                self._logs.append(NcclLogs(logs, self.model, self._hosts[name]))
            text = _HOST_CONFIG.format(
                host=name,
                interval=self._interval,
                module_interval=self._module_interval,
                rails=rails,
                inspector=json.dumps(glob.escape(str(folder))),
                recorder=json.dumps(glob.escape(str(dumps))),
                logs=json.dumps(glob.escape(str(logs))),
                mqtt=self._mqtt,
            )
            paths.config.write_text(text, encoding="utf-8")
        _write_secret(self._folder / "community", COMMUNITY)
        for switch, onyx in self._onyx:
            _write_secret(self._folder / f"{switch.name}.password", onyx.password)
        # JSON is YAML.
        switches = {"defaults": {"interval": self._switch_interval}, "targets": targets}
        poller = {"host": "poller", "mqtt": json.loads(self._mqtt), "switches": switches}
        self.poller_config.write_text(json.dumps(poller, indent=1), encoding="utf-8")

    def _write(self, ended: list[Ended]) -> None:
        """Update all files from the model; runs in a thread."""
        for host in self._hosts.values():
            host.count_management()
        for files in self._files.values():
            files.write()
        for processes in self._processes:
            processes.write()
        for collectives in self._collectives:
            collectives.write(ended)
        for dumps in self._dumps:
            dumps.write(ended, self.model.time)
        for logs in self._logs:
            logs.write()


def _write_secret(path: Path, text: str) -> None:
    """Write a secret, readable by its owner only."""
    path.touch(mode=0o600)
    path.write_text(f"{text}\n", encoding="utf-8")
