"""The simulated cluster at work: all devices started on loopback and in a folder, moved together, and stopped.

    async with Cluster(folder, faults=["link-down"]) as cluster:
        await cluster.advance(1.0)      # by hand …
        await cluster.run()             # … or by the clock, until cancelled

The exporter is pointed at it by `config_file` and the folders `sysfs`, `procfs` and `recordings`.
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
    fill_agent,
    fill_onyx,
    update_agent,
    update_onyx,
)
from exporter.simulator.traffic import Training

TICK = 0.5
"""Seconds between moves by the clock."""

LONGEST_TICK = 5.0
"""Seconds that one move stands for at most: after a suspended laptop wakes, hours are not made up for."""

RECORD_EVERY = 0.25
"""Seconds of training in which each collective is recorded once: as a job of small steps does it."""

LATENESS = 0.02
"""Seconds that a late rank comes late to each collective."""

BUS_BANDWIDTH = 350e9
"""Bytes per second of a collective when all rails are well."""

_CONFIG = """\
# The configuration of the demo, as complete as that of a real node. Every key is optional but those of targets.
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
  lldp:
    interval: 30s
  nccl:
    interval: {interval}
    inspector: [{inspector}]

expect:                          # what is slower is degraded; without it a link is measured against its siblings
  rdma_ports: 8
  rdma_speed: 400Gb/s

jobs:                            # what the steps of a job should take
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
      address: "{onyx}"         # a real switch: https, which the bare host name stands for
      role: leaf                 # default: by its neighbours, where these say what they are
      uplinks: ["Eth1/2[5-9]", "Eth1/3?"]
      onyx:
        username: monitor
        password_file: {password_file}
"""


class Cluster:
    """One GPU node with eight rails and a job on it, and the two leaf switches that it is plugged into.

    Attributes:
        training: The model behind all of it; faults begin and end there.
        agent: What answers for leaf-01.
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
        """Take what is to be simulated; `async with` starts it.

        Args:
            folder: Empty folder to live in.
            faults: What is wrong from the start, see `faults.FAULTS`.
            seed: Of chance.
            interval: In the configuration, time between reads of the host.
            switch_interval: The same of switches.

        Raises:
            ValueError: A fault is none.
        """
        self.training = Training(faults, seed=seed)
        self.agent = SnmpAgent(community="demo")
        self.onyx = OnyxSwitch(password=secrets.token_hex(8))
        self.config_file = folder / "fabric-exporter.yaml"
        self._folder = folder
        self._intervals = interval, switch_interval
        self._files = HostFiles(folder, self.training)
        self._job: InspectorJob | None = None
        self._unrecorded = 0.0
        self._writing: asyncio.Future[None] | None = None
        self._open = AsyncExitStack()

    @property
    def sysfs(self) -> Path:
        """What stands for /sys."""
        return self._files.sysfs

    @property
    def procfs(self) -> Path:
        """What stands for /proc: nothing."""
        return self._folder / "proc"

    @property
    def recordings(self) -> Path:
        """What stands for the answers of the kernel about NICs."""
        return self._files.recordings

    async def __aenter__(self) -> Self:
        """Start all devices and write the configuration.

        Raises:
            OSError: The folder cannot be written, or a port not be had.
        """
        async with AsyncExitStack() as stack:
            fill_agent(self.agent, self.training.leaves[0], self.training)
            host, port = await self.agent.start()
            stack.callback(self.agent.close)
            fill_onyx(self.onyx, self.training.leaves[1], self.training)
            simulator = await stack.enter_async_context(OnyxSimulator(self.onyx))
            await asyncio.to_thread(self._create, f"{host}:{port}", simulator.url)
            self._open = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop all devices; the folder stays."""
        if self._writing is not None:
            await asyncio.wait([self._writing])
        await self._open.aclose()

    async def advance(self, seconds: float) -> None:
        """Let time pass for all devices; files are written in a thread, and are when this returns.

        Raises:
            OSError: A file cannot be written.
        """
        if self._writing is not None:
            await asyncio.wait([self._writing])
        self.training.advance(seconds)
        update_agent(self.agent, self.training.leaves[0], self.training)
        update_onyx(self.onyx, self.training.leaves[1])
        self._unrecorded += seconds
        steps, self._unrecorded = divmod(self._unrecorded, RECORD_EVERY)
        # Whoever cancels this must not have the folder removed while the thread still writes to it.
        self._writing = asyncio.ensure_future(asyncio.to_thread(self._write, int(steps)))
        await asyncio.shield(self._writing)

    async def run(self) -> None:
        """Move by the clock until cancelled.

        Raises:
            OSError: A file cannot be written.
        """
        last = monotonic()
        while True:
            await asyncio.sleep(TICK)
            now = monotonic()
            await self.advance(min(now - last, LONGEST_TICK))
            last = now

    def _create(self, snmp: str, onyx: str) -> None:
        """Write all that is a file; in a thread."""
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
        """Write a secret as it should be, readable for its owner alone; give its place as YAML has it."""
        path = self._folder / name
        path.touch(mode=0o600)
        path.write_text(f"{text}\n", encoding="utf-8")
        return json.dumps(str(path))

    def _write(self, steps: int) -> None:
        """Bring all files to what the model says; in a thread."""
        self._files.write()
        if self._job is not None:
            self._job.bus_bandwidth = BUS_BANDWIDTH * self.training.bandwidth_share()
            self._job.late = {LATE_RANK: LATENESS} if "straggler" in self.training.faults else {}
            for _ in range(steps):
                self._job.step(RECORD_EVERY)
