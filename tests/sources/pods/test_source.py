"""NICs of pods: how they are attached, what is counted of them, and that their namespaces can end."""

import asyncio
import errno
import struct
import threading
import time
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from exporter.core.poller import Poller
from exporter.core.source import SourceError
from exporter.core.table import Kind
from exporter.linux.netlink.messages import attribute
from exporter.sources.pods.metrics import NIC
from exporter.sources.pods.model import PodOwner
from tests.helpers.fake_namespaces import FakeNamespaces, port_with_functions, virtual_function
from tests.helpers.fake_nic_reader import KERNEL, hardware, raised, reasons, values_of

PORT, FUNCTION = "0000:17:00.0", "0000:17:00.2"


@asynccontextmanager
async def opened(namespaces, **options):
    source = namespaces.source(**options)
    try:
        yield source
    finally:
        await source.close()


async def read(namespaces, **options):
    """Read once; return the values by namespace and device, those of infos too, and the reading."""
    async with opened(namespaces, **options) as source:
        reading = await source.read()
        return rows(reading), reading


def rows(reading):
    found = {}
    for key, values in values_of(reading.tables).items():
        place = key[:2] if isinstance(key, tuple) else key
        found.setdefault(place, {}).update(values)
        if isinstance(key, tuple) and len(key) > 2:
            found[place]["owner"] = key[2:]
    return found


@pytest.fixture
def namespaces():
    made = FakeNamespaces()
    made.host.add(hardware("eth2", 2, PORT))
    return made


# --- attachments


@pytest.mark.parametrize(
    ("kind", "attachment"),
    [("macvlan", "macvlan"), ("macvtap", "macvlan"), ("ipvlan", "ipvlan"), ("vlan", "vlan"), ("ipoib", "ipoib")],
)
async def test_child_of_a_host_device_is_attributed_with_its_parent(namespaces, kind, attachment):
    namespaces.add("cni-1").add("net1", 3, kind, carrier=True, operstate="up", stats=KERNEL, mac="aa:00:00:00:00:01")
    found, reading = await read(namespaces)
    values = found["cni-1", "net1"]
    assert values["info"]["attachment"] == attachment
    assert (values["info"]["host_device"], values["info"]["mac"]) == ("eth2", "aa:00:00:00:00:01")
    assert (values["receive_bytes_total"], values["transmit_bytes_total"]) == (101, 102)
    assert (values["receive_packets_total"], values["transmit_packets_total"]) == (103, 104)
    assert (values["receive_discards_total"], values["transmit_discards_total"]) == (107, 108)
    assert values["link_up"] == 1
    assert not reading.failures


async def test_devices_that_are_no_nics_are_left_out(namespaces):
    one = namespaces.add("cni-1")
    for index, kind in enumerate(("", "bridge", "dummy", "tun", "bond"), 2):
        one.add(f"other{index}", index, kind)
    found, _ = await read(namespaces)
    assert not [key for key in found if isinstance(key, tuple)]


async def test_peer_of_a_pair_is_a_host_device_only_if_each_is_the_peer_of_the_other(namespaces):
    namespaces.host.add(hardware("cali1", 8, "", kind="veth", lower=3))
    namespaces.host.add(hardware("cali2", 9, "", kind="veth", lower=4))
    one = namespaces.add("cni-1")
    one.add("eth0", 3, "veth", lower=8)
    one.add("eth1", 5, "veth", lower=9)
    found, _ = await read(namespaces)
    assert found["cni-1", "eth0"]["info"]["host_device"] == "cali1"
    assert "host_device" not in {name for name, text in found["cni-1", "eth1"]["info"].items() if text}


async def test_parent_in_another_namespace_is_not_taken_for_a_host_device(namespaces):
    one = namespaces.add("cni-1")
    inner = one.add("net1", 3, "macvlan")
    inner.lower_namespace = 5
    same = one.add("net2", 4, "macvlan")
    same.lower_namespace = None
    found, _ = await read(namespaces)
    assert {found["cni-1", name]["info"]["host_device"] for name in ("net1", "net2")} == {""}


