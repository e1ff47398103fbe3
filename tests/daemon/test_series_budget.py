"""How many series there are by default, counted in real scrapes of the simulated cluster at its fullest."""

import asyncio
import re
from collections import Counter
from fnmatch import fnmatchcase

import pytest

from exporter.daemon.sources import SOURCES, metrics
from exporter.simulator import recording
from exporter.simulator.cluster import Cluster
from exporter.snmp.ber import COUNTER32, Typed
from exporter.sources.nic.drivers.mlx5 import MLX5
from tests.helpers.golden import reads, scraped

NODE, SWITCH_PORT, RANK = 1500, 60, 20
"""Series at most: of a node with eight rails (its ranks not counted), of one port of a switch, of one rank."""

ABSENT = (
    # Of other drivers.
    "fabric_nic_*allowance_exceeded_total",
    "fabric_nic_receive_errors_total",
    "fabric_nic_transmit_timeouts_total",
    "fabric_rdma_device_*",
    "fabric_rdma_impaired_connections_total",
    "fabric_rdma_receive_discards_total",
    "fabric_rdma_receive_oversized_discards_total",
    "fabric_rdma_requester_*_errors_total",
    "fabric_rdma_retransmitted_*_total",
    "fabric_rdma_transmit_errors_total",
    "fabric_rdma_unresponsive_peers_total",
    # Of counters that have to be enabled in the device.
    "fabric_rdma_*optional_*",
    "fabric_rdma_cnp_received_total",
    # Of what the configuration has to ask for.
    "fabric_nic_module_*",
    "fabric_*_raw",
    "fabric_rdma_queue_pairs",
    # Of a host that caps what a port transmits.
    "fabric_nic_transmit_rate_limit_bytes_per_second",
    # Of a link that is down, instead of its speed and lanes; of saturated counters.
    "fabric_nic_link_down_reason_info",
    "fabric_*saturated",
    # Of a host where modules of the kernel are not loaded.
    "fabric_rdma_character_device_missing",
)
"""What eight healthy ports of mlx5 do not have, as patterns."""

SHARES = {f"fabric_rdma_{name}_ratio" for name in ("ecn_marked", "cnp_handled", "retransmission", "asymmetry")} | {
    f"fabric_{source}_{way}_{what}_ratio"
    for source in ("rdma", "nic", "switch")
    for way in ("receive", "transmit")
    for what in ("imbalance", "deficit")
}
"""What is there only for an interval in which packets moved."""

ELSEWHERE = {"pods", "ibfabric", "nccl_facts", "collector"}  # the demo has no pods, no InfiniBand, no files, no broker
OF_HOST = ("rdma", "bursts", "nic", "pci", "optics", "lldp", "nccl", "hostcheck")
"""Sources that are configured under `sources`."""


def every_statistic(statistics):
    """Return a recording's statistics with the other counters of the driver, for all eight priorities."""
    names = [name for one in (*MLX5.port, *MLX5.priority) for name in one.names]
    full = {name.replace("{p}", str(priority)): 1 for priority in range(8) for name in names}
    return {**full, **statistics}


def pfc(ports):
    """Return the frames of priority flow control by port and priority, as rows of CISCO-PFC-EXT-MIB."""
    table = (1, 3, 6, 1, 4, 1, 9, 9, 813, 1, 2, 1)
    places = [(column, port, priority) for column in (2, 3) for port in range(1, ports + 1) for priority in range(8)]
    return {(*table, *place): Typed(COUNTER32, 1) for place in places}


@pytest.fixture
def full(monkeypatch):
    plain = recording.mlx5
    monkeypatch.setattr(recording, "mlx5", lambda nic: every_statistic(plain(nic)))


