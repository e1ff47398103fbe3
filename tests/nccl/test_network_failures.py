"""Failures of the network in logs: each wording of each release is read with its fields, or is not read on purpose."""

import os

import pytest

from exporter.nccl.debug_log import parse_line
from exporter.nccl.system_errors import ERRORS, name_of, number_of_text
from tests.nccl.network_failures import FAILURES, NOT_READ


@pytest.mark.parametrize(("release", "line", "fact"), FAILURES)
def test_failures_are_read_in_the_words_of_each_release(release, line, fact):
    entry = parse_line(line.encode())
    assert entry is not None, release
    assert entry.fact == fact


@pytest.mark.parametrize("line", NOT_READ)
def test_consequences_and_other_lines_are_not_read(line):
    assert parse_line(line.encode()) is None


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.text)
def test_numbers_of_errors_are_those_of_linux(error):
    assert name_of("", error.number) == name_of(os.strerror(error.number), None)
    assert number_of_text(os.strerror(error.number)) == error.number


def test_unknown_errors_have_no_name():
    assert name_of("Level 2 halted", 51) is None
    assert number_of_text("Level 2 halted") is None
