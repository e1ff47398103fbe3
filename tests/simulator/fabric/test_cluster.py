"""End to end: exporters have the counters of the fabric's hosts and switches."""

import asyncio
import json
import re
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from exporter.daemon.daemon import Daemon
from exporter.daemon.settings import Settings
from exporter.simulator.fabric.cluster import FabricCluster

pytestmark = pytest.mark.slow


@asynccontextmanager
async def exporting(settings):
    """Run a daemon; give the function that waits until all of some patterns match its metrics."""
    daemon = Daemon(settings)
    await daemon.start()
    try:
        host, port = daemon.web.addresses[0]
        async with httpx.AsyncClient(base_url=f"http://{host}:{port}", trust_env=False) as client:

            async def until(*patterns):
                async with asyncio.timeout(90):
                    while True:
                        text = (await client.get("/metrics")).text
                        if all(re.search(pattern, text, re.MULTILINE) for pattern in patterns):
                            return text
                        await asyncio.sleep(0.1)

            yield until
    finally:
        await daemon.stop()


def host_settings(cluster, name):
    paths = cluster.hosts[name]
    return Settings(
        config_file=paths.config,
        listen_addresses=("127.0.0.1:0",),
        sysfs=paths.sysfs,
        procfs=paths.procfs,
        nic_replay=paths.recordings,
    )


async def test_a_host_exports_its_own_counters_and_ranks(tmp_path):
    faults = ["marks-ignored:gpu-003"]
    async with (
        FabricCluster(tmp_path, faults=faults, interval="200ms") as cluster,
        exporting(host_settings(cluster, "gpu-003")) as until,
    ):
        await until(r"^fabric_rdma_transmit_bytes_total")
        await cluster.advance(2.0)
        counters = cluster.model.ports[cluster.model.topology.adapter("gpu-003", 6)].counters
        rail = r'device="mlx5_6",port="1"'
        text = await until(
            rf"^fabric_rdma_transmit_bytes_total\{{{rail}\}} {counters['transmit_rdma'] * 4112}$",
            rf"^fabric_rdma_cnp_ignored_total\{{{rail}\}} {counters['cnp_ignored']}$",
            r'^fabric_nccl_\w+\{.*job="demo".*rank="\d+"',
        )
        ranks = set(re.findall(r'rank="(\d+)"', text))
        assert ranks <= {str(rank) for rank in range(16, 24)}
        assert ranks


def secret_of(target):
    """Return the community or password that the configuration of a target leads to."""
    path = target["snmp"]["community_file"] if "snmp" in target else target["onyx"]["password_file"]
    return Path(path).read_text().strip()


async def test_the_poller_has_all_switches_by_two_protocols_as_targets(tmp_path):
    async with FabricCluster(tmp_path) as cluster:
        targets = json.loads(cluster.poller_config.read_text())["switches"]["targets"]
        kinds = {target["name"]: "onyx" if "onyx" in target else "snmp" for target in targets}
        assert kinds == dict.fromkeys(cluster.model.booted, "snmp") | {"leaf-02": "onyx", "leaf-04": "onyx"}
        assert all(map(secret_of, targets))
