"""Declared metrics as families of prometheus_client: the exporter's own, and all tables for programs that embed it.

The exporter's server does not render tables this way: rendering them directly takes a twentieth of the time.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

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
    HistogramValue,
    Kind,
    LabelValues,
    Table,
    Value,
    clean_label,
)
from exporter.core.table import Metric as Declared

_FAMILIES: Mapping[Kind, Callable[..., Metric]] = MappingProxyType(
    {
        Kind.COUNTER: CounterMetricFamily,
        Kind.GAUGE: GaugeMetricFamily,
        Kind.INFO: InfoMetricFamily,
        Kind.HISTOGRAM: HistogramMetricFamily,
        Kind.UNKNOWN: UnknownMetricFamily,
    }
)


class TableCollector(Collector):
    """Collects the tables of a daemon: `registry.register(TableCollector(daemon.tables))`.

    The daemon's own metrics are not among them: those of a process belong to the program that embeds it.
    """

    def __init__(self, tables: Callable[[], Iterable[Table]]) -> None:
        """Args: tables: Called at each collection."""
        self._tables = tables

    def collect(self) -> Iterator[Metric]:
        """Yield one family for each metric that has a value, from all tables with that metric."""
        families: dict[str, Metric] = {}
        for table in self._tables():
            if not table.schema.internal:
                for column in table.columns.values():
                    family = families.get(column.metric.name)
                    if family is None:
                        family = families[column.metric.name] = family_of(column.metric)
                    for key, value in zip(table.rows.keys, column.values, strict=True):
                        add_sample(family, column.metric, key, value)
        yield from (family for family in families.values() if family.samples)

    def describe(self) -> Iterator[Metric]:
        """Describe no metric: the set of metrics depends on the devices."""
        return iter(())


def family_of(metric: Declared) -> Metric:
    """Return the family of a declared metric, without samples."""
    unit = {"unit": metric.unit} if metric.unit else {}  # an info has no such argument
    return _FAMILIES[metric.kind](metric.name.removesuffix("_info"), metric.help, labels=metric.labels, **unit)


def add_sample(family: Metric, metric: Declared, key: LabelValues, value: Value | None) -> None:
    """Add the value of one row to the family of its metric; None adds nothing."""
    labels = [clean_label(text) for text in key]
    if isinstance(family, InfoMetricFamily) and isinstance(value, tuple):
        extra = zip(metric.extra, map(clean_label, value), strict=True)
        family.add_metric(labels, {name: text for name, text in extra if text})
    elif isinstance(family, HistogramMetricFamily) and isinstance(value, HistogramValue):
        bounds = [*(str(float(bound)) for bound in metric.buckets), "+Inf"]
        family.add_metric(labels, list(zip(bounds, value.counts, strict=True)), value.sum)
    elif isinstance(family, CounterMetricFamily | GaugeMetricFamily | UnknownMetricFamily) and isinstance(
        value, int | float
    ):
        family.add_metric(labels, value)