async def test_ipoib_child_has_its_partition_and_shares_the_rdma_device(tmp_path):
    namespaces = FakeNamespaces()
    namespaces.host.add(hardware("ib0", 2, PORT, hardware=32))
    port_with_functions(tmp_path, PORT, rdma="mlx5_0")
    namespaces.add("cni-1").add("net1", 3, "ipoib", partition=0x8001)
    found, _ = await read(namespaces, sysfs=tmp_path)
    info = found["cni-1", "net1"]["info"]
    assert (info["attachment"], info["pkey"], info["host_device"]) == ("ipoib", "0x8001", "ib0")
    assert (info["rdma_device"], info["rdma"]) == ("mlx5_0", "shared")


async def test_a_card_has_its_info_here_and_its_counters_in_the_source_nic(namespaces):
    namespaces.add("cni-1").cards.add(hardware("net1", 3, "0000:18:00.0", stats=KERNEL, alias="eth3"))
    found, _ = await read(namespaces)
    values = found["cni-1", "net1"]
    assert (values["info"]["attachment"], values["info"]["host_device"]) == ("host-device", "eth3")
    assert (values["info"]["pci"], values["info"]["traffic"]) == ("0000:18:00.0", "")
    assert not values.keys() & NIC.metrics.keys()


async def test_a_card_has_no_name_that_another_has(namespaces):
    """A pod that may administer its devices can give a card any alias; the source nic has it under its address too."""
    cards = namespaces.add("cni-1").cards
    cards.add(hardware("net1", 3, "0000:18:00.0", alias="eth2"))
    cards.add(hardware("net2", 4, "0000:19:00.0", alias="eth3"))
    cards.add(hardware("net3", 5, "0000:1a:00.0", alias="eth3"))
    found, _ = await read(namespaces)
    devices = {name: found["cni-1", name]["info"]["host_device"] for name in ("net1", "net2", "net3")}
    assert devices == {"net1": "0000:18:00.0", "net2": "eth3", "net3": "0000:1a:00.0"}


async def test_pods_of_the_host_network_are_listed_without_a_device(namespaces, tmp_path, monkeypatch):
    port_with_functions(tmp_path, PORT, rdma="mlx5_0")
    async with opened(namespaces, sysfs=tmp_path) as source:
        pods = (PodOwner("kube-system", "one"), PodOwner("kube-system", "two"), PodOwner("", "", "0-1"))
        asked = []
        monkeypatch.setattr(source._identities, "pods_in", lambda ref: asked.append(ref) or pods)
        reading = await source.read()
    found = values_of(reading.tables)
    infos = {key: row["info"] for key, row in found.items() if len(key) == 5}
    assert infos.keys() == {("", "", "kube-system", name, "") for name in ("one", "two")}
    assert {(one["attachment"], one["rdma"], one["host_device"]) for one in infos.values()} == {
        ("host-network", "shared", "")
    }
    assert asked[0].path == "/proc/self/ns/net"


async def test_only_selected_devices_are_exported(namespaces):
    one = namespaces.add("cni-1")
    one.add("net1", 3)
    one.add("eth0", 4, "veth")
    found, _ = await read(namespaces, include=("net*",))
    assert [key for key in found if isinstance(key, tuple)] == [("cni-1", "net1")]


async def test_owner_of_a_namespace_is_in_its_infos(namespaces, monkeypatch):
    namespaces.add("cni-1").add("net1", 3)
    namespaces.add("cni-2").add("net1", 3)
    async with opened(namespaces) as source:
        owners = {1000: PodOwner("train", "job-0", "uid", "main")}
        monkeypatch.setattr(source._identities, "owner", lambda ref, _devices: owners.get(ref.inode))
        found = rows(await source.read())
    assert found["cni-1", "net1"]["owner"] == ("train", "job-0", "main")
    assert found["cni-2", "net1"]["owner"] == ("", "", "")


async def test_owner_lookup_that_takes_long_delays_no_read(namespaces, monkeypatch):
    monkeypatch.setattr("exporter.sources.pods.source.OWNERS_WAIT", 0.01)
    namespaces.add("cni-1").add("net1", 3)
    async with opened(namespaces) as source:
        hang = asyncio.Event()

        async def refresh():
            await hang.wait()
            return []

        monkeypatch.setattr(source._identities, "refresh", refresh)
        assert ("cni-1", "net1") in rows(await source.read())
        hang.set()
        assert ("cni-1", "net1") in rows(await source.read())


