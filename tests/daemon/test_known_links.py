"""Links of LLDP, current ones and those that are gone."""

import pytest

from exporter.daemon.known_links import KEPT_SECONDS, KnownLinks
from exporter.meaning.ports.states import PortLocation
from exporter.sources.switch.links import LinkTable, PortLink

LEAF, HOST = PortLocation("leaf-1", "Eth1/1"), PortLocation("gpu-1", "ens0")


def table(*ports, switch="leaf-1"):
    """Return the table of a switch that has hosts at some of its ports."""
    found = [PortLink(port, host, device, "host", "", "") for port, host, device in ports]
    return LinkTable().make(found, 0.0, switch=switch)


TO_HOST, TO_OTHER = table(("Eth1/1", "gpu-1", "ens0")), table(("Eth1/2", "gpu-2", "ens0"))


@pytest.fixture
def known():
    made = KnownLinks()
    made.update([TO_HOST], 0.0)
    return made


def test_a_link_that_is_there(known):
    assert known.links() == [(LEAF, HOST)]
    assert known.switches() == {"leaf-1"}


@pytest.mark.parametrize("tables", [[], [TO_OTHER]], ids=["the switch is silent", "its other links are there"])
def test_a_link_that_is_gone_is_known_for_a_day(known, tables):
    for now, is_known in ((10.0, True), (KEPT_SECONDS, True), (KEPT_SECONDS + 11.0, False)):
        known.update(tables, now)
        assert ((LEAF, HOST) in known.links()) is is_known, now


@pytest.mark.parametrize(
    "elsewhere",
    [
        table(("Eth1/1", "gpu-9", "ens0")),
        table(("Eth1/5", "gpu-1", "ens0")),
        table(("E1", "gpu-1", "ens0"), switch="x"),
    ],
    ids=["the port has another peer", "the peer is at another port", "the peer is at another switch"],
)
def test_a_link_that_is_gone_and_was_moved_is_not(known, elsewhere):
    known.update([elsewhere], 10.0)
    assert (LEAF, HOST) not in known.links()


def test_a_link_that_is_back_is_there_once(known):
    known.update([], 10.0)
    known.update([TO_HOST], 20.0)
    assert known.links() == [(LEAF, HOST)]
