"""docs/training.md: its numbers equal those of the code, and its metrics and alerts exist."""

import re

import promql_parser as promql
import pytest
import yaml

from exporter.meaning.training import alignment, bandwidth, candidates, hangs, verdicts, waits
from exporter.meaning.training.verdicts import Verdict
from exporter.sources.nccl import processes
from tests.helpers.paths import ROOT
from tests.helpers.promql import exported, faults

PAGE = (ROOT / "docs" / "training.md").read_text()
QUERIES = re.findall(r"^```promql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_verdicts_are_documented_in_order():
    (table,) = re.findall(r"^\| verdict \|.*?^$", PAGE, re.MULTILINE | re.DOTALL)
    assert re.findall(r"^\| `([a-z_]+)` \| ", table, re.MULTILINE) == [one.value for one in Verdict]


DOCUMENTED_NUMBERS = {
    "fewer than {} operations could be compared": verdicts.MIN_OPERATIONS,
    "fewer than {} % of the ranks": verdicts.MIN_MATCHED_SHARE * 100,
    "no verdict below {} % of the ranks": verdicts.MIN_MATCHED_SHARE * 100,
    "has ended for {} seconds": hangs.HANG_SECONDS,
    "is valid for {} seconds": alignment.PROGRESS_VALID_SECONDS,
    "waited in a collective for {} seconds": waits.LONG_WAIT_SECONDS,
    "nor for {} times the longest pause": hangs.HANG_PAUSE_FACTOR,
    "less than {} % of the bandwidth": verdicts.MIN_BANDWIDTH_SHARE * 100,
    "over {} seconds, or": bandwidth.RECENT_SECONDS,
    "or {} ticks if they take longer": bandwidth.MIN_TICKS,
    "no operation ended for {} seconds": verdicts.RECENT_SECONDS,
    "for operations of {} MiB and more": bandwidth.MIN_BYTES / (1 << 20),
    "waits for {} % of the time and more": verdicts.MIN_WAITED_RATIO * 100,
    "after {} ticks": bandwidth.MIN_HISTORY_TICKS,
    "It waits {} seconds for ranks": alignment.PATIENCE_SECONDS,
    "Differences below {} microseconds": alignment.NOISE_MICROSECONDS,
    "cost at least {} % of the time": candidates.MIN_LOSS * 100,
    "after {} minutes both are forgotten": alignment.FORGET_SECONDS / 60,
    "Limits: {} jobs": alignment.MAX_JOBS,
    "of each {} communicators": alignment.MAX_COMMUNICATORS,
    "and {} operations that wait": alignment.MAX_PENDING_JOB,
    "on a host {} jobs": processes.MAX_JOBS,
    "with {} processes each": processes.MAX_PROCESSES,
}
"""Sentences of the page with a number, and the number in the code."""


@pytest.mark.parametrize(("sentence", "number"), DOCUMENTED_NUMBERS.items(), ids=DOCUMENTED_NUMBERS)
def test_documented_numbers_equal_the_code(sentence, number):
    before, after = sentence.split("{}")
    (documented,) = re.findall(rf"{re.escape(before)}([0-9][0-9,.]*){re.escape(after)}", PAGE)
    assert float(documented.replace(",", "")) == pytest.approx(number)


def test_documented_numbers_in_words_equal_the_code():
    times = (verdicts.TIMES_TO_RAISE, verdicts.TIMES_TO_CLEAR)
    assert (times, verdicts.RECENT_STEPS, verdicts.MOVING_SECONDS) == ((2, 3), 2.5, 180)
    assert (alignment.MIN_COMPARED_SHARE, candidates.MAX_SUSPECTS_SHARE, hangs.MAX_BEHIND_SHARE) == (0.5, 0.125, 0.25)
    assert (candidates.WINDOWS, candidates.MIN_LATE_LAPS) == (((12.0, 4), (30.0, 10), (60.0, 24)), 3)
    for words in ("twice in a row", "three times (the rest)", "half of them will do", "two and a half steps"):
        assert words in PAGE
    for words in ("windows of 12, 30 and 60 seconds (or of 4, 10 and 24 steps)", "in at least three steps"):
        assert words in PAGE
    for words in ("an eighth of those", "at most a quarter", "in the last three minutes"):
        assert words in PAGE


@pytest.mark.parametrize("query", QUERIES)
def test_queries_use_existing_metrics(query):
    assert faults(promql.parse(query), exported()) == []


def test_documented_metrics_and_alerts_exist():
    assert set(re.findall(r"(?<!:)\bfabric_[a-z_]+\b(?!\.py)", PAGE)) <= exported().keys()
    groups = yaml.safe_load((ROOT / "alerts" / "fabric.yml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert set(re.findall(r"\bFabric[A-Z]\w+", PAGE)) <= {rule.get("alert") for rule in rules}