async def test_a_read_after_one_that_failed_waits_for_the_same_lookup_of_owners(namespaces, monkeypatch):
    namespaces.add("cni-1").add("net1", 3)
    async with opened(namespaces) as source:
        begun, go = [], asyncio.Event()

        async def refresh():
            begun.append(1)
            await go.wait()
            return []

        monkeypatch.setattr(source._identities, "refresh", refresh)
        monkeypatch.setattr(source._all, "_list_all", lambda: (_ for _ in ()).throw(raised(errno.EIO)))
        with pytest.raises(SourceError):
            await source.read()
        monkeypatch.setattr(source._all, "_list_all", namespaces.list_all)
        asyncio.get_running_loop().call_later(0.05, go.set)
        assert ("cni-1", "net1") in rows(await source.read())
        assert len(begun) == 1


# --- virtual functions


def function_answer(*functions):
    """Make the answer of a port: number, MAC and counters by number of IFLA_VF_STATS of each of its functions."""
    entries = []
    for number, mac, counters in functions:
        stats = b"".join(attribute(kind, struct.pack("=Q", value)) for kind, value in counters.items())
        # struct ifla_vf_mac: the number, and 32 bytes of address
        fields = attribute(1, struct.pack("=I32s", number, bytes.fromhex(mac))) + attribute(8, stats)
        entries.append(attribute(1, fields))
    return (
        struct.pack("=BxHiII", 0, 1, 2, 0, 0) + attribute(21, struct.pack("=I", 2)) + attribute(22, b"".join(entries))
    )


def request_for(ifindex):
    """Return the request of iproute2 for one link with RTEXT_FILTER_VF, without its header."""
    return struct.pack("=BxHiII", 0, 0, ifindex, 0, 0) + struct.pack("=HHI", 8, 29, 1)


COUNTERS = {0: 11, 1: 12, 2: 1100, 3: 1200, 4: 1, 5: 2, 7: 13, 8: 14}


def with_function(namespaces, sysfs, driver="mlx5_core"):
    port_with_functions(sysfs, PORT, driver, rdma="mlx5_0")
    virtual_function(sysfs, FUNCTION, PORT, 1, rdma="mlx5_3")
    namespaces.add("cni-1").cards.add(hardware("net1", 3, FUNCTION, stats=KERNEL))
    answer = function_answer((0, "000000000000", {}), (1, "0a0000000001", COUNTERS))
    namespaces.function_answers[request_for(2)] = answer


async def test_traffic_of_a_virtual_function_is_that_which_its_port_counts(namespaces, tmp_path):
    with_function(namespaces, tmp_path)
    found, reading = await read(namespaces, sysfs=tmp_path)
    values = found["cni-1", "net1"]
    assert (values["receive_bytes_total"], values["transmit_bytes_total"]) == (1100, 1200)
    assert (values["receive_packets_total"], values["transmit_packets_total"]) == (11, 12)
    assert (values["receive_discards_total"], values["transmit_discards_total"]) == (13, 14)
    info = values["info"]
    assert (info["attachment"], info["host_device"], info["function"]) == ("sr-iov", "eth2", "1")
    assert (info["pci"], info["rdma_device"], info["rdma"]) == (FUNCTION, "mlx5_3", "own")
    assert info["traffic"] == "function"
    assert not reading.failures


async def test_traffic_of_a_virtual_function_whose_driver_counts_none_is_that_of_the_kernel(namespaces, tmp_path):
    with_function(namespaces, tmp_path, driver="bnxt_en")
    found, _ = await read(namespaces, sysfs=tmp_path)
    values = found["cni-1", "net1"]
    assert (values["receive_bytes_total"], values["info"]["traffic"]) == (101, "kernel")


async def test_port_without_functions_in_use_is_exhausted_only_when_all_are_in_pods(namespaces, tmp_path):
    with_function(namespaces, tmp_path)
    found, _ = await read(namespaces, sysfs=tmp_path)
    assert found["eth2"] == {
        "virtual_functions": 2,
        "virtual_functions_limit": 8,
        "virtual_functions_in_pods": 1,
    }


