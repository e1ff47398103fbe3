"""Printing 100,000 series, beside the client library of Prometheus.

Of 100 families 80 are counters, 10 whole-number gauges such as states and speeds, and 10 measured gauges such as rates:
about what the ports of a switch have.
"""

import asyncio
import gc
import random
import time
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.registry import Collector

from exporter.core import vocabulary
from exporter.core.table import (
    Column,
    LabelValues,
    RowKeeper,
    Table,
)
from exporter.core.vocabulary import counter, gauge
from exporter.outputs.negotiation import Format
from exporter.outputs.prometheus_collector import TableCollector
from exporter.outputs.text import Renderer
from exporter.outputs.webapp import Renderings

from measure import Figure, Limit  # isort: skip

FAMILIES, ROWS = 100, 1_000
ODD = ('quote "', "back\\slash", "new\nline", "per % cent", "\udcff no UTF-8", "é", "\x00")

SCHEMA = vocabulary.schema(
    "fabric_bench_",
    ("switch", "port"),
    own={
        **{f"events{number:02}_total": counter("A counter.") for number in range(FAMILIES * 8 // 10)},
        **{f"state{number:02}": gauge("A whole number.") for number in range(FAMILIES // 10)},
        **{f"rate{number:02}": gauge("A measured number.") for number in range(FAMILIES // 10)},
    },
)


class Scene:
    """A table that changes between scrapes: all values move, a tenth are absent, a twentieth of the rows are others."""

    def __init__(self) -> None:
        """Draw the first rows."""
        self._draw = random.Random(1)
        self._keeper = RowKeeper(SCHEMA.labels)
        self._made = 0
        self._keys = [self._new() for _ in range(ROWS)]

    def _new(self) -> LabelValues:
        self._made += 1
        odd = self._draw.choice(ODD) if self._made % 20 == 0 else ""
        return (f"leaf-{self._made % 40:02}", f"Ethernet1/{self._made}{odd}")

    def next(self) -> dict[str, Column]:
        """Let the scene change, and return the columns of the next scrape."""
        draw = self._draw
        for place in draw.sample(range(ROWS), ROWS // 20):
            self._keys[place] = self._new()
        columns = {}
        for ending, metric in SCHEMA.metrics.items():
            measured = ending.startswith("rate")
            values: Sequence[int | float | None] = [
                None if draw.random() < 0.1 else draw.random() * 1e9 if measured else draw.getrandbits(50)
                for _ in range(ROWS)
            ]
            columns[ending] = Column(metric, values)
        return columns

    def table(self, columns: dict[str, Column]) -> Table:
        """Make the table of the columns and the rows there are now."""
        return Table(SCHEMA, self._keeper.rows(self._keys), columns, time.monotonic())


class Made(Collector):
    """Families that were made before: only their printing is the client library's."""

    def __init__(self, families: list[Metric]) -> None:
        """Take the families."""
        self._families = families

    def collect(self) -> list[Metric]:
        """Return the columns."""
        return self._families


def run() -> list[Figure | Limit]:
    """Compare CPU over the same ten tables, and look for stalls of the loop while a scrape is served."""
    scene, renderer = Scene(), Renderer(openmetrics=False)
    b"".join(renderer.render([scene.table(scene.next())]))
    ours = theirs = 0.0
    rounds = 10
    for _ in range(rounds):
        changed = scene.next()
        gc.collect()
        began = time.process_time()
        table = scene.table(changed)  # labels of new rows are made here, once for as long as a row lives
        body = b"".join(renderer.render([table]))
        ours += time.process_time() - began
        registry = CollectorRegistry(auto_describe=False)
        registry.register(Made(list(TableCollector(lambda: [table]).collect())))  # noqa: B023  # called at once
        gc.collect()
        began = time.process_time()
        other = generate_latest(registry)
        theirs += time.process_time() - began
        if body.count(b"\n") != other.count(b"\n"):
            raise RuntimeError("the two printed different numbers of lines")
    stall = asyncio.run(_longest_stall(scene))
    return [
        Figure(
            "render 100,000 series", "ms CPU", ours / rounds * 1e3, "prometheus_client", theirs / rounds * 1e3, 0.05
        ),
        Limit("longest stall of the loop meanwhile", "ms", stall * 1e3, 20.0),
    ]


async def _longest_stall(scene: Scene) -> float:
    """Serve scrapes while the loop is asked to wake every millisecond; return the longest it was late."""
    tables = [scene.table(scene.next()) for _ in range(5)]
    renderer = Renderer(openmetrics=True)
    renderings = Renderings(lambda _form: renderer.render([tables[-1]]))
    worst = 0.0
    done = asyncio.Event()

    async def watch() -> None:
        nonlocal worst
        while not done.is_set():
            due = time.monotonic() + 0.001
            await asyncio.sleep(0.001)
            worst = max(worst, time.monotonic() - due)

    watcher = asyncio.create_task(watch())
    while tables:
        body = renderings.get(Format.OPENMETRICS, True)
        if not isinstance(body, list):  # one that was quick is there at once
            await body
        tables.pop()
    done.set()
    await watcher
    renderings.close()
    return worst
