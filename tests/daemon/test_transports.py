"""Where a host may not show all traffic of its jobs, nothing is concluded from the bytes of its ports."""

import asyncio
import re

import pytest

from exporter.core.source import Host
from exporter.daemon import transports
from exporter.meaning.training import transport
from exporter.simulator.cluster import Cluster
from exporter.simulator.inspector import InspectorJob
from exporter.simulator.ports import HOST
from exporter.sources.nccl.streams import StreamTableBuilder
from tests.helpers.golden import scraped
from tests.meaning.training.test_transport import GIB, ports


@pytest.mark.parametrize(
    ("files", "judged"),
    [
        ([], True),
        ([("sys/module/ib_core/parameters/netns_mode", "Y\n")], True),  # rdma system: netns shared
        ([("sys/module/ib_core/parameters/netns_mode", "N\n")], False),  # netns exclusive
        ([("dev/nvidia-caps-imex-channels/channel0", "")], False),
    ],
    ids=str,
)
def test_hosts_that_may_hide_traffic_are_not_judged(tmp_path, files, judged):
    for name, text in files:
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    tables = []
    host = Host("gpu-1", tmp_path / "sys", tmp_path / "proc", dev=tmp_path / "dev")
    step, state = transports.step_of(host, lambda: tables), None
    for second in range(60):
        tables[:] = [ports(float(second), [0] * 8)]
        streams = StreamTableBuilder()
        streams.add(("llm", "0x1", "AllReduce", "0"), [(second, GIB, 1000, True)], ranks=2, nodes=2, host="gpu-1")
        state, out = step(state, streams.table(float(second)))
    ratios = [column.values for table in out for ending, column in table.columns.items() if ending == "rdma_ratio"]
    assert ratios == ([[0.0]] if judged else [])


@pytest.mark.slow
async def test_a_running_exporter_compares_files_of_a_job_with_ports(tmp_path, monkeypatch):
    """The job runs, and the counters of the ports do not move; then they do."""
    monkeypatch.setattr(transport, "LEAD_SECONDS", 2.0)
    monkeypatch.setattr(transport, "SETTLE_SECONDS", 0.5)
    ratio = re.compile(rf'^fabric_job_rdma_ratio{{train_job="llm",host="{HOST}"}} (\S+)$', re.MULTILINE)
    async with Cluster(tmp_path, interval="1s") as cluster:
        job = InspectorJob(tmp_path / "nccl", "llm", hostname=HOST, n_ranks=32, n_nodes=4, bus_bandwidth=1e9)
        paths = {"sysfs": cluster.sysfs, "procfs": cluster.procfs, "nic_replay": cluster.recordings}
        async with scraped(cluster.config_file, **paths) as scraper:

            async def run():
                while True:
                    await asyncio.to_thread(job.step)
                    await asyncio.sleep(0.2)

            running = asyncio.create_task(run())
            try:
                text = await scraper.until(ratio.search)
                assert float(ratio.search(text)[1]) == 0
                assert "fabric_job_rdma_ports_used" not in text
                await cluster.advance(5.0)
                await scraper.until(lambda text: (found := ratio.search(text)) and float(found[1]) >= 1)
            finally:
                running.cancel()
                await asyncio.wait([running])
