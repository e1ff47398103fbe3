"""The text formats, against the parsers and the printer of the official client and against promtool."""

import subprocess
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client import parser as text_parser
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    UnknownMetricFamily,
)
from prometheus_client.openmetrics import exposition as openmetrics_exposition
from prometheus_client.openmetrics import parser as openmetrics_parser

from exporter.core.table import (
    Column,
    HistogramValue,
    Kind,
    Metric,
    Rows,
    Schema,
    Table,
)
from exporter.outputs import text
from exporter.outputs.prometheus_collector import TableCollector
from tests.core.test_vocabulary import declared

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A slow machine is no failure."""

COUNTER = Metric(
    "fabric_t_receive_bytes_total", Kind.COUNTER, 'Bytes "in", back\\slash\nline.', ("device",), "c", "bytes"
)
GAUGE = Metric("fabric_t_link_up", Kind.GAUGE, "Link.", ("device",), "g")
INFO = Metric("fabric_t_info", Kind.INFO, "Facts.", ("device",), "i", extra=("driver", "mac"))
HISTOGRAM = Metric("fabric_t_use_ratio", Kind.HISTOGRAM, "Use.", ("device",), "h", "ratio", buckets=(0.5, 1.0))
RAW = Metric("fabric_t_raw", Kind.UNKNOWN, "As it is.", ("device",), "r")
SCHEMA = Schema("fabric_t_", ("device",), {one.ending: one for one in (COUNTER, GAUGE, INFO, HISTOGRAM, RAW)})

ODD_NAMES = [
    "plain",
    "100%s%%",
    'q"uote',
    "back\\slash",
    "new\nline",
    "nul\0",
    "\udcff\udc80",
    "tab\t",
    "x" * 10_000,
    "",
    "日本",
]


def table(names, **columns):
    rows = Rows(("device",), [(name,) for name in names], {})
    return Table(SCHEMA, rows, {key: Column(SCHEMA.metrics[key], values) for key, values in columns.items()}, 0.0)


def whole(tables, *, openmetrics=False):
    return b"".join(text.Renderer(openmetrics=openmetrics).render(tables)).decode()


def samples(families):
    """Bring what a parser gives into one comparable form, without what only one of the printers adds."""
    return {
        (sample.name, tuple(sorted(sample.labels.items())), float(sample.value))
        for family in families
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def parsed(tables):
    plain = samples(text_parser.text_string_to_metric_families(whole(tables)))
    assert plain == samples(openmetrics_parser.text_string_to_metric_families(whole(tables, openmetrics=True)))
    return plain


class Reference:
    """The same tables through the official client's own objects."""

    def __init__(self, tables):
        self.tables = tables

    def collect(self):
        families = {}
        for one in self.tables:
            for column in one.columns.values():
                metric = column.metric
                if metric.name not in families:
                    families[metric.name] = self.family(metric)
                for key, value in zip(one.rows.keys, column.values, strict=True):
                    if value is not None:
                        self.add(families[metric.name], metric, key, value)
        return families.values()

    def family(self, metric):
        if metric.kind is Kind.COUNTER:
            return CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
        if metric.kind is Kind.INFO:
            return InfoMetricFamily(metric.name.removesuffix("_info"), metric.help, labels=metric.labels)
        made = {Kind.HISTOGRAM: HistogramMetricFamily, Kind.UNKNOWN: UnknownMetricFamily}
        return made.get(metric.kind, GaugeMetricFamily)(metric.name, metric.help, labels=metric.labels)

    def add(self, family, metric, key, value):
        if metric.kind is Kind.INFO:
            family.add_metric(key, dict(zip(metric.extra, value, strict=True)))
        elif metric.kind is Kind.HISTOGRAM:
            bounds = [*map(str, metric.buckets), "+Inf"]
            family.add_metric(key, list(zip(bounds, value.counts, strict=True)), value.sum)
        else:
            family.add_metric(key, value)


def reference(tables):
    registry = CollectorRegistry()
    registry.register(Reference(tables))
    plain = samples(text_parser.text_string_to_metric_families(generate_latest(registry).decode()))
    printed = openmetrics_exposition.generate_latest(registry).decode()
    assert plain == samples(openmetrics_parser.text_string_to_metric_families(printed))
    return plain


NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
WORDS = st.text(
    st.characters(min_codepoint=32, exclude_categories=["Cs"], exclude_characters="\\\x7f"), min_size=1, max_size=8
)