async def test_counters_that_a_port_does_not_return_are_absent_and_not_those_of_the_kernel(namespaces, tmp_path):
    """They would look like a reset, and as an increase by all bytes when the port returns its own again."""
    with_function(namespaces, tmp_path)
    async with opened(namespaces, sysfs=tmp_path) as source:
        assert rows(await source.read())["cni-1", "net1"]["receive_bytes_total"] == 1100
        namespaces.function_answers.clear()
        namespaces.request = lambda _kind, _body: (_ for _ in ()).throw(raised(errno.EBUSY))
        reading = await source.read()
    values = rows(reading)["cni-1", "net1"]
    assert values.get("receive_bytes_total") is None
    assert values.get("transmit_packets_total") is None
    assert values["receive_errors_total"] == KERNEL["rx_errors"]
    assert values["info"]["traffic"] == "function"
    assert reasons(reading) == [("eth2", "ebusy")]


async def test_port_that_goes_while_it_is_looked_at_loses_no_other_fact(namespaces, tmp_path, monkeypatch):
    with_function(namespaces, tmp_path)
    namespaces.add("cni-2").add("net1", 3)

    def iterdir(folder):
        if folder.name == PORT:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        return original(folder)

    original = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", iterdir)
    found, reading = await read(namespaces, sysfs=tmp_path)
    assert found["cni-2", "net1"]["info"]["host_device"] == "eth2"
    assert not reading.failures


async def test_port_of_a_function_is_no_representor(namespaces, tmp_path):
    """In the mode switchdev the representors have the same parent, and may be listed before the port."""
    port = namespaces.host.devices.pop("eth2")
    for number in range(2):
        namespaces.host.add(hardware(f"eth2_{number}", 258 + number, PORT, phys_port_name=f"pf0vf{number}"))
    namespaces.host.add(port)
    with_function(namespaces, tmp_path)
    found, _ = await read(namespaces, sysfs=tmp_path)
    assert found["cni-1", "net1"]["info"]["host_device"] == "eth2"
    assert found["cni-1", "net1"]["receive_bytes_total"] == 1100
    assert "eth2" in found
    assert "eth2_0" not in found


async def test_port_of_a_function_may_be_an_infiniband_port(namespaces, tmp_path):
    """Linux sets the kind of IP over InfiniBand for the port itself too, not for its partitions only."""
    namespaces.host.devices.clear()
    namespaces.host.add(hardware("ib0", 2, PORT, hardware=32, kind="ipoib"))
    with_function(namespaces, tmp_path)
    found, _ = await read(namespaces, sysfs=tmp_path)
    assert found["cni-1", "net1"]["info"]["host_device"] == "ib0"
    assert found["ib0"]["virtual_functions_in_pods"] == 1


async def test_port_whose_functions_cannot_be_read_loses_only_them(namespaces, tmp_path):
    with_function(namespaces, tmp_path)
    namespaces.all[next(iter(namespaces.all))].add("net2", 4)
    namespaces.request = lambda _kind, _body: (_ for _ in ()).throw(raised(errno.EMSGSIZE))
    found, reading = await read(namespaces, sysfs=tmp_path)
    assert reasons(reading) == [("eth2", "emsgsize")]
    assert ("cni-1", "net2") in found


# --- namespaces that come and go


async def test_sockets_of_a_namespace_are_opened_once_and_closed_when_it_has_gone(namespaces):
    one, other = namespaces.add("cni-1"), namespaces.add("cni-2")
    async with opened(namespaces) as source:
        for _ in range(3):
            await source.read()
        assert (one.opened, one.closed, other.opened) == (1, 0, 1)
        namespaces.remove(one)
        assert await source._all.close_gone()
        assert (one.closed, other.closed) == (1, 0)
        assert not await source._all.close_gone()
    assert other.closed == 1


