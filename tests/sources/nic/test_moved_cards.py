"""A card that is moved into the namespace of a pod and back: its series go on, once, under its name on the host."""

import asyncio
import errno
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.core.source import Host, SourceError
from exporter.sources.common.moved_devices import MAX_NAMES, MovedDevices
from exporter.sources.nic.metrics import SCHEMA
from exporter.sources.nic.options import NicOptions
from exporter.sources.nic.source import NicSource
from tests.helpers.fake_namespaces import FakeNamespaces
from tests.helpers.fake_nic_reader import (
    KERNEL,
    MLX5,
    RateCalculator,
    hardware,
    pci_function,
    raised,
    reasons,
)

ETH2 = hardware("eth2", 2, "0000:17:00.0", mac="aa:00:00:00:00:02", stats=KERNEL)
ETH3 = hardware("eth3", 3, "0000:18:00.0", mac="aa:00:00:00:00:03", stats=KERNEL)


class Node:
    """A host with two cards, a source that reads it, and one that finds its cards in namespaces."""

    def __init__(self, namespaces, nic, pods):
        self.namespaces, self.nic, self.pods = namespaces, nic, pods
        self.host = namespaces.host
        self.rates = RateCalculator()

    async def read(self):
        """Read as the daemon does; return the values of devices by name, with their rates."""
        reading = await self.nic.read()
        devices = [key for table in reading.tables if table.schema is SCHEMA for (key,) in table.rows.keys]
        assert len(set(devices)) == len(devices), "a device is there twice"
        self.failures = reasons(reading)
        return {key: row for key, row in self.rates(reading).items() if isinstance(key, str)}

    def move(self, link, namespace, name="net1", ifindex=None):
        """Move a card of the host into a namespace, under another name."""
        del self.host.devices[link.name]
        moved = replace(link, name=name, ifindex=ifindex or link.ifindex)
        namespace.cards.add(moved, statistics=self.host.counts[link.name])
        return moved

    def move_back(self, link, namespace, name="net1"):
        self.host.add(link, statistics=namespace.cards.counts[name])
        del namespace.cards.devices[name]


@asynccontextmanager
async def node(*, sysfs="/nowhere", moved=None, cards=(ETH2, ETH3), **options):
    namespaces, moved = FakeNamespaces(), moved or MovedDevices()
    for link in cards:
        namespaces.host.add(link, statistics=MLX5)
    nic = NicSource(
        NicOptions(keep=("*",), **options), Host("gpu-1", Path(sysfs), Path("/nowhere")), namespaces.host.open, moved
    )
    pods = namespaces.source(moved, sysfs)
    await pods.read()
    try:
        yield Node(namespaces, nic, pods)
    finally:
        await nic.close()
        await pods.close()


async def test_moved_card_keeps_its_name_and_its_counters_without_a_gap_or_a_double():
    async with node() as one:
        before = await one.read()
        moved = one.move(ETH3, one.namespaces.add("cni-1"))
        (namespace,) = one.namespaces.all.values()
        for _ in range(2):
            found = await one.read()
            assert found.keys() == {"eth2", "eth3"}
            assert found["eth3"].keys() == before["eth3"].keys() | found["eth2"].keys()
            assert found["eth3"]["info"] == before["eth3"]["info"]
            assert found["eth3"]["receive_bytes_total"] == MLX5["rx_bytes_phy"]
        assert moved.name == "net1"
        assert ("statistics", "net1") in namespace.cards.calls
        assert not [name for _, name in namespace.cards.calls if name == "eth3"]
        one.move_back(ETH3, namespace)
        back = await one.read()
        assert back.keys() == {"eth2", "eth3"}
        assert back["eth3"]["info"] == before["eth3"]["info"]
        assert not one.failures


@pytest.mark.parametrize("there", [3, 7])
@pytest.mark.parametrize("back", [3, 12])
async def test_rates_of_a_moved_card_go_on_whatever_its_index_becomes(there, back):
    """A namespace gives another index to a card whose own is in use there, and so does the host when it returns."""
    async with node() as one:
        await one.read()
        assert (await one.read())["eth3"]["receive_bytes_per_second"] == 0
        namespace = one.namespaces.add("cni-1")
        one.move(ETH3, namespace, ifindex=there)
        assert (await one.read())["eth3"]["receive_bytes_per_second"] == 0
        one.move_back(replace(ETH3, ifindex=back), namespace)
        assert (await one.read())["eth3"]["receive_bytes_per_second"] == 0


async def test_card_that_is_made_again_on_the_host_starts_from_zero():
    async with node() as one:
        await one.read()
        one.host.devices["eth3"] = replace(ETH3, ifindex=9)
        assert "receive_bytes_per_second" not in (await one.read())["eth3"]


async def test_card_found_in_a_namespace_is_not_searched_for_again():
    async with node() as one:
        await one.read()
        one.move(ETH3, one.namespaces.add("cni-1"))
        await one.read()
        listings = one.namespaces.listings
        await one.read()
        assert one.namespaces.listings == listings


async def test_card_that_was_unplugged_is_searched_for_once():
    async with node() as one:
        await one.read()
        listings = one.namespaces.listings
        del one.host.devices["eth3"]
        assert (await one.read()).keys() == {"eth2"}
        assert 0 < one.namespaces.listings - listings <= 3
        listings = one.namespaces.listings
        await one.read()
        assert one.namespaces.listings == listings


