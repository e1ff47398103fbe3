"""Oversubscription of leaves: Ethernet's are tested with the source of switches; here those of InfiniBand."""

import pytest

from exporter.core.table import Column, RowKeeper, Table
from exporter.meaning.ports import oversubscription, rates
from exporter.sources.ibfabric.metrics import PORTS

GUID = "0000000000200000"
HDR = 25e9
"""Bytes per second of 200 Gb/s."""


def ports(kinds, *, ups=None, sent=None, time=0.0):
    """Return the ports of one node, in order."""
    names = [(GUID, str(number)) for number in range(1, len(kinds) + 1)]
    ups = ups or [1] * len(kinds)
    values = {"link_up": ups, "link_speed_bytes_per_second": [HDR if up else None for up in ups]}
    values |= {f"{way}_bytes_total": sent or [0] * len(kinds) for way in ("receive", "transmit")}
    columns = {ending: Column(PORTS.metrics[ending], one) for ending, one in values.items()}
    return Table(PORTS, RowKeeper(PORTS.labels).rows(names), columns, time, kinds=kinds, part=GUID)


def of_switch(table, state=None):
    """Return the values of the switch by the name of the metric, from a table of its ports."""
    _, tables = oversubscription.step(state, table)
    return {one.metric.name: one.values[0] for made in tables[1:] for one in made.columns.values()}


@pytest.mark.parametrize(
    ("kinds", "ups", "ratio"),
    [
        (["host"] * 4 + ["uplink"] * 4, None, 1.0),
        (["host"] * 4 + ["uplink"] * 4, [1] * 5 + [0] * 3, 4.0),
        (["host"] * 6 + ["uplink"] * 2, None, 3.0),
        (["host", "uplink", "peer", None], None, 1.0),
        (["uplink", "downlink"], None, None),  # a spine of three levels
        (["downlink"] * 4, None, None),
        ([None], None, None),  # an adapter
        (["host", "uplink"], [1, 0], None),
    ],
)
def test_an_infiniband_leaf_has_the_speed_of_its_hosts_over_that_of_its_uplinks(kinds, ups, ratio):
    assert of_switch(ports(kinds, ups=ups)).get("fabric_ib_oversubscription_ratio") == ratio


def test_all_uplinks_together_have_one_utilization():
    """Two uplinks of 25 GB/s send 20 and 10 GB/s: three fifths of both."""
    kinds = ["host", "host", "uplink", "uplink"]
    state, _ = rates.step(None, ports(kinds))
    _, (table, *_) = rates.step(state, ports(kinds, sent=[0, 0, 400 * 10**9, 200 * 10**9], time=20.0))
    found = of_switch(table)
    assert found["fabric_ib_uplink_transmit_utilization_ratio"] == pytest.approx(0.6)
    assert found["fabric_ib_uplink_receive_utilization_ratio"] == pytest.approx(0.6)


def test_its_row_is_the_switch():
    _, (_, made) = oversubscription.step(None, ports(["host", "uplink"]))
    assert (made.schema.labels, list(made.rows.keys), made.part) == (("guid",), [(GUID,)], GUID)