@pytest.mark.parametrize("inode", [5, 6])
async def test_namespace_that_replaces_another_of_its_name_is_another(namespaces, inode):
    """The kernel may give it the inode that the other one had."""
    one = namespaces.add("cni-1", 5)
    one.add("net1", 3)
    async with opened(namespaces) as source:
        first = await source.read()
        namespaces.remove(one)
        await source._all.close_gone()
        del namespaces.host.devices["eth2"]
        namespaces.host.add(hardware("eth9", 9))
        namespaces.add("cni-1", inode).add("net1", 3, lower=9)
        second = await source.read()
    assert one.closed == 1
    assert rows(second)["cni-1", "net1"]["info"]["host_device"] == "eth9"
    assert epochs(first) != epochs(second)


def epochs(reading):
    return [table.epochs for table in reading.tables if table.schema is NIC]


async def test_two_namespaces_of_one_name_are_told_apart_by_their_numbers(namespaces):
    one, other = namespaces.add("same", 5), namespaces.add("same", 6)
    one.add("net1", 3)
    other.add("net1", 3)
    found, _ = await read(namespaces)
    assert {key for key in found if isinstance(key, tuple)} == {("same", "net1"), ("net:[6]", "net1")}


async def test_namespace_that_fails_loses_only_itself(namespaces):
    broken, fine = namespaces.add("cni-1"), namespaces.add("cni-2")
    broken.error = raised(errno.ENOBUFS)
    fine.add("net1", 3)
    found, reading = await read(namespaces)
    assert [key for key in found if isinstance(key, tuple)] == [("cni-2", "net1")]
    assert reasons(reading) == [("cni-1", "enobufs")]


async def test_two_devices_of_one_name_lose_no_other(namespaces):
    """A pod may rename its devices during a dump, and may name them so that two look alike as text."""
    one = namespaces.add("cni-1")
    one.add(r"\xff", 3)
    one.add(r"\xff", 4)
    namespaces.add("cni-2").add("net1", 3)
    found, _ = await read(namespaces)
    assert {key for key in found if isinstance(key, tuple)} == {("cni-1", r"\xff"), ("cni-2", "net1")}


async def test_of_many_devices_in_a_namespace_the_cards_and_the_oldest_are_read(namespaces):
    one = namespaces.add("cni-1")
    for index in range(70, 2, -1):
        one.add(f"m{index}", index)
    one.cards.add(hardware("net1", 99, "0000:18:00.0"))
    found, reading = await read(namespaces)
    devices = {key[1] for key in found if isinstance(key, tuple)}
    assert devices == {"net1", *(f"m{index}" for index in range(3, 66))}
    assert reasons(reading) == [("cni-1", "too_many_nics")]


async def test_of_too_many_nics_those_of_namespaces_with_few_have_series(namespaces, monkeypatch):
    monkeypatch.setattr("exporter.sources.pods.tables.MAX_NICS", 4)
    for number, nics in enumerate((3, 1, 2)):
        one = namespaces.add(f"cni-{number}")
        for index in range(nics):
            one.add(f"net{index}", index + 3)
    found, reading = await read(namespaces)
    assert [key for key in found if isinstance(key, tuple)] == [("cni-1", "net0"), ("cni-2", "net0"), ("cni-2", "net1")]
    assert reasons(reading) == [("", "too_many_nics")]


async def test_without_the_right_to_enter_there_is_one_failure_and_no_series(namespaces):
    for number in range(3):
        one = namespaces.add(f"cni-{number}")
        one.add("net1", 3)
        one.entry_error = raised(errno.EPERM)
    found, reading = await read(namespaces)
    assert not [key for key in found if isinstance(key, tuple)]
    assert reasons(reading) == [("", "eperm")]
    assert "CAP_SYS_ADMIN" in reading.failures[0].detail


async def test_namespace_that_ends_before_it_is_entered_is_no_failure(namespaces):
    one = namespaces.add("cni-1")
    one.entry_error = raised(errno.ENOENT)
    _, reading = await read(namespaces)
    assert not reading.failures


async def test_a_namespace_is_not_closed_under_a_running_call(namespaces):
    one = namespaces.add("cni-1")
    async with opened(namespaces) as source:
        await source.read()
        (namespace,) = source._all.namespaces.values()
        with namespace.links.use():
            namespaces.remove(one)
            await source._all.close_gone()
            assert one.closed == 0
        assert one.closed == 1
        with pytest.raises(OSError, match="No such device"), namespace.links.use():
            pass


