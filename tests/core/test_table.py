"""Tables: cached rows, label values that never collide, columns without values."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.core import vocabulary
from exporter.core.table import (
    MAX_LABEL_LENGTH,
    Column,
    RowKeeper,
    Rows,
    Table,
    TableBuilder,
    complete_sum,
    escape_label,
    label_text,
)

NO_DEADLINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Hypothesis without deadlines: a slow machine is not a failure."""

SCHEMA = vocabulary.schema("fabric_test_", ("device",), ["link_up", "mtu_bytes"])

UNUSUAL_TEXT = st.text(
    st.characters(codec=None) | st.sampled_from('\\"\n\x00\x7fxu0f\udcff\udcc3\udca9\ud800'), max_size=12
)


@pytest.mark.parametrize(
    ("value", "escaped"),
    [
        ("mlx5_0", "mlx5_0"),
        ("100%s %(x)d {0}", "100%s %(x)d {0}"),
        ('say "hi"', r"say \"hi\""),
        ("a\\b", r"a\\b"),
        ("two\nlines", r"two\nlines"),
        ("nul\0bell\x07\ttab\r", r"nul\\x00bell\\x07\\x09tab\\x0d"),
        ("caf\u00e9 \u65e5\u672c", "caf\u00e9 \u65e5\u672c"),
        (b"caf\xe9".decode("utf-8", "surrogateescape"), r"caf\\xe9"),
        ("half \ud83d", r"half \\ud83d"),
        (r"looks like \x00", r"looks like \\x5cx00"),
        (r"DOMAIN\xuser", r"DOMAIN\\xuser"),
        ("", ""),
    ],
)
def test_label_values_are_escaped(value, escaped):
    assert escape_label(value) == escaped


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("\0", r"\x00"),
        (b"\xff".decode("utf-8", "surrogateescape"), r"\xff"),
        ("\u00e9", b"\xc3\xa9".decode("latin-1").encode("latin-1").decode("ascii", "surrogateescape")),
        ("a" * 10_000, "a" * 9_999),
        ("a" * 300 + "x", "a" * 300 + "y"),
        ("\ud800", r"\ud800"),
        ("\n", r"\n"),
        ("\\", "\\\\"),
    ],
)
def test_unusual_label_values_do_not_collide(one, other):
    assert escape_label(one) != escape_label(other)


@NO_DEADLINE
@given(UNUSUAL_TEXT, UNUSUAL_TEXT)
def test_different_values_stay_different_and_are_printable(one, other):
    shown = escape_label(one)
    assert (shown == escape_label(other)) == (one == other)
    shown.encode()  # no surrogate is left
    assert not any(ord(character) < 0x20 or ord(character) == 0x7F for character in shown)


def test_long_values_are_truncated_and_a_truncated_one_cannot_be_forged():
    shown = escape_label("x" * 10_000)
    assert len(shown) == MAX_LABEL_LENGTH
    assert shown.startswith("xxxx")
    assert escape_label(shown) != shown  # a value equal to a truncated one becomes another
    assert escape_label("y" * (MAX_LABEL_LENGTH - 1)) == "y" * (MAX_LABEL_LENGTH - 1)


def test_labels_with_empty_values_are_left_out():
    assert label_text(("device", "port", "netns"), ("d", "", "n")) == 'device="d",netns="n"'
    assert Rows(("a", "b"), [("", "")], {}).texts == ("",)
    assert Rows(("a", "b"), [("1", "")], {}).texts == ('{a="1"}',)


def test_duplicate_rows_are_rejected_with_their_labels():
    with pytest.raises(ValueError, match=r"two rows have the same labels \{'device': 'b'\}"):
        Rows(("device",), [("a",), ("b",), ("b",)], {})


def test_unchanged_rows_are_the_same_object_and_keep_their_text():
    keeper = RowKeeper(("device",))
    first = keeper.rows([("a",), ("b",)])
    assert keeper.rows([("a",), ("b",)]) is first
    changed = keeper.rows([("b",), ("c",)])
    assert changed is not first
    assert changed.keys == (("b",), ("c",))
    assert changed.index == {("b",): 0, ("c",): 1}
    assert changed.texts[0] is first.texts[1]
    assert changed.texts == ('{device="b"}', '{device="c"}')
    assert len(changed) == 2


def test_builder_fills_missing_values_with_none():
    builder = TableBuilder(SCHEMA)
    builder.row(("a",), {"mtu_bytes": None})
    builder.row(("b",), {"link_up": 1})
    builder.row(("c",), {"mtu_bytes": 1500})
    builder.row(("d",), {"link_up": 0})
    table = builder.table(RowKeeper(("device",)), 7.0, kinds=["x"] * 4)
    assert table.values("link_up") == [None, 1, None, 0]
    assert table.values("mtu_bytes") == [None, None, 1500, None]
    assert table.values("absent") is None
    assert (table.time, table.kinds, table.part) == (7.0, ["x"] * 4, "")


def test_with_columns_adds_and_replaces_in_a_copy():
    rows = Rows(("device",), [("a",)], {})
    up, mtu = SCHEMA.metrics["link_up"], SCHEMA.metrics["mtu_bytes"]
    table = Table(SCHEMA, rows, {"link_up": Column(up, [0])}, 1.0)
    new = table.with_columns([Column(up, [1]), Column(mtu, [9000])])
    assert (new.values("link_up"), new.values("mtu_bytes")) == ([1], [9000])
    assert (table.values("link_up"), table.values("mtu_bytes")) == ([0], None)


@pytest.mark.parametrize(
    ("values", "expected"), [([1, 2, 0], 3), ([1, None, 2], None), ([], None), ([None], None), ([1.5, 2], 3.5)]
)
def test_a_sum_with_a_missing_part_is_missing(values, expected):
    assert complete_sum(values) == expected
