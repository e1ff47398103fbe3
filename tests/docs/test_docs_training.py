"""docs/training.md: its numbers are those of the code, and its PromQL queries use existing metrics."""

import re

import promql_parser as promql
import pytest
import yaml

from exporter.meaning.training import alignment, stragglers, verdicts
from exporter.meaning.training.verdicts import Verdict
from exporter.sources.nccl import processes
from tests.helpers.paths import ROOT
from tests.helpers.promql import exported, faults

PAGE = (ROOT / "docs" / "training.md").read_text()
QUESTIONS = re.findall(r"^```promql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_all_verdicts_are_documented_in_order():
    assert re.findall(r"^\| `([a-z_]+)` \| ", PAGE, re.MULTILINE) == [one.value for one in Verdict]


SENTENCES = {
    "fewer than {} operations could be compared": verdicts.LEAST_OPERATIONS,
    "fewer than {} % of the ranks": verdicts.MATCHED * 100,
    "no verdict below {} % of the ranks": verdicts.MATCHED * 100,
    "has ended for {} seconds": verdicts.FROZEN,
    "is believed for {} seconds": alignment.TOLD,
    "others have waited in for {} seconds": verdicts.LONG_WAIT,
    "nor for {} times the longest pause": verdicts.FROZEN_GAPS,
    "less than {} % of the bandwidth": verdicts.SLOW * 100,
    "over {} seconds and at least": verdicts.RECENT,
    "at least {} ticks": verdicts.LEAST_TICKS,
    "for operations of {} MiB and more": verdicts.LEAST_BYTES / (1 << 20),
    "waits for {} % of the time and more": verdicts.IMBALANCED * 100,
    "after {} ticks": verdicts.HISTORY_LEAST,
    "It waits {} seconds for ranks": alignment.PATIENCE,
    "Differences below {} microseconds": alignment.NOISE,
    "in at least {} % of the operations": stragglers.SHARE * 100,
    "costs at least {} % of the time": stragglers.LEAST_LOSS * 100,
    "less than {} % of the latest": stragglers.WEAKER * 100,
    "after {} minutes both are forgotten": alignment.FORGET / 60,
    "Bounded are: {} jobs": alignment.MAX_JOBS,
    "of each {} communicators": alignment.MAX_COMMUNICATORS,
    "and {} operations that wait": alignment.MAX_PENDING_JOB,
    "on a host {} jobs": processes.MAX_JOBS,
    "with {} processes each": processes.MAX_PROCESSES,
}
"""Sentences of the page by their number."""


@pytest.mark.parametrize(("sentence", "number"), SENTENCES.items(), ids=SENTENCES)
def test_numbers_are_those_of_the_code(sentence, number):
    before, after = sentence.split("{}")
    (documented,) = re.findall(rf"{re.escape(before)}([0-9][0-9,.]*){re.escape(after)}", PAGE)
    assert float(documented.replace(",", "")) == pytest.approx(number)


def test_words_for_numbers_are_those_of_the_code():
    assert (verdicts.RAISE, verdicts.CLEAR, alignment.COMPARED, stragglers.EXPLAINED) == (2, 3, 0.5, 0.5)
    assert (stragglers.WINDOWS, stragglers.CHANCE, verdicts.FEW) == ((8.0, 20.0, 60.0), 1e-6, 0.25)
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
