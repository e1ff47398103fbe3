"""Whether links are as fast as they should be."""

import pytest

from exporter import vocabulary
from exporter.meaning import links
from exporter.table import Column, Rows, Table

SCHEMA = vocabulary.schema("fabric_test_", ("device",), [vocabulary.SPEED, vocabulary.EXPECTED_SPEED, links.DEGRADED])


def judge(speeds, *, expected=None, kinds="same", schema=SCHEMA):
    rows = Rows(("device",), [(str(place),) for place in range(len(speeds))], {})
    kinds = ["same"] * len(speeds) if kinds == "same" else kinds
    table = Table(schema, rows, {vocabulary.SPEED: Column(schema.metrics[vocabulary.SPEED], speeds)}, 0.0, kinds=kinds)
    state, (out,) = links.step(expected, None, table)
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
        ([50e9, 25e9, 12e9, 12e9], {"kinds": ["ib", "eth", "ib", "eth"]}, [50e9, 25e9, 50e9, 25e9], [0, 0, 1, 1]),
        ([50e9, 25e9], {"kinds": ["ib", None]}, [None] * 2, [None] * 2),
        ([50e9, 25e9], {"kinds": None}, [None] * 2, [None] * 2),
        ([100.0, 99.0, 98.9], {}, [100.0] * 3, [0, 0, 1]),
        ([], {}, [], []),
    ],
)
def test_verdicts(speeds, options, expected, degraded):
    assert judge(speeds, **options) == (expected, degraded)


def test_tables_of_other_schemas_pass_untouched():
    other = vocabulary.schema("fabric_test_", ("device",), [vocabulary.SPEED])
    assert judge([1.0, 2.0], schema=other) == (None, None)
    assert links.outputs(other) == []
    assert [metric.ending for metric in links.outputs(SCHEMA)] == [vocabulary.EXPECTED_SPEED, links.DEGRADED]
