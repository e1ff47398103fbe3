"""A job whose image has this version of `fabric_timing.py`, or the previous one, through the exporter to its table."""

import asyncio
import subprocess
import sys

import pytest

from exporter.core.blocking import Turns
from exporter.meaning.training import jobs
from exporter.sources.nccl.readers.hook import HookFeed
from exporter.sources.nccl.streams import StreamTableBuilder
from tests.helpers.paths import FIXTURES, ROOT

JOB = """
import fabric_timing
for _ in range(3):
    with fabric_timing.collective("AllReduce", group="dp", size=64, rank=1, ranks=2):
        pass
fabric_timing.flush()
"""


@pytest.mark.parametrize(
    ("file", "queued"),
    [
        pytest.param(ROOT / "exporter" / "hook" / "fabric_timing.py", 0, id="this version"),
        pytest.param(FIXTURES / "previous" / "fabric_timing.py", None, id="the previous version"),
    ],
)
async def test_timings_of_a_job_are_in_the_table(tmp_path, file, queued):
    (tmp_path / "fabric_timing.py").write_text(file.read_text())
    (tmp_path / "run").mkdir()
    path = str(tmp_path / "run" / "timing.sock")
    feed = HookFeed(path, tmp_path, Turns())
    try:
        await feed.poll()
        environment = {"FABRIC_TIMING_SOCKET": path, "PYTHONPATH": str(tmp_path), "FABRIC_TIMING_JOB": "llm"}
        command = [sys.executable, "-S", "-c", JOB]
        await asyncio.to_thread(subprocess.run, command, env=environment, check=True, timeout=60)
        (report,) = (await feed.poll()).processes
    finally:
        await feed.close()
    (((_, kind), (membership, records)),) = report.streams.items()
    builder = StreamTableBuilder()
    builder.add(("llm", "c", kind, "1"), records, ranks=membership.ranks, nodes=None, host="gpu-1")
    (samples,) = builder.table(1.0).values("operations")
    timings = jobs.timings(samples)
    assert (kind, membership.rank, [one.sequence for one in timings]) == ("AllReduce", 1, [0, 1, 2])
    assert [(one.size, one.timed, one.queued) for one in timings] == [(64, None, queued)] * 3
    assert min(one.microseconds for one in timings) >= 1
