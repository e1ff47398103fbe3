"""Estimates: figures that were computed by hand elsewhere, and the sizes of networks of leaves and spines."""

import pytest

from exporter.meaning.training.estimates import (
    TECHNOLOGIES,
    Clos,
    Sizing,
    clos,
    estimate,
    gradients_of,
    needed_rate,
)
from exporter.meaning.training.step_budget import Plan, budget


@pytest.mark.parametrize(("rate", "network", "share", "hours"), [(110e6, 4.0, 0.036, 115), (11e9, 0.040, 0.79, 5.3)])
def test_bert_base_over_tcp_and_over_rdma(rate, network, share, hours):
    """440 MB of gradients, 150 ms of computing, 100,000 steps."""
    found = estimate(Sizing(440e6, 8, "payload"), rate, 0.150, 100_000)
    assert found.network == pytest.approx(network, rel=0.01)
    assert found.step == pytest.approx(network + 0.150, rel=0.01)
    assert found.compute_share == pytest.approx(share, abs=0.005)
    assert found.training / 3600 == pytest.approx(hours, rel=0.01)


def test_seven_billion_parameters_need_28_gigabytes_a_second_at_one_step_a_second():
    gradients = gradients_of(7e9, "bf16")
    assert gradients == 14e9
    assert needed_rate(Sizing(gradients, 1_000_000, "ring"), 1.0) == pytest.approx(28e9, rel=1e-5)


def test_28_gigabytes_twice_over_3_2_terabits_are_140_milliseconds():
    assert estimate(Sizing(gradients_of(7e9, "fp32"), 8, "tree"), 3.2e12 / 8).network == pytest.approx(0.140)


@pytest.mark.parametrize(("oversubscription", "network", "share"), [(1, 0.558, 0.782), (2, 1.116, 0.642)])
def test_oversubscription_divides_the_rate(oversubscription, network, share):
    """A ring of 256 GPUs over 50 GB/s each, with 2 s of computing."""
    sizing = Sizing(14e9, 256, oversubscription=oversubscription)
    found = estimate(sizing, sizing.share(50e9), 2.0)
    assert found.rate == 50e9 / oversubscription
    assert found.network == pytest.approx(network, rel=0.001)
    assert found.compute_share == pytest.approx(share, abs=0.001)


def test_ranks_share_the_links_of_their_host():
    assert Sizing(1, 8, links=4, ranks_per_host=8).share(50e9) == 25e9


def test_reduction_in_the_network_sends_about_half_of_a_ring():
    """1 GB on 64 ranks."""
    assert Sizing(1e9, 64, "ring").traffic == pytest.approx(1.97e9, rel=0.001)
    assert Sizing(1e9, 64, "sharp").traffic == 1e9


def test_the_gpus_of_a_host_share_the_rings_as_in_the_budget_of_a_step():
    """64 hosts of 8 GPUs, 14 GB, a link of 50 GB/s each: about 2 * 63/64 * 1.75 / 50 = 68.9 ms."""
    sizing = Sizing(14e9, 512, hierarchical=True)
    plan = Plan(7e9, 512, nodes=64, bandwidth=50e9)
    assert estimate(sizing, 50e9).network == budget(plan).expected_network == pytest.approx(0.0689, rel=0.02)


def test_what_is_not_known_is_not_estimated():
    found = estimate(Sizing(440e6, 8), 1e9)
    assert (found.step, found.compute_share, found.training) == (None, None, None)
    assert estimate(Sizing(440e6, 8), 1e9, 0.1).training is None
    assert estimate(Sizing(440e6, 8), 1e9, steps=5).training is None


def test_no_link_reaches_more_than_its_line_rate():
    assert all(0.7 * one.line < one.achievable < one.line for one in TECHNOLOGIES.values())


@pytest.mark.parametrize(
    ("ports", "radix", "oversubscription", "networks", "expected", "switches"),
    [
        (512, 64, 1, 8, Clos(16, 0, 8, 8), 192),  # 512 hosts of 8 adapters, a network for each rail
        (4096, 64, 1, 1, Clos(128, 128, 64), 320),  # the same ports in one network of three levels
        (2048, 64, 1, 1, Clos(64, 0, 32), 96),  # the largest network of two levels: radix² / 2 ports
        (1024, 16, 1, 1, Clos(128, 128, 64), 320),  # the largest fat tree of 16 ports a switch: radix³ / 4
        (64, 64, 1, 1, Clos(1, 0, 0), 1),
        (2048, 64, 2, 1, Clos(49, 0, 17), 66),  # 42 ports to hosts and 22 uplinks of each leaf
    ],
)
def test_switches_of_a_network(ports, radix, oversubscription, networks, expected, switches):
    found = clos(ports, radix, oversubscription, networks)
    assert (found, found.switches) == (expected, switches)


@pytest.mark.parametrize(("radix", "oversubscription", "most"), [(16, 1, 1024), (64, 3, 98304), (2, 1, 2)])
def test_a_network_of_more_than_three_levels_is_refused(radix, oversubscription, most):
    """Pods of radix / 2 leaves, as many as a spine has ports."""
    assert clos(most, radix, oversubscription).leaves <= radix * radix // 2
    with pytest.raises(ValueError, match=f"{most + 1} ports need more than three levels of switches of {radix} ports"):
        clos(most + 1, radix, oversubscription)


@pytest.mark.parametrize("radix", [4, 16, 33, 64])
@pytest.mark.parametrize("oversubscription", [1, 2, 3])
def test_the_levels_of_a_network_offer_enough_ports_to_each_other(radix, oversubscription):
    down = int(radix * oversubscription / (1 + oversubscription))
    for ports in range(radix + 1, radix * down // 2, max(radix * down // 40, 1)):
        found = clos(ports, radix, oversubscription)
        uplinks = found.leaves * (radix - down)
        assert found.leaves * down >= ports
        above = found.aggregation or found.spines
        assert above * (radix // 2 if found.aggregation else radix) >= uplinks
        assert found.spines * radix >= found.aggregation * (radix // 2)