@st.composite
def tables_strategy(draw):
    names = draw(st.lists(WORDS, unique=True, max_size=5))
    size = len(names)

    def values(of):
        return draw(st.lists(st.none() | of, min_size=size, max_size=size))

    counts = st.tuples(*[st.integers(0, 9)] * 3).map(sorted).map(tuple)
    histogram = st.builds(HistogramValue, counts, st.floats(0, 9))
    return table(
        names,
        c=values(st.integers(0, 2**66)),
        g=values(NUMBERS),
        i=values(st.tuples(WORDS, WORDS)),
        h=values(histogram),
        r=values(NUMBERS),
    )


@UNHURRIED
@given(tables_strategy())
def test_values_are_those_the_official_client_prints(one):
    assert parsed([one]) == reference([one])


@UNHURRIED
@given(tables_strategy())
def test_a_registry_of_an_embedding_program_has_the_same_values(one):
    registry = CollectorRegistry()
    registry.register(TableCollector(lambda: [one]))
    assert samples(registry.collect()) == parsed([one])


def test_unusual_labels_remain_different_in_both_parsers():
    found = parsed([table(ODD_NAMES, g=list(range(len(ODD_NAMES))))])
    assert len({labels for _, labels, _ in found}) == len(ODD_NAMES)
    by_value = {int(value): dict(labels).get("device", "") for _, labels, value in found}
    for place, name in enumerate(ODD_NAMES):
        if name.isprintable() and len(name) < 256:
            assert by_value[place] == name
    assert by_value[ODD_NAMES.index("new\nline")] == "new\nline"
    assert by_value[ODD_NAMES.index("nul\0")] == r"nul\x00"
    assert by_value[ODD_NAMES.index("\udcff\udc80")] == r"\xff\x80"
    assert len(by_value[ODD_NAMES.index("x" * 10_000)]) == 256


def test_the_exact_text_of_0_0_4():
    one = table(
        ["a", "b"],
        c=[2**64 + 1, None],
        g=[0.5, 1],
        i=[("mlx5", ""), ("", "")],
        h=[HistogramValue((1, 2, 3), 2.5), None],
        r=[7, None],
    )
    assert whole([one]) == (
        "# HELP fabric_t_info Facts.\n# TYPE fabric_t_info gauge\n"
        'fabric_t_info{device="a",driver="mlx5"} 1\nfabric_t_info{device="b"} 1\n'
        "# HELP fabric_t_link_up Link.\n# TYPE fabric_t_link_up gauge\n"
        'fabric_t_link_up{device="a"} 0.5\nfabric_t_link_up{device="b"} 1\n'
        '# HELP fabric_t_raw As it is.\n# TYPE fabric_t_raw untyped\nfabric_t_raw{device="a"} 7\n'
        '# HELP fabric_t_receive_bytes_total Bytes "in", back\\\\slash\\nline.\n'
        "# TYPE fabric_t_receive_bytes_total counter\n"
        'fabric_t_receive_bytes_total{device="a"} 18446744073709551617\n'
        "# HELP fabric_t_use_ratio Use.\n# TYPE fabric_t_use_ratio histogram\n"
        'fabric_t_use_ratio_bucket{device="a",le="0.5"} 1\nfabric_t_use_ratio_bucket{device="a",le="1.0"} 2\n'
        'fabric_t_use_ratio_bucket{device="a",le="+Inf"} 3\n'
        'fabric_t_use_ratio_count{device="a"} 3\nfabric_t_use_ratio_sum{device="a"} 2.5\n'
    )


def test_the_heads_of_openmetrics():
    one = table(["a"], c=[1], i=[("d", "m")], h=[HistogramValue((0, 0, 0), 0.0)], r=[7])
    printed = whole([one], openmetrics=True)
    assert "# TYPE fabric_t_raw unknown\n" in printed
    assert "# TYPE fabric_t_receive_bytes counter\n# UNIT fabric_t_receive_bytes bytes\n" in printed
    assert '# HELP fabric_t_receive_bytes Bytes \\"in\\", back\\\\slash\\nline.\n' in printed
    assert "# TYPE fabric_t info\n" in printed
    assert "# TYPE fabric_t_use_ratio histogram\n# UNIT fabric_t_use_ratio ratio\n" in printed
    assert printed.endswith("\n# EOF\n")
    family = next(
        iter(openmetrics_parser.text_string_to_metric_families(whole([table(["a"], c=[1])], openmetrics=True)))
    )
    assert (family.documentation, family.unit, family.type) == (COUNTER.help, "bytes", "counter")