async def test_virtual_function_that_leaves_the_host_is_not_searched_for(tmp_path):
    pci_function(tmp_path, "eth3", virtual=True)
    async with node(sysfs=tmp_path) as one:
        await one.read()
        listings = one.namespaces.listings
        del one.host.devices["eth3"]
        assert (await one.read()).keys() == {"eth2"}
        assert one.namespaces.listings == listings


async def test_card_that_returns_between_two_looks_has_no_gap():
    async with node() as one:
        await one.read()
        namespace = one.namespaces.add("cni-1")
        one.move(ETH3, namespace)
        await one.read()
        find = one.pods.moved_devices

        async def leave_first(*, search):
            if "net1" in namespace.cards.devices:
                one.move_back(ETH3, namespace)
            return await find(search=search)

        one.pods.moved_devices = leave_first
        found = await one.read()
        assert found["eth3"]["receive_bytes_total"] == MLX5["rx_bytes_phy"]
        assert found.keys() == {"eth2", "eth3"}


async def test_card_that_returns_while_it_is_read_is_read_again():
    async with node() as one:
        await one.read()
        namespace = one.namespaces.add("cni-1")
        one.move(ETH3, namespace)
        await one.read()

        def leave():
            one.move_back(ETH3, namespace)
            one.namespaces.remove(namespace)
            raise raised(errno.ENODEV)

        statistics, namespace.cards.counts["net1"] = namespace.cards.counts["net1"], leave
        one.host.counts["eth3"] = statistics
        one.move_back = lambda link, _space: one.host.add(link, statistics=statistics)
        found = await one.read()
        assert found["eth3"]["receive_bytes_total"] == MLX5["rx_bytes_phy"]
        assert not one.failures


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("eth3", "eth3"),
        (None, "0000:18:00.0"),
        ("eth2", "0000:18:00.0"),  # the name of another device of this host
        ("to leaf 3", "0000:18:00.0"),
        ("a/b", "0000:18:00.0"),
        ("much-longer-than-15", "0000:18:00.0"),
    ],
)
async def test_card_that_was_moved_before_the_start_has_its_alias_as_name_or_its_address(alias, name):
    async with node(cards=(ETH2,)) as one:
        one.namespaces.add("cni-1").cards.add(replace(ETH3, name="net1", alias=alias), statistics=MLX5)
        await one.pods.read()
        assert (await one.read()).keys() == {"eth2", name}


async def test_excluded_card_is_not_read_in_a_namespace_either():
    async with node(exclude=("eth3",)) as one:
        await one.read()
        namespace = one.namespaces.add("cni-1")
        one.move(ETH3, namespace)
        await one.pods.read()
        assert (await one.read()).keys() == {"eth2"}
        assert not namespace.cards.calls


async def test_queueing_discipline_of_a_device_with_the_same_index_is_not_that_of_a_moved_card():
    from exporter.linux.netlink.queueing_disciplines import QueueingDiscipline  # noqa: PLC0415

    async with node() as one:
        one.host.queues = {2: QueueingDiscipline("mq", drops=1), 3: QueueingDiscipline("mq", drops=2)}
        await one.read()
        one.move(ETH3, one.namespaces.add("cni-1"), ifindex=2)
        del one.host.queues[3]
        found = await one.read()
        assert found["eth2"]["transmit_queue_drops_total"] == 1
        assert "transmit_queue_drops_total" not in found["eth3"]


@pytest.mark.parametrize("how", ["hangs", "fails"])
async def test_search_that_hangs_or_fails_costs_the_host_nothing(how, monkeypatch):
    monkeypatch.setattr("exporter.sources.common.moved_devices.FIND_SECONDS", 0.05)
    async with node() as one:
        await one.read()
        namespace = one.namespaces.add("cni-1")
        one.move(ETH3, namespace)
        before = await one.read()

        async def find(**_):
            if how == "hangs":
                await asyncio.sleep(60)
            raise SourceError("unreadable", "no namespaces")

        one.pods.moved_devices = find
        assert await one.read() == before  # what was found before is read where it was


async def test_without_the_source_pods_a_moved_card_is_gone():
    async with node() as one:
        await one.read()
        await one.pods.close()
        one.move(ETH3, one.namespaces.add("cni-1"))
        assert (await one.read()).keys() == {"eth2"}


async def test_model_and_rail_of_a_moved_card_remain(tmp_path):
    """The folder in /sys/class/net is gone, that of the PCI function is not."""
    for name in ("eth2", "eth3"):
        pci_function(tmp_path, name)
    real = tmp_path / "devices"
    real.mkdir()
    for name in ("eth2", "eth3"):
        folder = tmp_path / "class" / "net" / name / "device"
        folder.rename(real / name)
        folder.symlink_to(real / name)
    async with node(sysfs=tmp_path) as one:
        before = await one.read()
        assert (before["eth2"]["info"]["rail"], before["eth3"]["info"]["rail"]) == ("0", "1")
        (tmp_path / "class" / "net" / "eth3" / "device").unlink()
        one.move(ETH3, one.namespaces.add("cni-1"))
        after = await one.read()
        assert after["eth3"]["info"] == before["eth3"]["info"]


def test_names_are_remembered_for_a_bounded_number_of_devices():
    moved = MovedDevices()
    for number in range(MAX_NAMES + 1):
        moved.remember(hardware(f"eth{number}", number, f"{number:04x}:00:00.0"))
    assert moved.host_name(hardware("net1", 1, "0000:00:00.0")) == "0000:00:00.0"
    assert moved.host_name(hardware("net1", 1, "0001:00:00.0")) == "eth1"
