"""Expected RDMA ports of a host, also when all ports are gone."""

import pytest

from exporter.core import vocabulary
from exporter.core.table import Column, Rows, Table
from exporter.meaning.ports import expectations, links

PORTS = vocabulary.schema(
    "fabric_rdma_",
    ("device", "port"),
    ["link_up", vocabulary.SPEED, vocabulary.EXPECTED_SPEED, links.DEGRADED],
)


def ports(*rows, part="mlx5_core", expected=None, schema=PORTS):
    """Pass a table of ports, from (up, speed), through `links` and `expectations`."""
    keys = [(f"{part}_{place}", "1") for place in range(len(rows))]
    columns = {"link_up": [up for up, _ in rows], vocabulary.SPEED: [speed for _, speed in rows]}
    made = {ending: Column(schema.metrics[ending], values) for ending, values in columns.items()}
    table = Table(schema, Rows(schema.labels, keys, {}), made, 5.0, kinds=["same"] * len(rows), part=part)
    _, (judged,) = links.step(expected, None, None, table)
    return expectations.step(None, judged)[1]


def summed_ports(expected, *tables):
    """Return the other tables, and (expected, ready)."""
    *others, counted = expectations.summed(expected, tables, 7.0)
    assert counted.time == 7.0
    assert counted.rows.texts == ("",)
    return others, (counted.values("ports_expected")[0], counted.values("ports_ready")[0])


@pytest.mark.parametrize(
    ("rows", "options", "ready"),
    [
        ([(1, 50e9)] * 8, {}, 8),
        ([(1, 50e9)] * 7 + [(0, None)], {}, 7),
        ([(1, 50e9)] * 7 + [(1, 25e9)], {}, 7),  # slower than its siblings
        ([(1, 25e9)] * 8, {"expected": 50e9}, 0),
        ([(1, 50e9)] * 8, {"expected": 25e9}, 8),
        ([(1, 50e9), (None, None)], {}, 1),  # unknown whether it is up
        ([(1, 50e9), (1, None)], {}, 2),  # up at unknown speed: not known to be slow
        ([(0, None)] * 8, {}, 0),
    ],
)
def test_ready_is_up_and_not_slower_than_expected(rows, options, ready):
    assert summed_ports(8, *ports(*rows, **options))[1] == (8, ready)


def test_no_port_is_ready_if_all_ports_are_gone():
    assert summed_ports(8) == ([], (8, 0))


def test_ports_of_several_drivers_are_counted_together():
    first, second = ports((1, 50e9), (1, 50e9)), ports((1, 25e9), (0, None), part="bnxt_en")
    others, counts = summed_ports(4, *first, *second)
    assert counts == (4, 3)
    assert others == [first[0], second[0]]


def test_more_ports_than_expected_are_counted_as_they_are():
    assert summed_ports(0, *ports((1, 50e9)))[1] == (0, 1)


def test_other_tables_pass():
    others = vocabulary.schema("fabric_nic_", ("device", "port"), list(PORTS.metrics))
    (table,) = ports((1, 50e9), schema=others)
    assert summed_ports(1, table) == ([table], (1, 0))
    assert expectations.outputs(others) == []
    assert [one.name for one in expectations.outputs(PORTS)] == [
        "fabric_rdma_ports_expected",
        "fabric_rdma_ports_ready",
    ]
