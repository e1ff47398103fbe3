"""Canonical names of ports, to compare two names."""

import pytest

from exporter.sources.switch.port_names import canonical


@pytest.mark.parametrize(
    "names",
    [
        ("Gi1/0/1", "GigabitEthernet1/0/1", "gig 1/0/1"),
        ("Eth1/1", "Ethernet1/1", "ethernet 1/1", "Et1/1", "Eth1/1 (Po100)"),
        ("Te1/49", "TenGigE1/49", "Ten-GigabitEthernet1/49", "XGE1/49"),
        ("Twe1/0/1", "TwentyFiveGigE1/0/1", "TwentyFiveGigabitEthernet1/0/1", "WGE1/0/1"),
        ("Fo1/0/49", "FortyGigE1/0/49", "FortyGigabitEthernet1/0/49", "FGE1/0/49"),
        ("Hu0/0/0/1", "HundredGigE0/0/0/1", "HundredGigabitEthernet0/0/0/1", "HGE0/0/0/1"),
        ("Po10", "port-channel10", "Port-Channel 10", "PortChannel10"),
        ("mgmt0", "Ma0", "Management0"),
        ("swp1", "SWP1"),
    ],
)
def test_spellings_of_one_port(names):
    assert len({canonical(name) for name in names}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [("Eth1/1", "Eth1/11"), ("Gi1/0/1", "Te1/0/1"), ("swp1", "swp1s0"), ("et-0/0/1", "et-0/0/10"), ("lo", "lo0")],
)
def test_different_ports_stay_apart(one, other):
    assert canonical(one) != canonical(other)


@pytest.mark.parametrize("odd", ["", " ", "()", "(x)", "-", "\udcff1", "a" * 10_000, "1" * 10_000, "x(" * 5_000])
def test_any_text_has_a_canonical_name(odd):
    assert isinstance(canonical(odd), str)
