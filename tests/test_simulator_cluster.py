"""End to end: what the simulated devices counted is what /metrics says, to the byte, and each fault shows there."""

import asyncio
import re
from contextlib import asynccontextmanager

import httpx
import pytest

from exporter.daemon import Daemon
from exporter.demo import settings
from exporter.simulator.cluster import Cluster

LINE = re.compile(r"(?P<name>[a-z0-9_]+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
SOURCES = {("rdma", ""), ("nic", ""), ("nccl", ""), ("switch", "leaf-01"), ("switch", "leaf-02")}


class Watched:
    """A cluster and the daemon that watches it."""

    def __init__(self, cluster, daemon, client):
        self.cluster = cluster
        self.training = cluster.training
        self._daemon = daemon
        self._client = client

    async def scrape(self):
        """Fetch /metrics; give name and sorted labels to the value as text."""
        answer = await self._client.get("/metrics")
        answer.raise_for_status()
        found = {}
        for line in answer.text.splitlines():
            if not line.startswith("#"):
                parts = LINE.fullmatch(line)
                found[parts["name"], tuple(sorted(LABEL.findall(parts["labels"] or "")))] = parts["value"]
        return found

    async def until(self, wanted):
        """Scrape until `wanted` is content with what it says; the test's time is the limit."""
        async with asyncio.timeout(30):
            while True:
                found = await self.scrape()
                if wanted(found):
                    return found
                await asyncio.sleep(0.05)

    async def read_anew(self):
        """Scrape after every source was read well, from beginning to end, since now."""
        first = await self.scrape()
        successes = {one: set() for one in SOURCES}

        def read_twice(found):
            for (name, target), seen in successes.items():
                key = "fabric_source_last_success_timestamp_seconds", labels(source=name, target=target)
                if key in found and found[key] != first.get(key):
                    seen.add(found[key])
            # The read behind the first success may have begun before now, that behind the second did not.
            return all(len(seen) >= 2 for seen in successes.values())

        return await self.until(read_twice)


def labels(**given):
    """Give labels as `scrape` has them; those that are empty are not printed."""
    return tuple(sorted((key, value) for key, value in given.items() if value))


def get(found, name, **given):
    """Give one value."""
    return found[name, labels(**given)]


@asynccontextmanager
async def watched(folder, *faults, seed=1):
    async with Cluster(folder, faults=faults, seed=seed, interval="200ms", switch_interval="1s") as cluster:
        daemon = Daemon(settings(cluster, listen_addresses=["127.0.0.1:0"]))
        await daemon.start()
        try:
            host, port = daemon.web.addresses[0]
            async with httpx.AsyncClient(base_url=f"http://{host}:{port}", trust_env=False) as client:
                yield Watched(cluster, daemon, client)
        finally:
            await daemon.stop()


async def test_metrics_are_what_the_devices_counted(tmp_path):
    async with watched(tmp_path) as run:
        for _ in range(3):
            await run.cluster.advance(7.3)
        found = await run.read_anew()
        for rail in run.training.rails:
            port, counters = rail.port, rail.port.counters
            for way in ("receive", "transmit"):
                rdma = counters[f"{way}_rdma"]
                wire = rdma * 4158 + counters[f"{way}_kernel"] * 94 + counters[f"{way}_multicast"] * 204
                kernel = counters[f"{way}_kernel"] * 90 + counters[f"{way}_multicast"] * 200
                label = {"device": rail.device, "port": "1"}
                assert int(get(found, f"fabric_rdma_{way}_bytes_total", **label)) == rdma * 4112
                assert int(get(found, f"fabric_rdma_{way}_packets_total", **label)) == rdma
                assert int(get(found, f"fabric_nic_{way}_bytes_total", device=port.name)) == wire
                assert int(get(found, f"fabric_nic_kernel_{way}_bytes_total", device=port.name)) == kernel
            assert int(get(found, "fabric_rdma_cnp_sent_total", **label)) == counters["cnp_sent"] > 0
            priority = {"device": port.name, "priority": "3"}
            assert int(get(found, "fabric_nic_receive_pfc_frames_total", **priority)) == counters["pause_frames"]
            paused = float(get(found, "fabric_nic_receive_pfc_paused_seconds_total", **priority))
            assert paused == counters["paused_microseconds"] / 1e6 > 0
        for leaf in run.training.leaves:
            for port in leaf.ports:
                for way in ("receive", "transmit"):
                    label = {"switch": leaf.name, "port": port.name}
                    assert int(get(found, f"fabric_switch_{way}_bytes_total", **label)) == port.wire_bytes(way)
                    assert int(get(found, f"fabric_switch_{way}_packets_total", **label)) == port.packets(way)
                assert get(found, "fabric_switch_link_up", **label) == str(int(port.up))


async def test_what_stands_beside_the_counters(tmp_path):
    async with watched(tmp_path) as run:
        await run.cluster.advance(1)
        found = await run.read_anew()
        rails = {dict(labels)["device"]: dict(labels) for name, labels in found if name == "fabric_rdma_info"}
        assert [rails[f"mlx5_{number}"]["rail"] for number in range(8)] == [str(number) for number in range(8)]
        assert {one["host"] for one in rails.values()} == {"gpu-001"}
        assert rails["mlx5_7"]["netdev"] == "eth9"
        nics = {dict(labels)["device"]: dict(labels) for name, labels in found if name == "fabric_nic_info"}
        assert (nics["eth0"]["driver"], nics["eth2"]["driver"]) == ("ice", "mlx5_core")
        assert nics["eth2"]["mac"] == rails["mlx5_0"]["mac"]
        ports = {
            dict(labels)["port"]: dict(labels)
            for name, labels in found
            if name == "fabric_switch_info" and dict(labels)["switch"] == "leaf-01"
        }
        assert ports["Ethernet1/1"]["alias"] == "gpu-001 eth2"
        assert "mgmt0" in ports
        speed = get(found, "fabric_switch_link_speed_bytes_per_second", switch="leaf-02", port="Eth1/1")
        assert float(speed) == 50e9
        up = {labels: value for (name, labels), value in found.items() if name == "fabric_source_up"}
        assert set(up.values()) == {"1"}
        reasons = {dict(labels)["reason"] for name, labels in found if name == "fabric_source_failures_total"}
        assert reasons <= {"timeout"}  # which a busy machine may see: the intervals are short


async def test_rates_move_by_the_clock(tmp_path):
    async with watched(tmp_path) as run:
        await run.cluster.advance(4.4)  # the end of computing is near
        moving = asyncio.create_task(run.cluster.run())
        rates = set()

        def moved(found):
            key = "fabric_rdma_transmit_bytes_per_second", labels(device="mlx5_0", port="1")
            rates.add(found.get(key))
            return len(rates - {None}) >= 4

        await run.until(moved)
        moving.cancel()


async def test_a_degraded_link_shows(tmp_path):
    async with watched(tmp_path, "degraded-link") as run:
        found = await run.read_anew()
        verdicts = [get(found, "fabric_rdma_link_degraded", device=f"mlx5_{rail}", port="1") for rail in range(8)]
        assert verdicts == ["0", "0", "0", "1", "0", "0", "0", "0"]
        assert get(found, "fabric_nic_link_degraded", device="eth5") == "1"
        assert get(found, "fabric_nic_link_degraded", device="eth4") == "0"
        speed = get(found, "fabric_switch_link_speed_bytes_per_second", switch="leaf-01", port="Ethernet1/13")
        assert float(speed) == 12.5e9


async def test_a_link_that_goes_down_shows_on_both_ends(tmp_path):
    async with watched(tmp_path) as run:
        await run.read_anew()
        run.training.begin("link-down")
        await run.cluster.advance(0.1)
        found = await run.read_anew()
        ups = [get(found, "fabric_rdma_link_up", device=f"mlx5_{rail}", port="1") for rail in range(8)]
        assert ups == ["1", "1", "1", "1", "1", "1", "0", "1"]
        assert get(found, "fabric_nic_link_up", device="eth8") == "0"
        assert get(found, "fabric_switch_link_up", switch="leaf-02", port="Eth1/9") == "0"
        assert get(found, "fabric_rdma_link_down_total", device="mlx5_6", port="1") == "1"


async def test_a_pause_storm_shows(tmp_path):
    async with watched(tmp_path, "pause-storm") as run:
        moving = asyncio.create_task(run.cluster.run())

        def ratio(found, device):
            key = "fabric_nic_receive_pfc_paused_ratio", labels(device=device, priority="3")
            return float(found.get(key, "nan"))

        found = await run.until(lambda found: ratio(found, "eth6") > 0.4)
        assert max(ratio(found, device) for device in ("eth2", "eth5", "eth7")) < 0.05
        moving.cancel()


@pytest.mark.parametrize(("faults", "least", "most"), [(["imbalance"], 0.35, 0.5), ([], 0.0, 0.05)])
async def test_imbalance_shows(tmp_path, faults, least, most):
    async with watched(tmp_path, *faults) as run:
        await run.read_anew()
        await run.cluster.advance(60)
        await run.read_anew()  # a read that began while the files were written saw some rails move before others
        found = await run.scrape()
        (ratio,) = [
            float(value) for (name, _), value in found.items() if name == "fabric_rdma_transmit_imbalance_ratio"
        ]
        assert least <= ratio <= most


@pytest.mark.parametrize(("faults", "late"), [(["straggler"], "1"), ([], "0")])
async def test_a_straggler_shows(tmp_path, faults, late):
    async with watched(tmp_path, *faults) as run:
        await run.read_anew()  # what was written before the first read is not counted

        def named(found):
            return any(name == "fabric_nccl_straggler" for name, _ in found)

        await run.cluster.advance(10)
        found = await run.until(named)
        verdicts = [get(found, "fabric_nccl_straggler", train_job="demo", rank=str(rank)) for rank in range(8)]
        assert verdicts == ["0", "0", "0", "0", "0", late, "0", "0"]


async def test_a_silent_switch_costs_itself_alone(tmp_path):
    async with watched(tmp_path) as run:
        await run.read_anew()
        run.training.begin("switch-silent")
        await run.cluster.advance(0.5)
        found = await run.until(lambda found: get(found, "fabric_source_up", source="switch", target="leaf-01") == "0")
        assert get(found, "fabric_source_up", source="switch", target="leaf-02") == "1"
        assert get(found, "fabric_source_up", source="rdma") == "1"
        found = await run.until(
            lambda found: (
                not any(
                    name == "fabric_switch_receive_bytes_total" and ("switch", "leaf-01") in labels
                    for name, labels in found
                )
            )
        )
        assert get(found, "fabric_switch_receive_bytes_total", switch="leaf-02", port="Eth1/1")


async def test_a_disk_that_fails_is_told_to_whoever_moves_the_cluster(tmp_path, monkeypatch):
    async with Cluster(tmp_path) as cluster:

        def full():
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(cluster._files, "write", full)
        with pytest.raises(OSError, match="No space left"):
            await cluster.run()
