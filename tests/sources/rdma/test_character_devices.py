"""The source `rdma` reports ports whose character devices are missing."""

import shutil

import pytest

from exporter.core.source import Host
from exporter.sources.rdma import source as rdma
from exporter.sources.rdma.metrics import CHARACTER_DEVICES
from exporter.sources.rdma.options import RdmaOptions
from exporter.sources.rdma.source import RdmaSource
from tests.helpers.paths import FIXTURES
from tests.helpers.rdma_trees import NoNetlink, opened, rows_of
from tests.linux.test_character_devices import add

TREE = FIXTURES / "sysfs"
INFINIBAND, ROCE = "mlx5_0", "mlx5_2"


@pytest.fixture
def clock(stopped_clock):
    return stopped_clock(rdma)


@pytest.fixture
def tree(tmp_path):
    copy = tmp_path / "sys"
    shutil.copytree(TREE, copy, symlinks=True)
    for name in ("infiniband_verbs", "infiniband_mad"):
        shutil.rmtree(copy / "class" / name)
    for place, device in enumerate((INFINIBAND, ROCE)):
        add(copy, "infiniband_verbs", f"uverbs{place}", ibdev=device)
        add(copy, "infiniband_mad", f"umad{place}", ibdev=device, port=1)
    return copy


async def devices_of(source):
    """Return 1 for each character device that is missing, by device, port and kind."""
    reading = await source.read()
    return {key: row["character_device_missing"] for key, row in rows_of(reading, CHARACTER_DEVICES).items()}, reading


async def test_ports_with_and_without_character_devices(tree):
    add(tree, "infiniband_mad", "issm0", ibdev=INFINIBAND, port=1)
    (tree / "class" / "infiniband" / "i40iw0" / "node_type").write_text("4: RNIC\n")
    async with opened(tree, include=[INFINIBAND, "mlx5_1", ROCE, "rdmap*", "i40iw0"]) as source:
        found, reading = await devices_of(source)
    assert reading.failures == []
    assert found == {
        ("mlx5_1", "1", "uverbs"): 1,
        ("mlx5_1", "1", "umad"): 1,  # and no issm, whose absence is normal
        ("rdmap7s0", "1", "uverbs"): 1,  # and no umad: only MADs of connections are sent on Ethernet
        ("i40iw0", "1", "uverbs"): 1,  # iWARP has no MADs, whatever link layer is shown
        ("", "", "rdma_cm"): 1,
    }


async def test_a_module_that_is_unloaded_is_noticed_within_a_minute(tree, clock):
    async with opened(tree, include=[INFINIBAND]) as source:
        assert (INFINIBAND, "1", "uverbs") not in (await devices_of(source))[0]
        shutil.rmtree(tree / "class" / "infiniband_verbs")
        clock.now += rdma.RESCAN_SECONDS - 1
        assert (INFINIBAND, "1", "uverbs") not in (await devices_of(source))[0]
        clock.now += 1
        assert (await devices_of(source))[0][INFINIBAND, "1", "uverbs"] == 1


async def test_the_character_device_of_a_new_device_is_found_at_once(tree, clock):
    new = tree / "class" / "infiniband" / INFINIBAND
    new.rename(tree / INFINIBAND)
    async with opened(tree, include=["mlx5_*"]) as source:
        await source.read()
        shutil.rmtree(tree / "class" / "infiniband_verbs")
        (tree / INFINIBAND).rename(new)
        add(tree, "infiniband_verbs", "uverbs7", ibdev=INFINIBAND)
        clock.now += 1
        assert (INFINIBAND, "1", "uverbs") not in (await devices_of(source))[0]


async def test_a_class_that_cannot_be_listed_is_a_failure_and_affects_nothing_else(tree):
    shutil.rmtree(tree / "class" / "infiniband_mad")
    (tree / "class" / "infiniband_mad").write_text("")
    async with opened(tree, include=[INFINIBAND]) as source:
        found, reading = await devices_of(source)
    assert found == {}
    assert [failure.device for failure in reading.failures] == [""]
    assert len(reading.tables) == 1


async def test_a_recording_without_the_classes_reports_no_missing_device(tmp_path, tree):
    for name in ("infiniband_verbs", "infiniband_mad"):
        shutil.rmtree(tree / "class" / name)
    host = Host("gpu-1", tree, tmp_path, nic_replay=tmp_path)
    source = RdmaSource(RdmaOptions(), host, NoNetlink)
    found, _ = await devices_of(source)
    await source.close()
    assert found == {}
