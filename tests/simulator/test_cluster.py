"""End to end: /metrics has the counters of the simulated devices, exactly, and the effect of each fault."""

import asyncio
import re
from contextlib import asynccontextmanager

import httpx
import pytest

from exporter.commands.demo import settings
from exporter.daemon.daemon import Daemon
from exporter.simulator.cluster import Cluster

pytestmark = pytest.mark.slow

LINE = re.compile(r"(?P<name>[a-z0-9_]+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
SOURCES = {("rdma", ""), ("nic", ""), ("nccl", ""), ("switch", "leaf-01"), ("switch", "leaf-02")}
"""Those that are read often; the others are read once in each of these tests."""

ONCE = {"pci", "optics", "bursts", "hostcheck"}

UP = ("fabric_source_up", "1")


FRAMES = "fabric_switch_receive_pause_frames_total"


class Watched:
    """A cluster and the daemon that watches it."""

    def __init__(self, cluster, daemon, client):
        self.cluster = cluster
        self.training = cluster.training
        self._daemon = daemon
        self._client = client

    async def scrape(self):
        """Fetch /metrics; return values as text by name and sorted labels."""
        answer = await self._client.get("/metrics")
        answer.raise_for_status()
        found = {}
        for line in answer.text.splitlines():
            if not line.startswith("#"):
                parts = LINE.fullmatch(line)
                found[parts["name"], tuple(sorted(LABEL.findall(parts["labels"] or "")))] = parts["value"]
        return found

    async def until(self, wanted, seconds=30):
        """Scrape until `wanted` accepts the result."""
        async with asyncio.timeout(seconds):
            while True:
                found = await self.scrape()
                if wanted(found):
                    return found
                await asyncio.sleep(0.05)

    async def read_anew(self, sources=SOURCES):
        """Scrape after every one of these sources was read well, from beginning to end, since now."""
        first = await self.scrape()
        successes = {one: set() for one in sources}

        def read_twice(found):
            for (name, target), seen in successes.items():
                key = "fabric_source_last_success_timestamp_seconds", labels(source=name, target=target)
                if key in found and found[key] != first.get(key):
                    seen.add(found[key])
            # The read behind the first success may have begun before now, that behind the second did not.
            return all(len(seen) >= 2 for seen in successes.values())

        return await self.until(read_twice)


def read_well(found):
    """Return the sources whose last read was successful."""
    return {dict(labels)["source"] for (name, labels), value in found.items() if (name, value) == UP}


def labels(**given):
    """Return labels as `scrape` does, without empty ones."""
    return tuple(sorted((key, value) for key, value in given.items() if value))


def get(found, name, **given):
    """Return one value."""
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
        assert run.training.rails
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
            mended = int(get(found, "fabric_nic_fec_corrected_blocks_total", device=port.name))
            assert mended == counters["fec_corrected_blocks"] > 0
        for leaf in run.training.leaves:
            for port in leaf.ports:
                for way in ("receive", "transmit"):
                    label = {"switch": leaf.name, "port": port.name}
                    assert int(get(found, f"fabric_switch_{way}_bytes_total", **label)) == port.wire_bytes(way)
                    assert int(get(found, f"fabric_switch_{way}_packets_total", **label)) == port.packets(way)
                assert get(found, "fabric_switch_link_up", **label) == str(int(port.up))


async def test_other_files_of_an_rdma_device(tmp_path):
    async with watched(tmp_path) as run:
        await run.cluster.advance(1)
        await run.read_anew()
        # On a busy machine the first read of one of these may fail: it is repeated after its interval, a minute.
        found = await run.until(lambda found: read_well(found) >= ONCE, seconds=100)
        rails = {dict(labels)["device"]: dict(labels) for name, labels in found if name == "fabric_rdma_info"}
        assert [rails[f"mlx5_{number}"]["rail"] for number in range(8)] == [str(number) for number in range(8)]
        assert {one["host"] for one in rails.values()} == {"gpu-001"}
        assert rails["mlx5_7"]["netdev"] == "eth9"
        nics = {dict(labels)["device"]: dict(labels) for name, labels in found if name == "fabric_nic_info"}
        assert (nics["eth0"]["driver"], nics["eth2"]["driver"]) == ("ice", "mlx5_core")
        assert nics["eth2"]["mac"] == rails["mlx5_0"]["mac"]
        functions = {dict(labels)["devices"]: dict(labels) for name, labels in found if name == "fabric_pci_info"}
        assert functions.keys() == {"eth0", *(f"eth{number + 2},mlx5_{number}" for number in range(8))}
        seat = functions["eth9,mlx5_7"]
        assert (seat["pci"], seat["bridge"]) == (rails["mlx5_7"]["pci"], "0000:db:00.0")
        assert (seat["nearest_gpu"], seat["numa_node"]) == ("0000:dd:00.0", "1")
        settings = {
            dict(labels)["device"]: dict(labels) for name, labels in found if name == "fabric_nic_settings_info"
        }
        assert (settings["eth2"]["fec"], settings["eth2"]["pfc"], settings["eth2"]["pause"]) == ("rs", "3", "none")
        modules = {dict(labels)["device"]: dict(labels) for name, labels in found if name == "fabric_nic_module_info"}
        # Ports that another source is still reading, on a busy machine: each is counted by device.
        left_out = {
            dict(labels).get("device")
            for name, labels in found
            if name == "fabric_source_failures_total" and dict(labels)["source"] == "optics"
        }
        ports = {f"eth{number}" for number in range(2, 10)}
        assert ports - left_out <= modules.keys() <= ports
        assert len(modules) >= 4
        assert {one["kind"] for one in modules.values()} == {"OSFP"}
        assert len({one["serial"] for one in modules.values()}) == len(modules)
        ready = [get(found, f"fabric_rdma_ports_{what}") for what in ("expected", "ready")]
        assert ready == ["8", "8"]
        ports = {
            dict(labels)["port"]: dict(labels)
            for name, labels in found
            if name == "fabric_switch_info" and dict(labels)["switch"] == "leaf-01"
        }
        assert ports["Ethernet1/1"]["alias"] == "gpu-001 eth2"
        assert "mgmt0" in ports
        speed = get(found, "fabric_switch_link_speed_bytes_per_second", switch="leaf-02", port="Eth1/1")
        assert float(speed) == 50e9
        up = {dict(labels)["source"]: value for (name, labels), value in found.items() if name == "fabric_source_up"}
        assert up == dict.fromkeys((*ONCE, "rdma", "nic", "nccl", "switch"), "1")
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


async def test_a_flapping_link_shows_on_both_ends_and_why(tmp_path):
    async with watched(tmp_path) as run:
        await run.read_anew()
        run.training.begin("flapping-link")
        rail, nic = {"device": "mlx5_1", "port": "1"}, {"device": "eth3"}
        for seconds, up in ((0.1, "0"), (5.0, "1")):
            await run.cluster.advance(seconds)
            found = await run.read_anew()
            assert get(found, "fabric_rdma_link_up", **rail) == get(found, "fabric_nic_link_up", **nic) == up
            assert get(found, "fabric_switch_link_up", switch="leaf-01", port="Ethernet1/5") == up
            reason = "fabric_nic_link_down_reason_info", labels(reason="cable_issue", **nic)
            assert (reason in found) == (up == "0")
        assert (
            get(found, "fabric_rdma_link_down_total", **rail) == get(found, "fabric_nic_link_down_total", **nic) == "1"
        )
        assert get(found, "fabric_rdma_link_down_total", device="mlx5_0", port="1") == "0"


async def test_a_missing_port_shows_by_its_number_and_at_its_switch(tmp_path):
    async with watched(tmp_path) as run:
        await run.read_anew()
        run.training.begin("missing-port")
        await run.cluster.advance(0.1)
        found = await run.read_anew()
        rails = {dict(labels)["device"] for name, labels in found if name == "fabric_rdma_info"}
        nics = {dict(labels)["device"] for name, labels in found if name == "fabric_nic_info"}
        assert rails == {f"mlx5_{number}" for number in range(7)}
        assert nics == {f"eth{number}" for number in (0, *range(2, 9))}
        assert [get(found, f"fabric_rdma_ports_{what}") for what in ("expected", "ready")] == ["8", "7"]
        assert get(found, "fabric_switch_link_up", switch="leaf-02", port="Eth1/13") == "0"
        run.training.end("missing-port")
        await run.cluster.advance(1)
        found = await run.read_anew()
        assert get(found, "fabric_rdma_ports_ready") == "8"
        rail, counters = {"device": "mlx5_7", "port": "1"}, run.training.rails[7].port.counters
        assert int(get(found, "fabric_rdma_transmit_packets_total", **rail)) == counters["transmit_rdma"]


async def test_a_slow_pcie_link_causes_pause_frames(tmp_path):
    async with watched(tmp_path, "slow-pcie") as run:
        await run.cluster.advance(20)
        found = await run.until(lambda found: ("fabric_pci_link_degraded", labels(pci="0000:c0:00.0")) in found)
        degraded = {
            dict(labels)["pci"]: value for (name, labels), value in found.items() if "pci_link_degraded" in name
        }
        assert {pci for pci, value in degraded.items() if value == "1"} == {"0000:c0:00.0"}
        assert len(degraded) == 9
        assert get(found, "fabric_pci_link_lanes", pci="0000:c0:00.0") == "8"
        moving = asyncio.create_task(run.cluster.run())

        def ratio(found, device):
            key = "fabric_nic_transmit_pfc_paused_ratio", labels(device=device, priority="3")
            return float(found.get(key, "nan"))

        def paused(found):
            return {dict(labels)["port"] for (name, labels), value in found.items() if name == FRAMES and value != "0"}

        found = await run.until(lambda found: ratio(found, "eth7") > 0.4 and paused(found))
        moving.cancel()
        assert max(ratio(found, device) for device in ("eth2", "eth4", "eth6")) == 0
        assert int(get(found, "fabric_nic_pci_buffer_overflows_total", device="eth7")) > 0
        assert paused(found) == {"Eth1/5"}


async def test_a_dirty_optic_affects_received_power_fec_and_retransmissions(tmp_path):
    async with watched(tmp_path, "dirty-optic") as run:
        first = await run.read_anew()
        dim = ("fabric_nic_module_lane_receive_power_watts", labels(device="eth4", lane="2"))
        found = await run.until(lambda found: dim in found)
        alarms = {
            dict(labels)["device"]: float(value)
            for (name, labels), value in found.items()
            if name == "fabric_nic_module_threshold_receive_power_watts" and ("level", "low_alarm") in labels
        }
        low = [
            labels
            for (name, labels), value in found.items()
            if name == "fabric_nic_module_lane_receive_power_watts" and float(value) < alarms[dict(labels)["device"]]
        ]
        assert low == [dim[1]]
        moving = asyncio.create_task(run.cluster.run())

        def ratio(found, device):
            key = "fabric_rdma_retransmission_ratio", labels(device=device, port="1")
            return float(found.get(key, "nan"))

        def rise(found, ending, device):
            key = f"fabric_nic_fec_{ending}_blocks_total", labels(device=device)
            return int(found[key]) - int(first[key])

        def has_verdict(found):
            return (
                ratio(found, "mlx5_2") > 1e-4 and ratio(found, "mlx5_3") < 1e-5 and rise(found, "uncorrectable", "eth4")
            )

        found = await run.until(has_verdict)
        moving.cancel()
        assert rise(found, "uncorrectable", "eth5") == 0
        assert rise(found, "corrected", "eth4") > 100 * rise(found, "corrected", "eth5") > 0


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
        moving = asyncio.create_task(run.cluster.run())

        def ratios(found):
            return [
                float(value) for (name, _), value in found.items() if name == "fabric_rdma_transmit_imbalance_ratio"
            ]

        # Not the first: rates of one interval are as wrong as the times of its reads on a busy machine.
        found = await run.until(lambda found: any(least <= ratio <= most for ratio in ratios(found)))
        assert len(ratios(found)) == 1
        moving.cancel()


@pytest.mark.parametrize(("faults", "late"), [(["straggler"], "1"), ([], "0")])
async def test_a_straggler_shows(tmp_path, faults, late):
    async with watched(tmp_path, *faults) as run:
        await run.read_anew()  # what was written before the first read is not counted

        def named(found):  # of all ranks: a read between two of their files sees some alone
            stragglers = {key: value for key, value in found.items() if key[0] == "fabric_nccl_straggler"}
            return len(stragglers) == 8 and late in stragglers.values()

        moving = asyncio.create_task(run.cluster.run())
        found = await run.until(named, seconds=90)  # what a step is takes some of them to see
        moving.cancel()
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


async def test_a_failed_write_is_raised_by_advance(tmp_path, monkeypatch):
    async with Cluster(tmp_path) as cluster:

        def full():
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(cluster._files, "write", full)
        with pytest.raises(OSError, match="No space left"):
            await cluster.run()
