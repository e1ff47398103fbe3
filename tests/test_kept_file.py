"""Files that stay open: read through one descriptor, and left alone where they only ever refuse."""

import errno
import os

import pytest

from exporter.sources import kept_file
from exporter.sources.kept_file import REST, TRIES, KeptFile


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "counter"
    path.write_text("1\n")
    made = KeptFile(str(path))
    yield made
    made.close()


@pytest.fixture
def answers(monkeypatch):
    """Give a list of what reads answer, in turn: errors by their number; when it is empty, what the file has."""
    waiting, pread = [], os.pread

    def read_at(*arguments):
        if waiting:
            number = waiting.pop(0)
            raise OSError(number, os.strerror(number))
        return pread(*arguments)

    monkeypatch.setattr(kept_file.os, "pread", read_at)
    return waiting


def refuse(file, answers, *numbers, now=0.0):
    for number in numbers:
        answers.append(number)
        with pytest.raises(OSError, match=os.strerror(number)):
            file.read(now)


def test_a_file_is_opened_once(file):
    assert file.read(0.0) == b"1\n"
    descriptor = file.descriptor
    assert file.read(0.0) == b"1\n"
    assert file.descriptor == descriptor


def test_a_file_whose_device_went_is_opened_anew(file, answers):
    refuse(file, answers, errno.ENODEV)
    assert file.descriptor == -1
    assert file.read(0.0) == b"1\n"


def test_a_file_that_was_refused_often_enough_rests_until_its_time_is_over_or_its_link_comes_up(file, answers):
    refuse(file, answers, *[errno.EINVAL] * (TRIES - 1))
    assert not file.rests(0.0, came_up=False)
    refuse(file, answers, errno.EINVAL)
    assert file.rests(REST - 1, came_up=False)
    assert not file.rests(REST, came_up=False)
    refuse(file, answers, *[errno.EINVAL] * TRIES)
    assert not file.rests(1.0, came_up=True)
    assert not file.rests(1.0, came_up=False)


@pytest.mark.parametrize("between", [errno.EIO, errno.ENODEV, None])
def test_only_refusals_that_follow_each_other_count(file, answers, between):
    refuse(file, answers, *[errno.EINVAL] * (TRIES - 1))
    if between is None:
        assert file.read(0.0) == b"1\n"
    else:
        refuse(file, answers, between)
    refuse(file, answers, *[errno.EINVAL] * (TRIES - 1))
    assert not file.rests(0.0, came_up=False)
    refuse(file, answers, errno.EINVAL)
    assert file.rests(0.0, came_up=False)
