"""The words of metric names, and the check that refuses bad and clashing ones."""

import importlib
import pkgutil
from dataclasses import replace

import pytest

import exporter.sources
from exporter.core import vocabulary
from exporter.core.table import Kind, Metric
from exporter.daemon.pipeline import MEANINGS


def declared() -> list[Metric]:
    """Collect every metric that the sources here declare, and what the meanings make of them."""
    found: list[Metric] = []
    for module in pkgutil.iter_modules(exporter.sources.__path__):
        definition = getattr(importlib.import_module(f"exporter.sources.{module.name}"), "DEFINITION", None)
        for schema in definition.schemas if definition else ():
            if not schema.internal:
                found += schema.metrics.values()
            for meaning in MEANINGS:
                found += meaning.outputs(schema)
    return found


GOOD = Metric("fabric_test_errors_total", Kind.COUNTER, "Errors.", ("device",), "errors_total")


def test_every_declared_metric_is_well_formed():
    assert len(declared()) > 50
    assert vocabulary.check(declared()) == []


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"name": "fabric_Test_total"}, "not lower-case words joined by _ after fabric_"),
        ({"name": "node_errors_total"}, "not lower-case words joined by _ after fabric_"),
        ({"name": "fabric_test_errors"}, "a counter ends in _total, and nothing else does"),
        ({"kind": Kind.GAUGE}, "a counter ends in _total, and nothing else does"),
        ({"name": "fabric_test_info", "kind": Kind.GAUGE}, "an info ends in _info, and nothing else does"),
        ({"name": "fabric_test_wait_ms_total"}, "not a base unit"),
        ({"name": "fabric_test_speed_gbps", "kind": Kind.GAUGE}, "not a base unit"),
        ({"name": "fabric_test_count", "kind": Kind.GAUGE}, "the ending belongs to histograms"),
        ({"labels": ("Device",)}, "a label name of bad form"),
        ({"labels": ("device", "job")}, "a label name that others use"),
        ({"labels": ("device", "device")}, "a label twice"),
        ({"help": " "}, "no help"),
        ({"help": "Bytes {did}."}, "no help"),
        ({"buckets": (1.0,)}, "buckets only for histograms"),
    ],
)
def test_each_rule_refuses_what_breaks_it(change, rule):
    bad = replace(GOOD, **change)
    assert vocabulary.check([bad]) == [f"{bad.name}: {rule}"]
    assert vocabulary.check([GOOD]) == []


def test_one_name_may_be_declared_again_only_alike():
    assert vocabulary.check([GOOD, replace(GOOD)]) == []
    for other in (replace(GOOD, help="Other."), replace(GOOD, labels=("port",)), replace(GOOD, extra=("x",))):
        assert vocabulary.check([GOOD, other]) == [
            "fabric_test_errors_total: declared twice with another kind, help or set of labels"
        ]


def test_families_that_are_one_in_openmetrics_clash():
    gauge = Metric("fabric_test_errors", Kind.GAUGE, "Errors.", (), "errors")
    info = Metric("fabric_test_errors_info", Kind.INFO, "Errors.", (), "errors_info", extra=("a",))
    assert vocabulary.check([GOOD, gauge]) == [
        "fabric_test_errors: is the same family in OpenMetrics as fabric_test_errors_total"
    ]
    assert vocabulary.check([GOOD, info]) == [
        "fabric_test_errors_info: is the same family in OpenMetrics as fabric_test_errors_total"
    ]


def test_units_are_read_off_the_names():
    assert vocabulary.unit_of("fabric_x_receive_bytes_total") == "bytes"
    assert vocabulary.unit_of("fabric_x_receive_bytes_per_second") == "bytes_per_second"
    assert vocabulary.unit_of("fabric_x_receive_pfc_paused_seconds_total") == "seconds"
    assert vocabulary.unit_of("fabric_x_utilization_ratio") == "ratio"
    assert vocabulary.unit_of("fabric_x_link_up") == ""


def test_helps_tell_the_direction_and_the_note():
    schema = vocabulary.schema(
        "fabric_t_", ("device",), ["receive_bytes_total", "transmit_pause_frames_total"], note="Of RDMA."
    )
    assert schema.metrics["receive_bytes_total"].help == "Bytes received. Of RDMA."
    assert schema.metrics["transmit_pause_frames_total"].help == (
        "802.3x pause frames transmitted: this port stopped its peer from sending."
    )


def test_rates_and_utilisation_name_declared_endings():
    for table in (vocabulary.RATES, vocabulary.UTILIZATION):
        for source, made in table.items():
            assert {source, made} <= vocabulary.ENDINGS.keys()
