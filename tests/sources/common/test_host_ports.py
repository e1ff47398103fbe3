"""Tests of what the sources of this host's ports share: selecting hardware ports, numbering rails."""

import pytest

from exporter.linux.netlink.rtnetlink import NetworkLink
from exporter.sources.common.host_ports import (
    MIN_TIME_SPREAD,
    PortPosition,
    RailNumbers,
    is_hardware,
    is_infiniband_port,
    number_rails,
    row_times,
)


def test_rails_number_the_ports_of_each_kind_by_pci_address_then_port():
    ports = [
        PortPosition("slow", "0000:01:00.0", "eth9"),
        PortPosition("fast", "0000:c0:00.0", "mlx5_0", 1),
        PortPosition("fast", "0000:18:00.0", "mlx5_1", 2),
        PortPosition("fast", "0000:18:00.0", "mlx5_1", 1),
        PortPosition("fast", "", "mlx5_10"),
        PortPosition("fast", "", "mlx5_9"),
        PortPosition(None, "0000:02:00.0", "bond0"),
    ]
    assert number_rails(ports, {}) == ["0", "2", "1", "0", "4", "3", ""]


def test_configured_rail_takes_precedence_and_shifts_no_other():
    ports = [
        PortPosition("fast", "0000:18:00.0", "mlx5_0"),
        PortPosition("fast", "0000:40:00.0", "mlx5_1"),
        PortPosition(None, "", "bond0"),
    ]
    assert number_rails(ports, {"mlx5_0": "storage", "bond0": "7"}) == ["storage", "1", "7"]


A, B, C, D = (
    PortPosition("fast", f"0000:{bus}:00.0", f"mlx5_{place}") for place, bus in enumerate(("18", "40", "4f", "5e"))
)


@pytest.mark.parametrize(
    ("polls", "rails"),
    [
        ([(A, B, C), (A, C), (A, C)], ["0", "2"]),
        ([(A, B, C), (B, C), (C,), (A, B, C)], ["0", "1", "2"]),
        ([(A, B, C), (A, B._replace(device="renamed"), C)], ["0", "1", "2"]),
        ([(A, B, C), (A, C), (A, B._replace(device="replaced"), C)], ["0", "1", "2"]),
        ([(A, B, C), (), (C,)], ["2"]),
        ([(A, C), (A, B, C)], ["0", "1", "2"]),
        ([(A, PortPosition("fast", "", "rxe0"), C), (A, C)], ["0", "1"]),
        ([(A, B, C), (A, B._replace(kind=None), C)], ["0", "", "1"]),
        ([(C, B, A), (D, C, A)], ["3", "2", "0"]),
    ],
    ids=["gone", "back", "renamed", "replaced", "all gone", "added", "virtual", "another kind", "one for another"],
)
def test_a_port_that_disappears_does_not_change_the_rails_of_others(polls, rails):
    numbers = RailNumbers({})
    assert [numbers.of(ports) for ports in polls][-1] == rails


def test_configured_rails_are_kept_too():
    numbers = RailNumbers({"mlx5_2": "7"})
    assert numbers.of((A, B, C)) == ["0", "1", "7"]
    assert numbers.of((A, C)) == ["0", "7"]


def test_rows_have_their_own_times_only_if_those_differ():
    assert row_times(5.0, [5.0, 5.0 + MIN_TIME_SPREAD / 2]) is None
    assert row_times(5.0, [5.0, 5.0 + 2 * MIN_TIME_SPREAD]) == [5.0, 5.0 + 2 * MIN_TIME_SPREAD]


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
def test_is_hardware(link, hardware):
    assert is_hardware(link) is hardware


@pytest.mark.parametrize(
    ("link", "port"),
    [
        (NetworkLink(2, "ib0", hardware=32, kind="ipoib", **PCI), True),
        (NetworkLink(2, "ib0", kind="ipoib", **PCI), True),  # a recording without the hardware type
        (NetworkLink(2, "ib0", hardware=32, **PCI), True),
        (NetworkLink(3, "ib0.8001", hardware=32, kind="ipoib", lower=2, **PCI), False),  # a partition
        (NetworkLink(3, "ib0.8001", hardware=32, kind="ipoib", lower=2), False),
        (NetworkLink(3, "ib1", hardware=32, kind="ipoib"), False),  # over rxe, which is no card
        (NetworkLink(3, "bond0", hardware=32, kind="bond", **PCI), False),
        (NetworkLink(3, "eth0", **PCI), False),
    ],
)
def test_is_infiniband_port(link, port):
    assert is_infiniband_port(link) is port
