"""The table of faults that others had: whole, and each row shown by tests that exist or explained in words."""

import ast
import functools
import re

import pytest

from exporter.daemon.sources import metrics
from tests.helpers.paths import ROOT

TEXT = (ROOT / "docs" / "faults.md").read_text()
HEAD = ["no.", "shown by"]
FAULTS, SWITCHES, HABITS, RECORDINGS = 148, 51, 44, 171
"""Rows of each kind; a number that was given stays, so these only grow."""

OF_TARGETS = {"pod", "namespace", "container", "node", "endpoint", "service", "job", "instance", "prometheus"}
"""Labels that Prometheus and its operator set for a target; a metric's own would be renamed to `exported_…`."""

NO_TEST = "\N{EN DASH} "
NAMED = re.compile(r"`tests/([\w/]+\.py)::(test_\w+)`")


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")[1:-1]]


ROWS = [row for line in TEXT.splitlines() if line.startswith("| ") and (row := cells(line))[0] != HEAD[0]]

every_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].replace(" ", "+"))


@functools.cache
def _defined(file: str) -> set[str]:
    """Return the names of the tests in a file, without running it."""
    tree = ast.parse((ROOT / "tests" / file).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_each_number_is_there_once():
    numbers = [number for row in ROWS for number in row[0].split()]
    kinds = {"F": FAULTS, "S": SWITCHES, "H": HABITS, "R": RECORDINGS}
    wanted = [f"{kind}{number}" for kind, count in kinds.items() for number in range(1, count + 1)]
    assert sorted(numbers) == sorted(wanted)


def test_tables_have_one_shape():
    heads = [cells(line) for line in TEXT.splitlines() if line.startswith(f"| {HEAD[0]} ")]
    assert len(heads) == TEXT.count("\n## ")
    assert {(len(head), head[0], head[-1]) for head in heads} == {(4, *HEAD)}
    assert {len(row) for row in ROWS} == {4}


@every_row
def test_a_row_has_tests_or_a_reason(row):
    """Named tests exist, and the cell has no other text; without a test the row gives the reason."""
    _, went_wrong, here, shown = row
    assert went_wrong
    assert here
    if shown.startswith(NO_TEST):
        assert len(shown.removeprefix(NO_TEST).split()) > 1, "why there is none"
        return
    named = NAMED.findall(shown)
    assert ", ".join(f"`tests/{file}::{test}`" for file, test in named) == shown
    assert [f"{file}::{test}" for file, test in named if test not in _defined(file)] == []


def test_no_metric_has_a_label_of_targets():
    """A metric's own `pod` was the exporter's, or took the place of the target's."""
    taken = {metric.name: OF_TARGETS & {*metric.labels, *metric.extra} for metric in metrics()}
    assert len(taken) > 100
    assert {name: labels for name, labels in taken.items() if labels} == {}
