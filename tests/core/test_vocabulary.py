"""Shared endings of metric names, and the check that rejects bad and colliding names."""

from dataclasses import replace

import pytest

from exporter.core import vocabulary
from exporter.core.table import Kind, Metric
from exporter.daemon.pipeline import MEANINGS
from exporter.daemon.sources import SOURCES


def declared() -> list[Metric]:
    """Return every metric that a source declares or that meaning derives from it."""
    metrics: list[Metric] = []
    for definition in SOURCES:
        for schema in definition.schemas:
            if not schema.internal:
                metrics += schema.metrics.values()
            for meaning in MEANINGS:
                metrics += meaning.outputs(schema)
    return metrics


GOOD = Metric("fabric_test_errors_total", Kind.COUNTER, "Errors.", ("device",), "errors_total")


def test_every_declared_metric_is_well_formed():
    assert len(declared()) > 50
    assert vocabulary.check(declared()) == []


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"name": "fabric_Test_total"}, "not lower-case words joined by _ after fabric_"),
        ({"name": "node_errors_total"}, "not lower-case words joined by _ after fabric_"),
        ({"name": "fabric_test_errors"}, "only counters end in _total, and all do"),
        ({"kind": Kind.GAUGE}, "only counters end in _total, and all do"),
        ({"name": "fabric_test_info", "kind": Kind.GAUGE}, "only infos end in _info, and all do"),
        ({"name": "fabric_test_wait_ms_total"}, "not a base unit"),
        ({"name": "fabric_test_speed_gbps", "kind": Kind.GAUGE}, "not a base unit"),
        ({"name": "fabric_test_count", "kind": Kind.GAUGE}, "the ending is reserved for histograms and summaries"),
        ({"labels": ("Device",)}, "an invalid label name"),
        ({"labels": ("device", "job")}, "a label name that scrapes or other exporters set"),
        ({"labels": ("device", "device")}, "a duplicate label name"),
        ({"help": " "}, "no HELP"),
        ({"help": "Bytes {did}."}, "no HELP"),
        ({"buckets": (1.0,)}, "only histograms have buckets, and all do"),
    ],
)
def test_each_rule_rejects_a_metric_that_breaks_it(change, rule):
    bad = replace(GOOD, **change)
    assert vocabulary.check([bad]) == [f"{bad.name}: {rule}"]
    assert vocabulary.check([GOOD]) == []


def test_a_name_may_be_declared_twice_only_identically():
    assert vocabulary.check([GOOD, replace(GOOD)]) == []
    for other in (replace(GOOD, help="Other."), replace(GOOD, labels=("port",)), replace(GOOD, extra=("x",))):
        assert vocabulary.check([GOOD, other]) == [
            "fabric_test_errors_total: declared twice with different type, HELP or labels"
        ]


def test_metrics_of_the_same_openmetrics_family_collide():
    gauge = Metric("fabric_test_errors", Kind.GAUGE, "Errors.", (), "errors")
    info = Metric("fabric_test_errors_info", Kind.INFO, "Errors.", (), "errors_info", extra=("a",))
    assert vocabulary.check([GOOD, gauge]) == [
        "fabric_test_errors: is the same metric family in OpenMetrics as fabric_test_errors_total"
    ]
    assert vocabulary.check([GOOD, info]) == [
        "fabric_test_errors_info: is the same metric family in OpenMetrics as fabric_test_errors_total"
    ]


def test_units_are_parsed_from_names():
    assert vocabulary.unit_of("fabric_x_receive_bytes_total") == "bytes"
    assert vocabulary.unit_of("fabric_x_receive_bytes_per_second") == "bytes_per_second"
    assert vocabulary.unit_of("fabric_x_receive_pfc_paused_seconds_total") == "seconds"
    assert vocabulary.unit_of("fabric_x_utilization_ratio") == "ratio"
    assert vocabulary.unit_of("fabric_x_link_up") == ""


def test_help_texts_contain_direction_and_note():
    schema = vocabulary.schema(
        "fabric_t_", ("device",), ["receive_bytes_total", "transmit_pause_frames_total"], note="Of RDMA."
    )
    assert schema.metrics["receive_bytes_total"].help == "Bytes received. Of RDMA."
    assert schema.metrics["transmit_pause_frames_total"].help == (
        "IEEE 802.3x PAUSE frames transmitted, which stop the link partner from transmitting"
        " (aPAUSEMACCtrlFramesTransmitted)."
    )


def test_rates_and_utilization_have_declared_endings():
    for table in (vocabulary.RATES, vocabulary.UTILIZATION):
        assert table
        for source, made in table.items():
            assert {source, made} <= vocabulary.ENDINGS.keys()
