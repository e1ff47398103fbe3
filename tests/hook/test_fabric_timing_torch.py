"""The hook in processes of torch with gloo: their timings agree, and identify the late rank."""

import asyncio
import os
import socket
import subprocess
import sys
from collections import Counter, defaultdict
from importlib.util import find_spec

import pytest

from exporter.sources.nccl.timing_socket import TimingSocket
from tests.helpers.paths import ROOT, TESTS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

RANKS = 4
STEPS, LATE, SECONDS = 25, 2, 0.04
"""Values of timing_job.py."""


@pytest.fixture
def free_port():
    """A free loopback port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def torch_python():
    """A Python with torch: that of .ci/torch, or $FABRIC_TORCH_PYTHON, else this one."""
    made = ROOT / ".venv-torch" / "bin" / "python"
    named = os.environ.get("FABRIC_TORCH_PYTHON") or (str(made) if made.exists() else None)
    if named is None and find_spec("torch") is None:
        pytest.skip("needs torch; TORCH=1 .ci/torch makes .venv-torch with it")
    return named or sys.executable


def environment(folder, path, rank, **more):
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {
        **kept,
        "PYTHONPATH": str(folder),
        "FABRIC_TIMING_SOCKET": path,
        "MASTER_ADDR": "127.0.0.1",
        "OMP_NUM_THREADS": "1",
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(RANKS),
        "LOCAL_WORLD_SIZE": str(RANKS),
        **more,
    }


async def run(torch_python, folder, port, **more):
    """Run the job; return the received datagrams and the PIDs."""
    (folder / "fabric_timing.py").write_text((ROOT / "exporter" / "hook" / "fabric_timing.py").read_text())
    path = str(folder / "run" / "timing.sock")
    made = TimingSocket(path)
    await made.open()
    job = TESTS / "helpers" / "timing_job.py"
    processes = [
        subprocess.Popen(  # noqa: ASYNC220  # only started here
            [torch_python, "-W", "ignore", str(job)],
            env=environment(folder, path, rank, MASTER_PORT=str(port), **more),
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(RANKS)
    ]
    received = []
    try:
        while any(one.poll() is None for one in processes):
            await asyncio.sleep(0.05)
            received += await made.take()
        await asyncio.sleep(0.05)
        received += await made.take()
        assert [one.returncode for one in processes] == [0] * RANKS
        assert processes[0].stdout.read() == "all_reduce\n"
    finally:
        for one in processes:
            one.kill()
            one.stdout.close()
            one.wait()
        await made.close()
    assert +made.counts == Counter(accepted=len(received))
    return received, [one.pid for one in processes]


async def test_four_gloo_processes_agree_and_the_late_one_has_the_shortest_times(torch_python, tmp_path, free_port):
    received, pids = await run(torch_python, tmp_path, free_port)
    assert {one.sender.pid: one.datagram.rank for one in received} == {pid: rank for rank, pid in enumerate(pids)}
    assert {(one.datagram.faults, one.datagram.dropped, one.datagram.untimed) for one in received} == {(0, 0, 0)}
    operations = defaultdict(dict)  # by communicator and kind: operations by rank and sequence number
    shapes = {}
    for one in received:
        for op in one.datagram.operations:
            group = one.datagram.groups[op.communicator]
            operations[group.id, op.kind].setdefault(group.rank, {})[op.sequence] = op
            shapes[group.id] = (group.size, group.nodes)
    assert sorted(shapes.values()) == [(2, 1), (2, 1), (4, 1)]
    assert {op.queued for one in received for op in one.datagram.operations} == {0}
    counts = Counter()
    for (group, kind), by_rank in operations.items():
        size, _ = shapes[group]
        assert sorted(by_rank) == list(range(size)), "every rank is present in each of its communicators"
        first = by_rank[0]
        assert all(ops.keys() == first.keys() for ops in by_rank.values())
        assert sorted(first) == list(range(len(first)))
        for number, op in first.items():
            assert {ops[number].message_bytes for ops in by_rank.values()} == {op.message_bytes}
        counts[size, kind] += len(first)
    # The last AllReduce is that of the gradients; DDP's constructor does not use torch.distributed's functions.
    assert counts[4, "AllReduce"] == STEPS + 1
    assert counts[2, "AllReduce"] == 2 * STEPS
    assert counts[4, "AllGather"] == counts[4, "Broadcast"] == STEPS
    steps = Counter(one.datagram.rank for one in received for _ in one.datagram.steps)
    assert steps == dict.fromkeys(range(RANKS), STEPS)
    check_late_rank(received)


def check_late_rank(received):
    """Check that the late rank has the shortest time, and that the others waited for it."""
    times = defaultdict(dict)
    for one in received:
        for op in one.datagram.operations:
            group = one.datagram.groups[op.communicator]
            if (group.size, op.kind, op.message_bytes) == (RANKS, "AllReduce", 4000):
                times[op.sequence][group.rank] = op.microseconds
    shortest = Counter(min(ranks, key=ranks.get) for ranks in times.values())
    assert shortest.most_common(1)[0][0] == LATE
    assert shortest[LATE] >= 0.8 * STEPS
    waited = sorted(max(ranks.values()) - ranks[LATE] for ranks in times.values())[STEPS // 2]
    assert waited >= SECONDS * 0.8e6


async def test_torch_compile_sees_the_original_functions(torch_python, tmp_path, free_port):
    received, _ = await run(torch_python, tmp_path, free_port, COMPILE="1")
    assert {one.datagram.faults for one in received} == {0}