async def scrape(folder, wanted=SHARES, *, drop=(), optics=True):
    """Scrape a node whose job has had collectives on all eight ranks, and its two switches, with traffic that moves.

    Args:
        folder: Where the cluster lives.
        wanted: Families without which a scrape is not complete.
        drop: Metrics that the configuration of every source drops.
        optics: Whether modules are read, which is not so by default.
    """
    async with Cluster(folder, interval="200ms", switch_interval="500ms") as cluster:
        cluster.agent.set_many(pfc(len(cluster.training.leaves[0].ports)))
        text = cluster.config_file.read_text()
        for slow, quick in (
            ("  pci:\n    interval: 60s", "  pci:\n    interval: 200ms"),
            ("  hostcheck:\n    interval: 4m", "  hostcheck:\n    interval: 1s"),
            ("    tick: 1s", "    interval: 500ms\n    tick: 250ms"),
            ("    enabled: true", f"    enabled: {str(optics).lower()}"),
        ):
            assert slow in text
            text = text.replace(slow, quick)
        if drop:
            listed = "drop: [" + ", ".join(drop) + "]"
            text = re.sub(rf"^  ({'|'.join(OF_HOST)}):\n", rf"  \1:\n    {listed}\n", text, flags=re.MULTILINE)
            text = text.replace("switches:\n", f"switches:\n  {listed}\n")
            assert text.count(listed) == len(SOURCES) - len(ELSEWHERE)
        cluster.config_file.write_text(text)
        paths = {"sysfs": cluster.sysfs, "procfs": cluster.procfs, "nic_replay": cluster.recordings}
        async with scraped(cluster.config_file, **paths) as scraper:
            await settled(scraper, optics=optics)
            await cluster.advance(70)
            await settled(scraper, optics=optics)
            moving = asyncio.create_task(cluster.run())
            try:
                return await scraper.until(lambda text: wanted <= families(text))
            finally:
                moving.cancel()
                await asyncio.wait([moving])


async def settled(scraper, *, optics):
    """Scrape once each source has been read three times from now; optics, which are read once a minute, at all."""
    before = reads(await scraper.text())
    slow = '{source="optics"}'

    def look(text):
        now = reads(text)
        often = now.keys() - {slow}
        return often and all(now[key] >= before.get(key, 0) + 3 for key in often) and now.get(slow, 0) >= optics

    return await scraper.until(look)


def series(text):
    return [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]


def families(text):
    return {name for name in re.findall(r"^# TYPE (\S+)", text, re.MULTILINE) if not name.startswith(OWN)}


OWN = (
    "fabric_source_",
    "fabric_exporter_",
    "process_",
    "python_",
    *(f"fabric_switch_{name}" for name in ("up", "poll_duration_seconds", "overruns_total")),
)
"""The exporter's own metrics, which no source can drop."""


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_the_series_of_a_full_cluster_keep_to_the_budget(tmp_path, full):
    text = await scrape(tmp_path / "cluster", optics=False)  # which is the default
    found = series(text)
    prefixes = ("fabric_rdma_", "fabric_nic_", "fabric_pci_")
    declared = {one.name for one in metrics() if one.name.startswith(prefixes) and not one.detail}
    absent = declared - families(text)
    unexplained = {one for one in absent if not any(fnmatchcase(one, pattern) for pattern in ABSENT)}
    assert unexplained == set(), "the node that is counted does not have all there is"
    assert [pattern for pattern in ABSENT if not any(fnmatchcase(one, pattern) for one in absent)] == []

    others = ("fabric_switch_", "fabric_link_info{switch=", "fabric_nccl_")
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


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_every_family_can_be_switched_off_and_takes_no_other_with_it(tmp_path, full):
    everything = families(await scrape(tmp_path / "all"))
    names = sorted(everything)
    for number in (0, 1):
        dropped = names[number::2]
        wanted = everything - set(dropped)
        assert families(await scrape(tmp_path / f"half-{number}", wanted, drop=dropped)) == wanted


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_all_of_a_source_can_be_switched_off_by_a_pattern(tmp_path):
    assert families(await scrape(tmp_path / "none", set(), drop=['"*"'])) == set()
