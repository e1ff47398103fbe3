"""What the sources of this host's ports do alike: what they list, read and leave out, how rails are numbered."""

import pytest

from exporter.core.blocking import HungError, Serial
from exporter.core.source import SourceError
from exporter.linux.netlink.rtnetlink import NetworkLink
from exporter.sources.common.host_ports import (
    APART,
    Seat,
    is_hardware,
    is_infiniband_port,
    listed,
    not_listed,
    number_rails,
    own_times,
)


def test_rails_count_the_ports_of_each_kind_by_pci_address_then_port():
    seats = [
        Seat("slow", "0000:01:00.0", "eth9"),
        Seat("fast", "0000:c0:00.0", "mlx5_0", 1),
        Seat("fast", "0000:18:00.0", "mlx5_1", 2),
        Seat("fast", "0000:18:00.0", "mlx5_1", 1),
        Seat("fast", "", "mlx5_10"),
        Seat("fast", "", "mlx5_9"),
        Seat(None, "0000:02:00.0", "bond0"),
    ]
    assert number_rails(seats, {}) == ["0", "2", "1", "0", "4", "3", ""]


def test_the_configuration_wins_and_moves_no_other_rail():
    seats = [Seat("fast", "0000:18:00.0", "mlx5_0"), Seat("fast", "0000:40:00.0", "mlx5_1"), Seat(None, "", "bond0")]
    assert number_rails(seats, {"mlx5_0": "storage", "bond0": "7"}) == ["storage", "1", "7"]


def test_rows_have_times_of_their_own_only_where_they_were_read_apart():
    assert own_times(5.0, [5.0, 5.0 + APART / 2]) is None
    assert own_times(5.0, [5.0, 5.0 + 2 * APART]) == [5.0, 5.0 + 2 * APART]


PCI = {"parent_dev_name": "0000:17:00.0", "parent_dev_bus_name": "pci"}


@pytest.mark.parametrize(
    ("link", "hardware"),
    [
        (NetworkLink(2, "eth0", **PCI), True),
        (NetworkLink(2, "eth0", phys_port_name="p0", **PCI), True),
        (NetworkLink(2, "eth0", phys_port_name="p0s1", **PCI), True),  # a port that is split
        (NetworkLink(2, "eth0", phys_port_name="pf0", **PCI), True),
        (NetworkLink(2, "eth0", parent_dev_name="mlx5_core.sf.4", parent_dev_bus_name="auxiliary"), True),
        (NetworkLink(2, "rep0", phys_port_name="pf0vf12", **PCI), False),
        (NetworkLink(2, "rep0", phys_port_name="pf1sf88", **PCI), False),
        (NetworkLink(2, "rep0", phys_port_name="c1pf0vf3", **PCI), False),
        (NetworkLink(2, "vlan7", kind="vlan", **PCI), False),
        (NetworkLink(2, "bond0", kind="bond"), False),
        (NetworkLink(2, "ib0", hardware=32, kind="ipoib", **PCI), False),
        (NetworkLink(2, "ib0", hardware=32, **PCI), False),
        (NetworkLink(1, "lo"), False),
    ],
)
def test_what_is_hardware(link, hardware):
    assert is_hardware(link) is hardware


@pytest.mark.parametrize(
    ("link", "port"),
    [
        (NetworkLink(2, "ib0", hardware=32, kind="ipoib", **PCI), True),
        (NetworkLink(2, "ib0", kind="ipoib", **PCI), True),  # a recording that does not tell more
        (NetworkLink(2, "ib0", hardware=32, **PCI), True),
        (NetworkLink(3, "ib0.8001", hardware=32, kind="ipoib", lower=2, **PCI), False),  # a partition
        (NetworkLink(3, "ib0.8001", hardware=32, kind="ipoib", lower=2), False),
        (NetworkLink(3, "ib1", hardware=32, kind="ipoib"), False),  # over rxe, which is no card
        (NetworkLink(3, "bond0", hardware=32, kind="bond", **PCI), False),
        (NetworkLink(3, "eth0", **PCI), False),
    ],
)
def test_what_is_a_port_of_infiniband(link, port):
    assert is_infiniband_port(link) is port


async def test_what_cannot_be_listed_is_told_with_what_was_asked():
    serial = Serial("test", 60.0)

    def refuse():
        raise OSError(1, "Operation not permitted")

    try:
        assert await listed(serial, "/", lambda: [1]) == [1]
        with pytest.raises(SourceError, match=r"^rtnetlink: .*not permitted") as caught:
            await listed(serial, "/", refuse, "rtnetlink")
    finally:
        serial.close()
    assert caught.value.reason == "unreadable"
    hung = not_listed(HungError("/: no answer within 2 s"))
    assert (hung.reason, str(hung)) == ("timeout", "/: no answer within 2 s")
