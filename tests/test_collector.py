"""The collector for embedders gives what our own printing gives."""

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from exporter import vocabulary
from exporter.outputs.collector import TableCollector
from exporter.outputs.text import Renderer
from exporter.table import HistogramValue, Kind, Metric, RowKeeper, Schema, TableBuilder
from exporter.vocabulary import counter, gauge, info, unknown

SCHEMA = vocabulary.schema(
    "fabric_test_",
    ("port",),
    own={
        "bytes_total": counter("Bytes."),
        "link_up": gauge("Up."),
        "info": info("What it is.", "alias", "pci"),
        "raw": unknown("As it is."),
    },
)
HISTOGRAM = Metric("fabric_test_load", Kind.HISTOGRAM, "Load.", ("port",), "load", buckets=(0.5, 0.9))
WITH_HISTOGRAM = Schema("fabric_test_", ("port",), {**SCHEMA.metrics, "load": HISTOGRAM})


def parsed(text):
    return {
        (sample.name, frozenset(sample.labels.items()), float(sample.value))
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_registry_prints_what_we_print():
    builder = TableBuilder(WITH_HISTOGRAM)
    builder.row(
        ('odd "name"\n\\ %',),
        {"bytes_total": 2**53 + 1, "link_up": 1, "info": ("é", ""), "load": HistogramValue((1, 2, 5), 1.25), "raw": 7},
    )
    builder.row(("bad \udcff byte",), {"link_up": 0, "info": ("", "0000:17:00.0")})
    table = builder.table(RowKeeper(("port",)), 1.0)
    internal = TableBuilder(Schema("fabric_food_", ("port",), SCHEMA.metrics, internal=True))
    internal.row(("p",), {"link_up": 1})
    tables = [table, internal.table(RowKeeper(("port",)), 1.0)]

    registry = CollectorRegistry()
    registry.register(TableCollector(lambda: tables))
    theirs = parsed(generate_latest(registry).decode())
    assert theirs == parsed(b"".join(Renderer(openmetrics=False).render(tables)).decode())
    assert ("fabric_test_load_bucket", frozenset({("port", 'odd "name"\n\\ %'), ("le", "0.9")}), 2.0) in theirs
    assert len(theirs) == 11
