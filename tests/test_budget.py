"""How many series there are by default, counted in real scrapes of the simulated cluster at its fullest."""

import re
from collections import Counter

import pytest
from golden import scraped

from exporter.daemon import SOURCES, metrics
from exporter.simulator import host
from exporter.simulator.cluster import Cluster
from exporter.snmp.ber import COUNTER32, Typed
from exporter.sources.nic_drivers.mlx5 import MLX5

NODE, SWITCH_PORT, RANK = 1500, 60, 20
"""Series at most: of a node with eight rails (its ranks not counted), of one port of a switch, of one rank."""

OF_OTHERS = {
    "fabric_nic_transmit_timeouts_total",  # virtio
    "fabric_nic_saturated",  # only of counters that stand at their top
    "fabric_rdma_saturated",
}
"""What eight healthy ports of mlx5 do not have."""


def every_statistic(statistics):
    """Give a recording's statistics, and the rest of what the driver counts, for all eight priorities."""
    names = [name for one in (*MLX5.port, *MLX5.priority) for name in one.names]
    full = {name.replace("{p}", str(priority)): 1 for priority in range(8) for name in names}
    return {**full, **statistics}


def pfc(ports):
    """Give the frames of priority flow control by port and priority, as an agent with CISCO-PFC-EXT-MIB has them."""
    table = (1, 3, 6, 1, 4, 1, 9, 9, 813, 1, 2, 1)
    places = [(column, port, priority) for column in (2, 3) for port in range(1, ports + 1) for priority in range(8)]
    return {(*table, *place): Typed(COUNTER32, 1) for place in places}


@pytest.fixture
def full(monkeypatch):
    plain = host._mlx5
    monkeypatch.setattr(host, "_mlx5", lambda nic: every_statistic(plain(nic)))


async def scrape(folder, *, drop=()):
    """Scrape a node whose job has had collectives on all eight ranks, and its two switches, with traffic that moves."""
    async with Cluster(folder, interval="200ms", switch_interval="500ms") as cluster:
        cluster.agent.set_many(pfc(len(cluster.training.leaves[0].ports)))
        text = cluster.config_file.read_text()
        if drop:
            listed = "drop: [" + ", ".join(drop) + "]"
            text = re.sub(r"^  (rdma|nic|nccl):\n", rf"  \1:\n    {listed}\n", text, flags=re.MULTILINE)
            text = text.replace("switches:\n", f"switches:\n  {listed}\n")
            assert text.count(listed) == len(SOURCES)
            cluster.config_file.write_text(text)
        paths = {"sysfs": cluster.sysfs, "procfs": cluster.procfs, "nic_replay": cluster.recordings}
        async with scraped(cluster.config_file, **paths) as scraper:
            for _ in range(2):
                await scraper.settled()
                await cluster.advance(70)
            return await scraper.settled()


def series(text):
    return [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]


def families(text):
    return {name for name in re.findall(r"^# TYPE (\S+)", text, re.MULTILINE) if not name.startswith(OWN)}


OWN = ("fabric_source_", "fabric_exporter_", "process_")


async def test_the_series_of_a_full_cluster_keep_to_the_budget(tmp_path, full):
    text = await scrape(tmp_path / "cluster")
    found = series(text)
    declared = {one.name for one in metrics() if one.name.startswith(("fabric_rdma_", "fabric_nic_"))}
    assert declared - families(text) <= OF_OTHERS, "the node that is counted does not have all there is"

    others = ("fabric_switch_", "fabric_nccl_")
    node = [one for one in found if not one.startswith(others) and 'source="switch"' not in one]
    assert sum(one.startswith("fabric_rdma_info") for one in node) == 8
    assert len(node) <= NODE

    ports = Counter(re.findall(r'^fabric_switch_\w+(\{switch="[^"]+",port="[^"]+")', "\n".join(found), re.MULTILINE))
    assert len(ports) > 30
    assert max(ports.values()) <= SWITCH_PORT
    assert 'fabric_switch_receive_pfc_frames_total{switch="leaf-01",port="Ethernet1/1",priority="7"}' in found

    ranks = Counter(re.findall(r'^fabric_nccl_\w+\{train_job="[^"]+".*rank="([^"]+)"', "\n".join(found), re.MULTILINE))
    assert len(ranks) == 8
    assert max(ranks.values()) <= RANK


async def test_every_family_can_be_switched_off_and_takes_no_other_with_it(tmp_path, full):
    everything = families(await scrape(tmp_path / "all"))
    names = sorted(everything)
    for number in (0, 1):
        dropped = names[number::2]
        left = families(await scrape(tmp_path / f"half-{number}", drop=dropped))
        assert left == everything - set(dropped)


async def test_all_of_a_source_can_be_switched_off_by_a_pattern(tmp_path):
    assert families(await scrape(tmp_path / "none", drop=['"*"'])) == set()
