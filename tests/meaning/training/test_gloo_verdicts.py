"""Verdicts on real jobs: torch's processes, talking by gloo, each on a network of its own with a name of its own.

The time that verdicts go by runs PACE times as fast as the clock, so that a minute of evidence does not take one.
"""

import asyncio
import contextlib
import os
import subprocess
from pathlib import Path
from time import monotonic

import pytest

from exporter.core.collectives import algorithm_bytes, known_kind
from exporter.core.definition import Context
from exporter.core.source import Host
from exporter.meaning.ports import rates
from exporter.meaning.ports import states as port_states
from exporter.meaning.ports.states import PortLocation
from exporter.meaning.training.alignment import Collectives
from exporter.meaning.training.bandwidth import Baseline
from exporter.meaning.training.causes import Symptom, causes
from exporter.meaning.training.paths import Event, Fabric, Rank
from exporter.meaning.training.records import Stream, Timing
from exporter.meaning.training.verdicts import (
    JobMemory,
    Verdict,
    judge,
)
from exporter.sources.nccl.timing_socket import TimingSocket
from exporter.sources.nic import source as nic
from exporter.sources.nic.options import NicOptions
from tests.helpers.paths import ROOT, TESTS
from tests.hook.test_fabric_timing_torch import torch_python  # noqa: F401  # a fixture

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

