"""Expected speeds and degraded links."""

import pytest

from exporter.core import vocabulary
from exporter.core.table import Column, Rows, Table
from exporter.meaning.ports import links

SCHEMA = vocabulary.schema(
    "fabric_test_",
    ("device",),
    [vocabulary.SPEED, vocabulary.MAX_SPEED, vocabulary.EXPECTED_SPEED, links.DEGRADED],
)


def judge(speeds, *, expected=None, of_carriers=None, kinds="same", most=None, schema=SCHEMA):
    rows = Rows(("device",), [(str(place),) for place in range(len(speeds))], {})
    kinds = ["same"] * len(speeds) if kinds == "same" else kinds
    columns = {vocabulary.SPEED: speeds} if most is None else {vocabulary.SPEED: speeds, vocabulary.MAX_SPEED: most}
    made = {ending: Column(schema.metrics[ending], values) for ending, values in columns.items()}
    table = Table(schema, rows, made, 0.0, kinds=kinds)
    state, (out,) = links.step(expected, of_carriers, None, table)
    assert state is None
    return out.values(vocabulary.EXPECTED_SPEED), out.values(links.DEGRADED)


@pytest.mark.parametrize(
    ("speeds", "options", "expected", "degraded"),
    [
        ([50e9, 50e9, 25e9], {}, [50e9] * 3, [0, 0, 1]),
        ([50e9, None, 50e9], {}, [50e9] * 3, [0, None, 0]),
        ([25e9], {}, [None], [None]),
        ([25e9, None], {}, [None] * 2, [None] * 2),
        ([50e9, 25e9], {"expected": 100e9}, [100e9] * 2, [1, 1]),
        ([25e9], {"expected": 25e9}, [25e9], [0]),
        ([100e9, None], {"expected": 25e9}, [25e9] * 2, [0, None]),
        (
            [50e9, 25e9, 50e9, 25e9, 12e9, 12e9],
            {"kinds": ["ib", "eth"] * 3},
            [50e9, 25e9] * 3,
            [0, 0, 0, 0, 1, 1],
        ),
        # Two that do not agree are no expectation, nor is one that is faster than all others.
        ([50e9, 25e9], {}, [None] * 2, [None] * 2),
        ([12.5e12, 50e9, 50e9, 25e9], {}, [50e9] * 4, [0, 0, 0, 1]),
        ([50e9, 25e9], {"kinds": ["ib", None]}, [None] * 2, [None] * 2),
        ([50e9, 25e9], {"kinds": None}, [None] * 2, [None] * 2),
        ([100.0, 99.0, 98.9], {}, [100.0] * 3, [0, 0, 1]),
        ([], {}, [], []),
        # What the hardware can do, where that is known; a port alone of its kind is judged too.
        ([25e9], {"most": [50e9]}, [50e9], [1]),
        ([25e9, 25e9], {"most": [50e9, 25e9]}, [50e9, 25e9], [1, 0]),
        ([25e9, 50e9, 50e9, None], {"most": [None, 100e9, 50e9, 50e9]}, [50e9, 100e9, 50e9, 50e9], [1, 1, 0, None]),
        ([25e9, 12e9], {"most": [50e9, 50e9], "expected": 25e9}, [25e9] * 2, [0, 1]),
        # What is expected of RDMA ports holds for the devices that carry RDMA, and for them alone.
        (
            [50e9, 50e9, 25e9, 3e9],
            {"most": [100e9, 100e9, 100e9, None], "of_carriers": 50e9},
            [50e9] * 4,
            [0, 0, 1, 1],
        ),
        ([50e9, 3e9], {"most": [100e9, None], "of_carriers": 50e9, "expected": 25e9}, [25e9] * 2, [0, 1]),
        ([25e9], {"most": [50e9], "kinds": None}, [50e9], [1]),
    ],
)
def test_verdicts(speeds, options, expected, degraded):
    assert judge(speeds, **options) == (expected, degraded)


def test_tables_of_other_schemas_pass_unchanged():
    other = vocabulary.schema("fabric_test_", ("device",), [vocabulary.SPEED])
    assert judge([1.0, 2.0], schema=other) == (None, None)
    assert links.outputs(other) == []
    assert [metric.ending for metric in links.outputs(SCHEMA)] == [vocabulary.EXPECTED_SPEED, links.DEGRADED]


def test_a_configured_lower_speed_is_not_degraded():
    """A card of 400 Gb/s on a leaf of 200 Gb/s is degraded unless the configuration expects that."""
    assert judge([25e9] * 8, most=[50e9] * 8)[1] == [1] * 8
    assert judge([25e9] * 8, most=[50e9] * 8, expected=25e9)[1] == [0] * 8


def test_if_all_rails_are_equally_slow_only_network_devices_are_degraded():
    """RDMA ports do not report the speed of their hardware, and are equal to their siblings."""
    assert judge([25e9] * 8) == ([25e9] * 8, [0] * 8)
    assert judge([25e9] * 8, most=[50e9] * 8) == ([50e9] * 8, [1] * 8)


def test_a_port_that_is_down_is_not_rated():
    assert judge([50e9, None], most=[50e9, 50e9]) == ([50e9, 50e9], [0, None])


def test_switch_ports_to_hosts_are_not_compared_with_each_other():
    """A leaf has 400 Gb/s for GPUs beside 100 Gb/s for storage by design."""
    kinds = ["host", "host", "uplink", "uplink", "uplink"]
    assert judge([50e9, 12.5e9, 50e9, 50e9, 25e9], kinds=kinds) == ([None] * 2 + [50e9] * 3, [None, None, 0, 0, 1])
