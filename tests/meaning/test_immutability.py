"""Steps never change the values of a table in place: tables are shared between polls, threads and outputs."""

from copy import deepcopy

import pytest

from exporter.core import vocabulary
from exporter.core.definition import SourceSteps
from exporter.core.table import Column, RowKeeper, Samples, Table
from exporter.daemon.pipeline import Expectation, steps
from exporter.sources.bursts.source import SCHEMA as BURST_SAMPLES
from exporter.sources.nccl.metrics import STREAMS
from exporter.sources.rdma.metrics import SCHEMA as RDMA
from exporter.sources.switch.metrics import PORTS as SWITCH


class ReadOnly(list):
    """A list, as sources make them, that raises on every change."""

    def _refuse(self, *_, **__):
        raise AssertionError("a value was changed in place")

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = extend = insert = pop = remove = clear = sort = reverse = _refuse


ROWS = {
    RDMA: [("mlx5_0", "1"), ("mlx5_1", "1"), ("mlx5_2", "1")],
    SWITCH: [("leaf1", "Eth1/1"), ("leaf1", "Eth1/2"), ("leaf1", "Eth1/3")],
}
KINDS = {RDMA: ["ib", "ib", "ib"], SWITCH: ["uplink", "uplink", "host"]}
SPEED = 50e9


def port_tables(schema, keeper):
    """Yield four reads with increases, a wrap, a reset, a missing value and a restart."""
    size = len(ROWS[schema])
    counters = [
        one for one in schema.metrics.values() if one.ending.endswith("_total") and one.ending != "resets_total"
    ]
    history = [
        [1000] * size,
        [10_000_000] * size,
        [20_000_000, None, 5],
        [30_000_000, 30_000_000, 30_000_000],
    ]
    for poll, values in enumerate(history):
        columns = {
            metric.ending: Column(metric, ReadOnly(values), 32, saturates="error" in metric.ending)
            for metric in counters
        }
        for ending, value in (("link_up", 1), (vocabulary.SPEED, SPEED)):
            columns[ending] = Column(schema.metrics[ending], ReadOnly([value] * size))
        epochs = ReadOnly(["a", "a", "b" if poll == 3 else "a"])
        kinds = ReadOnly(KINDS[schema])
        yield Table(schema, keeper.rows(ROWS[schema]), columns, 100.0 + 5 * poll, epochs, kinds)


def burst_tables(_, keeper):
    for poll in range(3):
        begin = 100.0 + 5 * poll
        samples = Samples(tuple((begin + tick, 1e9 * (begin + tick), 1e8 * (begin + tick), SPEED) for tick in range(5)))
        columns = {vocabulary.SAMPLES: Column(BURST_SAMPLES.metrics[vocabulary.SAMPLES], ReadOnly([samples]))}
        key = ("mlx5_0", "1")[: len(BURST_SAMPLES.labels)]
        yield Table(BURST_SAMPLES, keeper.rows([key]), columns, begin)


def timing_tables(_, keeper):
    keys = [("llama", "0x1", "AllReduce", str(rank)) for rank in range(4)]
    for poll in range(12):
        operations = [
            Samples(tuple((float(poll * 4 + one), float(8 << 20), 900.0 - 100 * rank, 1.0) for one in range(4)))
            for rank in range(4)
        ]
        size = len(STREAMS.metrics["stream_info"].extra)
        info = ("4", "2", "gpu-1", "4", *[""] * (size - 4))
        values = {
            "operations": operations,
            "stream_info": [info] * 4,
            "begun": [4 * poll + 4] * 4,
            "ended": [4 * poll + 4] * 4,
        }
        columns = {ending: Column(STREAMS.metrics[ending], ReadOnly(cells)) for ending, cells in values.items()}
        yield Table(STREAMS, keeper.rows(keys), columns, 100.0 + 5 * poll)


def snapshot(table):
    """Copy what a step could change."""
    return deepcopy(
        {
            "columns": {ending: list(column.values) for ending, column in table.columns.items()},
            "epochs": list(table.epochs or ()),
            "kinds": list(table.kinds or ()),
            "times": list(table.times or ()),
            "keys": table.rows.keys,
            "texts": table.rows.texts,
        }
    )


@pytest.mark.parametrize(
    ("schema", "tables"),
    [(RDMA, port_tables), (SWITCH, port_tables), (BURST_SAMPLES, burst_tables), (STREAMS, timing_tables)],
    ids=["rdma", "switch", "bursts", "timings"],
)
def test_no_step_changes_the_values_of_a_table_in_place(schema, tables):
    """Neither those that it gets nor those that it returned at an earlier poll."""
    pipeline = steps(Expectation(ports=3), SourceSteps())
    states: dict = {}
    seen: list[tuple[Table, dict]] = []
    derived = 0
    for read in tables(schema, RowKeeper(schema.labels)):
        current = [read]
        seen.append((read, snapshot(read)))
        for number, step in enumerate(pipeline):
            results = []
            for table in current:
                key = (number, table.schema, table.part)
                states[key], made = step(states.get(key), table)
                results += made
            seen += [(table, snapshot(table)) for table in results]
            current = results
        derived += sum(len(table.columns) for table in current)
    assert derived > 0
    for table, before in seen:
        assert snapshot(table) == before