async def test_a_change_of_namespaces_requests_a_read(namespaces, monkeypatch):
    monkeypatch.setattr("exporter.sources.pods.source.SETTLE_SECONDS", 0.0)
    monkeypatch.setattr("exporter.sources.pods.source.MIN_READ_GAP", 0.0)
    async with opened(namespaces) as source:
        await source.read()
        source._on_mounts()
        await source._look
        await asyncio.sleep(0.01)
        assert not source.changed.is_set()  # some other mount
        namespaces.add("cni-1")
        source._on_mounts()
        await asyncio.wait_for(source.changed.wait(), 5)


async def test_a_namespace_that_ends_during_a_listing_is_closed_by_another(namespaces, monkeypatch):
    monkeypatch.setattr("exporter.sources.pods.source.SETTLE_SECONDS", 0.0)
    one = namespaces.add("cni-1")
    async with opened(namespaces) as source:
        await source.read()
        loop, changed = asyncio.get_running_loop(), threading.Event()

        def change():
            namespaces.remove(one)
            source._on_mounts()
            changed.set()

        def list_all():
            listing = namespaces.list_all()
            if listing.namespaces:
                loop.call_soon_threadsafe(change)
                assert changed.wait(5)
            return listing

        monkeypatch.setattr(source._all, "_list_all", list_all)
        source._on_mounts()
        await source._look
        assert one.closed == 1


async def test_a_namespace_that_cannot_be_entered_requests_one_read_only(namespaces, monkeypatch):
    monkeypatch.setattr("exporter.sources.pods.source.SETTLE_SECONDS", 0.0)
    monkeypatch.setattr("exporter.sources.pods.source.MIN_READ_GAP", 0.0)
    async with opened(namespaces) as source:
        namespaces.add("cni-1").entry_error = raised(errno.EPERM)
        await source.read()
        source._on_mounts()
        await source._look
        await asyncio.sleep(0.01)
        assert not source.changed.is_set()


async def test_listings_take_a_small_share_of_the_time_while_mounts_change_all_the_time(namespaces, monkeypatch):
    monkeypatch.setattr("exporter.sources.pods.source.SETTLE_SECONDS", 0.0)

    def list_all():
        time.sleep(0.02)
        return namespaces.list_all()

    async with opened(namespaces) as source:
        monkeypatch.setattr(source._all, "_list_all", list_all)
        await source.read()
        before, end = namespaces.listings, time.monotonic() + 0.5
        while time.monotonic() < end:
            source._on_mounts()
            await asyncio.sleep(0.005)
        assert namespaces.listings - before <= 3  # 0.2 s apart


# --- series


async def test_a_nic_of_a_pod_has_at_most_ten_series_by_default(namespaces, tmp_path):
    from exporter.core.definition import ExpectKeys, SourceSteps  # noqa: PLC0415
    from exporter.daemon.pipeline import Expectation, steps  # noqa: PLC0415

    assert ExpectKeys().speed == ""
    with_function(namespaces, tmp_path)
    one = namespaces.add("cni-2")
    one.add("net1", 3, carrier=True, operstate="up", stats=KERNEL)
    async with opened(namespaces, sysfs=tmp_path) as source:
        poller = Poller(source, steps(Expectation(), SourceSteps()))
        await poller.poll()
        await poller.poll()
        series = {}
        for table in poller.tables:
            for column in table.columns.values():
                for key, value in zip(table.rows.keys, column.values, strict=True):
                    if value is not None and len(key) > 1:
                        series.setdefault(key[:2], []).append(column.metric.name)
    assert series.keys() == {("cni-1", "net1"), ("cni-2", "net1")}
    for names in series.values():
        assert len(set(names)) == len(names) == 10
        assert "fabric_pod_nic_receive_bytes_per_second" in names
        assert "fabric_pod_nic_info" in names


def test_every_counter_names_where_it_comes_from():
    counters = [one for one in NIC.metrics.values() if one.kind is Kind.COUNTER]
    assert len(counters) == 8
    assert all("rtnl_link_stats64" in one.help for one in counters)
