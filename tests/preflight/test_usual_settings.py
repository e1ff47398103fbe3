"""Usual values of settings, and hosts that have others."""

import yaml

from exporter.preflight.fleet import MIN_HOSTS
from exporter.preflight.settings import Setting
from exporter.preflight.usual_settings import USUAL_SHARE, unusual_settings, usual_settings
from tests.helpers.paths import ROOT


def mtu(value, of="mlx5"):
    return Setting(of, "MTU", value)


def compared(**hosts):
    usual = usual_settings(hosts)
    return usual, list(unusual_settings(hosts, usual))


def test_the_host_that_differs_is_named_with_its_value():
    usual, unusual = compared(a=[mtu("9000")], b=[mtu("9000")], c=[mtu("1500")], d=[mtu("9000")])
    assert usual == {mtu("9000"): 0.75}
    assert unusual == [("c", mtu("1500"))]


def test_two_hosts_or_a_half_have_no_usual_value():
    assert compared(a=[mtu("9000")], b=[mtu("1500")]) == ({}, [])
    assert compared(a=[mtu("9000")], b=[mtu("9000")], c=[mtu("1500")], d=[mtu("1500")]) == ({}, [])


def test_a_host_without_the_setting_neither_counts_nor_differs():
    usual, unusual = compared(a=[mtu("9000")], b=[mtu("9000")], c=[mtu("1500")], d=[], e=[])
    assert usual == {mtu("9000"): 2 / 3}
    assert unusual == [("c", mtu("1500"))]


def test_classes_are_compared_apart():
    assert compared(a=[mtu("9000")], b=[mtu("9000")], c=[mtu("1500", "mlx4")]) == ({}, [])


def test_a_host_whose_ports_differ_is_named_with_the_unusual_value_alone():
    """It has the usual value too, and twice the same value counts once."""
    usual, unusual = compared(a=[mtu("9000")] * 2, b=[mtu("9000")], c=[mtu("9000"), mtu("1500")])
    assert usual == {mtu("9000"): 1.0}
    assert unusual == [("c", mtu("1500"))]


def test_the_limits_are_those_of_the_rules_of_the_alerts():
    thresholds = yaml.safe_load((ROOT / "alerts" / "thresholds.yml").read_text())["setting_differs"]
    assert (thresholds["hosts"], thresholds["share"]) == (MIN_HOSTS, USUAL_SHARE)
