"""What docs/training.md says of verdicts is what the code does, and what it asks for exists."""

import re

import promql_parser as promql
import pytest
import yaml

from exporter.meaning.training import (
    alignment,
    bandwidth,
    hangs,
    stragglers,
    verdicts,
)
from exporter.meaning.training.verdicts import Verdict
from exporter.sources.nccl import processes
from tests.helpers.paths import ROOT
from tests.helpers.promql import exported, faults

PAGE = (ROOT / "docs" / "training.md").read_text()
QUESTIONS = re.findall(r"^```promql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_verdicts_are_all_told_of_in_their_order():
    assert re.findall(r"^\| `([a-z_]+)` \| ", PAGE, re.MULTILINE) == [one.value for one in Verdict]


SAID = {
    "fewer than {} operations could be compared": verdicts.MIN_OPERATIONS,
    "fewer than {} % of the ranks": verdicts.MIN_MATCHED_SHARE * 100,
    "no verdict below {} % of the ranks": verdicts.MIN_MATCHED_SHARE * 100,
    "has ended for {} seconds": hangs.HANG_SECONDS,
    "is believed for {} seconds": alignment.PROGRESS_VALID_SECONDS,
    "others have waited in for {} seconds": hangs.LONG_WAIT_SECONDS,
    "nor for {} times the longest pause": hangs.HANG_PAUSE_FACTOR,
    "less than {} % of the bandwidth": verdicts.MIN_BANDWIDTH_SHARE * 100,
    "over {} seconds and at least": bandwidth.RECENT_SECONDS,
    "at least {} ticks": bandwidth.MIN_TICKS,
    "for operations of {} MiB and more": bandwidth.MIN_BYTES / (1 << 20),
    "waits for {} % of the time and more": verdicts.MIN_WAITED_RATIO * 100,
    "after {} ticks": bandwidth.MIN_HISTORY_TICKS,
    "It waits {} seconds for ranks": alignment.PATIENCE_SECONDS,
    "Differences below {} microseconds": alignment.NOISE_MICROSECONDS,
    "in at least {} % of the operations": stragglers.MIN_LAST_SHARE * 100,
    "costs at least {} % of the time": stragglers.MIN_LOSS * 100,
    "less than {} % of the latest": stragglers.VICTIM_SHARE * 100,
    "after {} minutes both are forgotten": alignment.FORGET_SECONDS / 60,
    "Bounded are: {} jobs": alignment.MAX_JOBS,
    "of each {} communicators": alignment.MAX_COMMUNICATORS,
    "and {} operations that wait": alignment.MAX_PENDING_JOB,
    "on a host {} jobs": processes.MAX_JOBS,
    "with {} processes each": processes.MAX_PROCESSES,
}
"""Sentences of the page by the number that stands in them."""


@pytest.mark.parametrize(("sentence", "number"), SAID.items(), ids=SAID)
def test_numbers_are_those_of_the_code(sentence, number):
    before, after = sentence.split("{}")
    (said,) = re.findall(rf"{re.escape(before)}([0-9][0-9,.]*){re.escape(after)}", PAGE)
    assert float(said.replace(",", "")) == pytest.approx(number)


def test_words_for_numbers_are_those_of_the_code():
    assert (
        verdicts.TIMES_TO_RAISE,
        verdicts.TIMES_TO_CLEAR,
        alignment.MIN_COMPARED_SHARE,
        stragglers.WAITED_SHARE,
    ) == (2, 3, 0.5, 0.5)
    assert (stragglers.WINDOWS, stragglers.MAX_CHANCE, hangs.MAX_BEHIND_SHARE) == ((8.0, 20.0, 60.0), 1e-6, 0.25)
    for words in ("twice in a row", "three times (the rest)", "half of them will do", "half of its own lateness"):
        assert words in PAGE
    for words in ("windows of 8, 20 and 60 seconds", "once in a million times", "at most a quarter"):
        assert words in PAGE


@pytest.mark.parametrize("question", QUESTIONS)
def test_questions_ask_for_what_exists(question):
    assert faults(promql.parse(question), exported()) == []


def test_metrics_and_alerts_that_are_named_exist():
    assert set(re.findall(r"\bfabric_[a-z_]+\b(?!\.py)", PAGE)) <= exported().keys()
    groups = yaml.safe_load((ROOT / "alerts" / "fabric.yml").read_text())["groups"]
    assert set(re.findall(r"\bFabric[A-Z]\w+", PAGE)) <= {rule["alert"] for group in groups for rule in group["rules"]}
