"""The ibsim helper, checked with Debian's InfiniBand programs."""

import pytest

from tests.helpers import ibsim


@pytest.fixture(autouse=True)
def _programs(program):
    for name in ("ibsim", "opensm", "ibnetdiscover", "perfquery"):
        program(name)


def test_ibnetdiscover_finds_the_links_of_the_net_file():
    net = ibsim.fat_tree()
    with ibsim.simulator(net) as fabric:
        assert fabric.discover().named_links() == ibsim.links_of_net(net)
        assert len(ibsim.links_of_net(net)) == 6


def test_two_fabrics_run_side_by_side():
    with ibsim.simulator(ibsim.fat_tree()) as small, ibsim.simulator(ibsim.fat_tree(3, 4, 2)) as large:
        for fabric in (small, large, small):
            assert fabric.discover().named_links() == ibsim.links_of_net(fabric.net)


def test_a_counter_that_was_set_is_read_by_perfquery():
    with ibsim.simulator(ibsim.fat_tree()) as fabric:
        fabric.opensm()
        lid = fabric.discover().lid("Leaf1")
        fabric.set_counter("Leaf1", 4, "PortCounters.SymbolErrorCounter", 7)
        fabric.set_counter("Leaf1", 4, "PortCountersExtended.PortXmitData", 70_000_000_000)
        assert ibsim.counters_of_perfquery(fabric.run("perfquery", lid, 4))["SymbolErrorCounter"] == 7
        assert ibsim.counters_of_perfquery(fabric.run("perfquery", "-x", lid, 4))["PortXmitData"] == 70_000_000_000


def test_an_unplugged_node_is_missing_until_it_is_plugged_in_again():
    with ibsim.simulator(ibsim.fat_tree()) as fabric:
        fabric.unlink("H3")
        rest = {link for link in ibsim.links_of_net(fabric.net) if ("H3", 1) not in link}
        assert fabric.discover().named_links() == rest
        fabric.relink("H3")
        assert fabric.discover().named_links() == ibsim.links_of_net(fabric.net)


def test_a_command_rejected_by_the_console_is_an_error():
    with ibsim.simulator(ibsim.fat_tree()) as fabric, pytest.raises(AssertionError, match="not found"):
        fabric.unlink("H99")
