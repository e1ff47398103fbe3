"""The running simulated cluster: all devices, on loopback and in a directory, started, advanced and stopped together.

    async with Cluster(folder, faults=["link-down"]) as cluster:
        await cluster.advance(1.0)      # simulated time …
        await cluster.run()             # … or real time, until cancelled

The exporter reads it by `config_file` and the folders `sysfs`, `procfs` and `recordings`.
"""

import asyncio
import glob
import json
import secrets
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from time import monotonic
from typing import Self

from exporter.simulator.faults import LATE_RANK
from exporter.simulator.host import HostFiles
from exporter.simulator.inspector import InspectorJob
from exporter.simulator.onyx import OnyxSimulator, OnyxSwitch
from exporter.simulator.ports import HOST
from exporter.simulator.snmp_agent import SnmpAgent
from exporter.simulator.switches import (
    DemoLeaf,
    fill_agent,
    fill_onyx,
    update_agent,
    update_onyx,
)
from exporter.simulator.traffic import Training

TICK = 0.5
"""Seconds between updates in real time."""

MAX_TICK = 5.0
"""Maximum simulated time of one update: the hours of a suspended machine are not simulated afterwards."""

RECORD_EVERY = 0.25
"""Seconds of training in which each collective is recorded once, as by a job with small steps."""

LATENESS = 0.02
"""Delay of a late rank in each collective, in seconds."""

BUS_BANDWIDTH = 350e9
"""Bus bandwidth of a collective without faults, in bytes per second."""

_CONFIG = """\
# The configuration of the demo, as complete as that of a real node. All keys but those of targets are optional.
host: {host}                    # default: $NODE_NAME, else the host name

sources:
  rdma:
    interval: {interval}
  bursts:
    tick: 1s
  nic:
    interval: {interval}
    include: ["eth*"]
  pci:
    interval: 60s
  optics:
    enabled: true               # off by default: on some NICs, reading modules delays packets
    interval: 60s
  hostcheck:
    interval: 4m
  lldp:
    interval: 30s
  nccl:
    interval: {interval}
    inspector: [{inspector}]

expect:                          # a slower link is degraded; without it a link is compared with its siblings
  rdma_ports: 8
  rdma_speed: 400Gb/s

jobs:                            # for the expected duration of the steps of a job
  demo:
    parameters: 268435456
    data_parallel: 32
    nodes: 4
    sharding: 3
    link_speed: 400Gb/s
    tokens_per_step: 2.5e6
    peak_flops: 989T

switches:
  defaults:
    interval: {switch_interval}
  targets:
    - name: leaf-01
      address: "{snmp}"
      snmp:
        version: 2c
        community_file: {community_file}
        timeout: 500ms
        retries: 1
    - name: leaf-02
      address: "{onyx}"         # a real switch: a host name, for https
      role: leaf                 # default: by its neighbours, where their role is known
      uplinks: ["Eth1/2[5-9]", "Eth1/3?"]
      onyx:
        username: monitor
        password_file: {password_file}
"""