def test_families_without_values_are_absent():
    assert whole([table(["a"], c=[None], g=[None], i=[None], h=[None])]) == ""
    assert whole([table([], g=[])], openmetrics=True) == "# EOF\n"
    assert whole([]) == ""


def test_internal_tables_are_not_printed():
    one = table(["a"], g=[1])
    assert whole([replace(one, schema=replace(SCHEMA, internal=True))]) == ""


def test_one_family_of_many_tables_is_printed_once_and_together():
    printed = whole([table(["a"], g=[1], c=[5]), table(["b"], g=[None]), table(["c"], g=[3])])
    assert printed.count("# TYPE fabric_t_link_up") == 1
    assert 'fabric_t_link_up{device="a"} 1\nfabric_t_link_up{device="c"} 3\n' in printed


def test_rows_without_labels():
    assert 'fabric_t_info{driver="d"} 1\n' in whole([table([""], i=[("d", "")])])
    assert "fabric_t_link_up 1\n" in whole([table([""], g=[1])])
    assert 'fabric_t_use_ratio_bucket{le="0.5"} 1\n' in whole([table([""], h=[HistogramValue((1, 1, 1), 0.1)])])


def test_large_tables_come_in_pieces_of_whole_lines_and_the_head_once():
    size = 2 * text.PIECE + 1
    one = table([str(number) for number in range(size)], g=[None] * text.PIECE + [1] * (size - text.PIECE))
    pieces = list(text.Renderer(openmetrics=False).render([one]))
    assert len(pieces) == 3
    assert all(piece.endswith(b"\n") for piece in pieces)
    assert b"".join(pieces).count(b"# HELP") == 1
    assert b"".join(pieces).count(b"fabric_t_link_up{") == size - text.PIECE


def test_promtool_accepts_every_declared_metric(program):
    promtool = program("promtool")
    tables = []
    for metric in {one.name: one for one in declared()}.values():
        value = {
            Kind.INFO: tuple("x" for _ in metric.extra),
            Kind.HISTOGRAM: HistogramValue(tuple(range(len(metric.buckets) + 1)), 1.0),
        }.get(metric.kind, 1)
        rows = Rows(metric.labels, [tuple("v" for _ in metric.labels)], {})
        schema = Schema("", metric.labels, {metric.ending: metric})
        tables.append(Table(schema, rows, {metric.ending: Column(metric, [value])}, 0.0))
    printed = whole(tables)
    assert printed.count("# TYPE") == len(tables)
    done = subprocess.run(
        [promtool, "check", "metrics"], input=printed, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_cached_rendering_equals_a_new_one():
    """Values change, remain, appear and vanish; rows change; tables change places."""
    one, other = (
        table(["a", "b"], c=[1, 2], g=[1, None], i=[("d", "m"), None]),
        table(["c"], c=[3], h=[HistogramValue((1, 2, 3), 1.0)]),
    )
    moved = one.with_columns([Column(COUNTER, [1, 3])])
    history = [
        [one, other],
        [one, other],
        [moved, other],
        [other, moved],
        [moved],
        [table(["a", "x"], c=[1, 3])],
        [],
        [one],
    ]
    assert len(history) == 8
    for openmetrics in (False, True):
        renderer = text.Renderer(openmetrics=openmetrics)
        for tables in history:
            assert b"".join(renderer.render(tables)).decode() == whole(tables, openmetrics=openmetrics)


def test_unchanged_columns_are_not_rendered_again(monkeypatch):
    renderer, one = text.Renderer(openmetrics=False), table(["a"], c=[1], g=[1])
    first = list(renderer.render([one]))
    monkeypatch.setattr(text, "_lines", lambda *_: pytest.fail("rendered again"))
    assert list(renderer.render([one.with_columns([Column(GAUGE, [1])])])) == first
    with pytest.raises(pytest.fail.Exception, match="rendered again"):
        list(renderer.render([one.with_columns([Column(GAUGE, [2])])]))


def test_scrapes_at_the_same_time_do_not_disturb_each_other():
    renderer = text.Renderer(openmetrics=False)
    one, other = table(["a"], c=[1], g=[1]), table(["b"], c=[2], g=[2])
    for _ in range(3):
        slow, fast = renderer.render([one]), renderer.render([other])
        begun = next(slow)
        assert b"".join(fast).decode() == whole([other])
        assert (begun + b"".join(slow)).decode() == whole([one])
