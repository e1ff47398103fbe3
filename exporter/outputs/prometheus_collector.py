"""Tables for programs that embed us: a collector for a registry of prometheus_client.

Our own server does not use it, since printing tables directly costs a twentieth of what this way does.
"""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
    UnknownMetricFamily,
)
from prometheus_client.registry import Collector

from exporter.core.table import (
    Column,
    HistogramValue,
    Kind,
    Rows,
    Table,
    clean_label,
)
from exporter.core.table import Metric as Declared

_NUMBERS = CounterMetricFamily | GaugeMetricFamily | UnknownMetricFamily


class TableCollector(Collector):
    """Gives tables as metric families; register it with `registry.register(TableCollector(daemon.tables))`."""

    def __init__(self, tables: Callable[[], Iterable[Table]]) -> None:
        """Take what gives the tables at each collection."""
        self._tables = tables

    def collect(self) -> Iterator[Metric]:
        """Give one family for each metric that has a value, over all tables that carry it."""
        families: dict[str, Metric] = {}
        for table in self._tables():
            if not table.schema.internal:
                for column in table.columns.values():
                    family = families.get(column.metric.name)
                    if family is None:
                        family = families[column.metric.name] = _family(column.metric)
                    _fill(family, table.rows, column)
        yield from (family for family in families.values() if family.samples)

    def describe(self) -> Iterator[Metric]:
        """Describe nothing: what there is changes with the devices."""
        return iter(())


def _family(metric: Declared) -> Metric:
    """Make an empty family."""
    kinds: dict[Kind, Callable[..., Metric]] = {
        Kind.COUNTER: CounterMetricFamily,
        Kind.GAUGE: GaugeMetricFamily,
        Kind.INFO: InfoMetricFamily,
        Kind.HISTOGRAM: HistogramMetricFamily,
        Kind.UNKNOWN: UnknownMetricFamily,
    }
    return kinds[metric.kind](metric.name.removesuffix("_info"), metric.help, labels=metric.labels)


def _fill(family: Metric, rows: Rows, column: Column) -> None:
    """Add the rows that have a value."""
    metric = column.metric
    bounds = [*(str(float(bound)) for bound in metric.buckets), "+Inf"]
    for key, value in zip(rows.keys, column.values, strict=True):
        labels = [clean_label(text) for text in key]
        if isinstance(family, InfoMetricFamily) and isinstance(value, tuple):
            extra = zip(metric.extra, map(clean_label, value), strict=True)
            family.add_metric(labels, {name: text for name, text in extra if text})
        elif isinstance(family, HistogramMetricFamily) and isinstance(value, HistogramValue):
            family.add_metric(labels, list(zip(bounds, value.counts, strict=True)), value.sum)
        elif isinstance(family, CounterMetricFamily | GaugeMetricFamily | UnknownMetricFamily) and isinstance(
            value, int | float
        ):
            family.add_metric(labels, value)