class Cluster:
    """One GPU node with eight rails and a training job, and its two leaf switches.

    Attributes:
        training: The model; faults begin and end there.
        agent: The SNMP agent of leaf-01.
        onyx: The model of leaf-02.
        config_file: Configuration of an exporter for this cluster; written at the start.
    """

    def __init__(
        self,
        folder: Path,
        *,
        faults: Iterable[str] = (),
        seed: int = 1,
        interval: str = "1s",
        switch_interval: str = "5s",
    ) -> None:
        """Create the model; `async with` starts the devices.

        Args:
            folder: Empty directory for the files.
            faults: Faults from the start, see `faults.FAULTS`.
            seed: Seed of the random generator.
            interval: Interval of the host's sources in the configuration.
            switch_interval: Interval of switches in the configuration.

        Raises:
            ValueError: A fault is unknown.
        """
        self.training = Training(faults, seed=seed)
        self.agent = SnmpAgent(community="demo")
        self.onyx = OnyxSwitch(password=secrets.token_hex(8))
        self.config_file = folder / "fabric-exporter.yaml"
        self._folder = folder
        self._intervals = interval, switch_interval
        self._leaves = [DemoLeaf(leaf, self.training) for leaf in self.training.leaves]
        self._files = HostFiles(folder, self.training)
        self._job: InspectorJob | None = None
        self._unrecorded = 0.0
        self._writing: asyncio.Future[None] | None = None
        self._open = AsyncExitStack()

    @property
    def sysfs(self) -> Path:
        """Directory in place of /sys."""
        return self._files.sysfs

    @property
    def procfs(self) -> Path:
        """Empty directory in place of /proc."""
        return self._folder / "proc"

    @property
    def recordings(self) -> Path:
        """Directory of recordings in place of the kernel's netlink replies about NICs."""
        return self._files.recordings

    async def __aenter__(self) -> Self:
        """Start all devices and write the configuration.

        Raises:
            OSError: The directory cannot be written, or no port is free.
        """
        async with AsyncExitStack() as stack:
            fill_agent(self.agent, self._leaves[0])
            host, port = await self.agent.start()
            stack.callback(self.agent.close)
            fill_onyx(self.onyx, self._leaves[1])
            simulator = await stack.enter_async_context(OnyxSimulator(self.onyx))
            await asyncio.to_thread(self._create, f"{host}:{port}", simulator.url)
            self._open = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop all devices; the directory is not removed."""
        if self._writing is not None:
            await asyncio.wait([self._writing])
        await self._open.aclose()

    async def advance(self, seconds: float) -> None:
        """Advance all devices; files are written in a thread, and are complete when this returns.

        Raises:
            OSError: A file cannot be written.
        """
        if self._writing is not None:
            await asyncio.wait([self._writing])
        self.training.advance(seconds)
        update_agent(self.agent, self._leaves[0])
        update_onyx(self.onyx, self._leaves[1])
        self._unrecorded += seconds
        steps, self._unrecorded = divmod(self._unrecorded, RECORD_EVERY)
        # After a cancellation the directory must not be removed while the thread still writes to it.
        self._writing = asyncio.ensure_future(asyncio.to_thread(self._write, int(steps)))
        await asyncio.shield(self._writing)

    async def run(self) -> None:
        """Advance in real time until cancelled.

        Raises:
            OSError: A file cannot be written.
        """
        last = monotonic()
        while True:
            await asyncio.sleep(TICK)
            now = monotonic()
            await self.advance(min(now - last, MAX_TICK))
            last = now

    def _create(self, snmp: str, onyx: str) -> None:
        """Write all files; runs in a thread."""
        self._files.create()
        self.procfs.mkdir()
        self._job = InspectorJob(
            self._folder / "nccl", "demo", hostname=HOST, n_ranks=32, n_nodes=4, bus_bandwidth=BUS_BANDWIDTH
        )
        config = _CONFIG.format(
            host=HOST,
            interval=self._intervals[0],
            switch_interval=self._intervals[1],
            inspector=json.dumps(glob.escape(str(self._folder / "nccl"))),
            snmp=snmp,
            onyx=onyx,
            community_file=self._secret("leaf-01.community", "demo"),
            password_file=self._secret("leaf-02.password", self.onyx.password),
        )
        self.config_file.write_text(config, encoding="utf-8")

    def _secret(self, name: str, text: str) -> str:
        """Write a secret, readable by its owner only; return its path as a YAML string."""
        path = self._folder / name
        path.touch(mode=0o600)
        path.write_text(f"{text}\n", encoding="utf-8")
        return json.dumps(str(path))

    def _write(self, steps: int) -> None:
        """Update all files from the model; runs in a thread."""
        self._files.write()
        if self._job is not None:
            self._job.bus_bandwidth = BUS_BANDWIDTH * self.training.bandwidth_share()
            self._job.late = {LATE_RANK: LATENESS} if "straggler" in self.training.faults else {}
            for _ in range(steps):
                self._job.step(RECORD_EVERY)