RANKS = 4
PACE = 3.0
PATIENCE = 180.0
"""Seconds of the clock that anything here may take."""


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def networks(program):
    """Create a network namespace for each rank, joined by a bridge; return the bridge ports."""
    program("tc")
    if os.geteuid():
        pytest.skip("needs root")
    bridge = f"fxb{os.getpid() % 10_000}"
    names = [f"{bridge}r{rank}" for rank in range(RANKS)]
    try:
        ip("link", "add", bridge, "type", "bridge")
        ip("link", "set", bridge, "up")
        for rank, name in enumerate(names):
            ip("netns", "add", name)
            ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", name, "master", bridge, "up")
            ip("-n", name, "addr", "add", f"10.77.0.{rank + 1}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in names:  # the kernel takes its time to end a network, and the link with it
            subprocess.run(["ip", "link", "del", name], check=False, capture_output=True)
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", bridge], check=False, capture_output=True)


class Watched:
    """A running job, and its judgements."""

    def __init__(self, folder, networks, python, **more):
        (folder / "fabric_timing.py").write_text((ROOT / "exporter" / "hook" / "fabric_timing.py").read_text())
        self._stop = folder / "stop"
        self._socket = TimingSocket(str(folder / "run" / "timing.sock"))
        self._folder, self._networks, self._python, self._more = folder, networks, python, more
        self._known, self._memory = Collectives(), JobMemory()
        self._processes = []

    async def __aenter__(self):
        await self._socket.open()
        for rank, network in enumerate(self._networks):
            kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
            environment = {
                **kept,
                "PYTHONPATH": str(self._folder),
                "FABRIC_TIMING_SOCKET": str(self._folder / "run" / "timing.sock"),
                "MASTER_ADDR": "10.77.0.1",
                "MASTER_PORT": "29411",
                "GLOO_SOCKET_IFNAME": "eth0",
                "OMP_NUM_THREADS": "1",
                "TORCH_CPP_LOG_LEVEL": "ERROR",
                "RANK": str(rank),
                "LOCAL_RANK": "0",
                "WORLD_SIZE": str(RANKS),
                "LOCAL_WORLD_SIZE": "1",
                "STOP": str(self._stop),
                **self._more,
            }
            job = f"hostname gpu-{rank}; exec {self._python} -W ignore {TESTS / 'helpers' / 'verdict_job.py'}"
            command = ["ip", "netns", "exec", network, "unshare", "--uts", "sh", "-c", job]
            self._processes.append(subprocess.Popen(command, env=environment))  # noqa: ASYNC220  # it is left to itself
        return self

    async def __aexit__(self, *_):
        self._stop.touch()
        for one in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.wait(10)
            one.kill()
            one.wait()
        await self._socket.close()

    async def judgements(self, seconds):
        """Yield the judgements on the job for a number of seconds of accelerated time."""
        begin, end = None, monotonic() + PATIENCE
        while monotonic() < end:
            await asyncio.sleep(1 / PACE)
            now = monotonic() * PACE
            for received in await self._socket.take():
                for one in received.datagram.operations:
                    group = received.datagram.groups[one.communicator]
                    kind, rank, host = known_kind(one.kind), str(received.datagram.rank), received.datagram.host
                    stream = Stream("job", group.id, kind, rank, group.size, group.nodes, host, group.size)
                    size = algorithm_bytes(kind, one.message_bytes, group.size)
                    self._known.add(stream, [Timing(one.sequence, size, one.microseconds)], now)
                for one in received.datagram.counts:
                    group, rank = received.datagram.groups[one.communicator], str(received.datagram.rank)
                    kind, host = known_kind(one.kind), received.datagram.host
                    stream = Stream("job", group.id, kind, rank, group.size, group.nodes, host, group.size)
                    self._known.add(stream, (), now, (one.begun, one.ended))
            self._known.settle(now)
            if "job" in self._known.jobs:
                begin = now if begin is None else begin
                yield judge(self._known.jobs["job"], self._memory, now, Baseline())
                if now - begin >= seconds:
                    return


async def ports(networks):
    """Return the events of the bridge ports, as the exporter of this node reports them."""
    options = NicOptions(include=tuple(networks), software=tuple(networks))
    (source,) = nic.DEFINITION.build(options, Context(Host("node", Path("/sys"), Path("/proc"))))
    rating, memory, states = {}, port_states.PortStateMemory(), []
    assert await source.applies()
    for _ in range(10):
        tables = []
        for table in (await source.read()).tables:
            rating[table.schema], made = rates.step(rating.get(table.schema), table)
            tables += made
        states = port_states.step(memory, tables, "node", monotonic())
        await asyncio.sleep(1)
    await source.close()
    return [Event(one.kind, one.port, one.since, one.value, one.detail) for one in states]


async def first(judgements, verdict):
    """Return the first judgement with a verdict, and the verdicts before it."""
    before = []
    async for one in judgements:
        if one.verdict is verdict:
            return one, before
        before.append(one.verdict)
    return None, before


async def test_a_rank_that_computes_longer_is_reported(torch_python, tmp_path, networks):  # noqa: F811
    async with Watched(tmp_path, networks, torch_python, LATE_RANK="2", LATE_SECONDS="0.2") as job:
        found, _ = await first(job.judgements(150.0), Verdict.STRAGGLER)
        assert [(one.rank, found.matched) for one in found.ranks] == [("2", 1.0)]
        assert found.loss * PACE == pytest.approx(0.2 / 0.24, rel=0.3), "of a step of 0.03 + 0.2 s and a little"


async def test_a_stopped_rank_is_a_hang_and_no_other_rank_is_named(torch_python, tmp_path, networks):  # noqa: F811
    async with Watched(tmp_path, networks, torch_python, STOPS_RANK="1", STOPS_AFTER="300") as job:
        found, before = await first(job.judgements(400.0), Verdict.HANG)
        assert Verdict.FINE in before
        # It is alone on its host, from which nothing arrives any more: that may be a loss of reports.
        assert {one.rank for one in found.ranks} <= {"1"}
        assert set(found.hosts) <= {"gpu-1"}


async def test_a_slow_port_changes_the_verdict_from_fine_to_network_bound(torch_python, tmp_path, networks):  # noqa: F811
    async with Watched(tmp_path, networks, torch_python) as job:
        judgements = [one async for one in job.judgements(60.0)]
        assert {one.verdict for one in judgements} <= {Verdict.UNKNOWN, Verdict.FINE}
        assert judgements[-1].verdict is Verdict.FINE
        limit = "tc qdisc add dev {} root tbf rate 100mbit burst 64kb latency 20ms"
        subprocess.run(limit.format(networks[3]).split(), check=True)  # noqa: ASYNC221
        found, before = await first(job.judgements(60.0), Verdict.NETWORK)
        assert found is not None
        assert set(before) == {Verdict.FINE}, "no rank is late: all of them wait for the same transfers"
        assert found.ranks == ()
        later = [one async for one in job.judgements(30.0)]
        assert {one.verdict for one in later} == {Verdict.NETWORK}
        assert later[-1].bandwidth < 0.3, "the first judgement still has fast transfers among its evidence"
        seen = await ports(networks)
        places = {str(rank): Rank("node", (name,)) for rank, name in enumerate(networks)}
        symptom = Symptom(found, monotonic(), places)
        (first_of_all, *_) = causes(symptom, seen, Fabric(reporting_hosts=frozenset({"node"})))
        assert (first_of_all.port, first_of_all.confidence > 0.5) == (PortLocation("node", networks[3]), True)
        assert {one.port.port for one in seen if one.kind in {"queue_drops", "rate_limited"}} == {networks[3]}
