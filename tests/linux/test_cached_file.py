"""Files that stay open: read through one descriptor, and left alone where they only ever refuse."""

import errno
import os

import pytest

from exporter.linux import cached_file
from exporter.linux.cached_file import (
    COUNTERS_SHARE,
    MAX_REFUSALS,
    RAW_SHARE,
    SUSPENSION_SECONDS,
    CachedFile,
)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "counter"
    path.write_text("1\n")
    made = CachedFile(str(path))
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

    monkeypatch.setattr(cached_file.os, "pread", read_at)
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
    refuse(file, answers, *[errno.EINVAL] * (MAX_REFUSALS - 1))
    assert not file.is_suspended(0.0, link_came_up=False)
    refuse(file, answers, errno.EINVAL)
    assert file.is_suspended(SUSPENSION_SECONDS - 1, link_came_up=False)
    assert not file.is_suspended(SUSPENSION_SECONDS, link_came_up=False)
    refuse(file, answers, *[errno.EINVAL] * MAX_REFUSALS)
    assert not file.is_suspended(1.0, link_came_up=True)
    assert not file.is_suspended(1.0, link_came_up=False)


@pytest.mark.parametrize("between", [errno.EIO, errno.ENODEV, None])
def test_only_refusals_that_follow_each_other_count(file, answers, between):
    refuse(file, answers, *[errno.EINVAL] * (MAX_REFUSALS - 1))
    if between is None:
        assert file.read(0.0) == b"1\n"
    else:
        refuse(file, answers, between)
    refuse(file, answers, *[errno.EINVAL] * (MAX_REFUSALS - 1))
    assert not file.is_suspended(0.0, link_came_up=False)
    refuse(file, answers, errno.EINVAL)
    assert file.is_suspended(0.0, link_came_up=False)


@pytest.mark.parametrize(("taken", "refused"), [(0.45, 0), (0.55, 1), (0.7, 2), (0.8, 3)])
def test_what_is_many_leaves_descriptors_to_what_is_few(tmp_path, monkeypatch, taken, refused):
    """Raw counters stop first, then counters; files that tell of links and bursts go on to three quarters."""
    path = tmp_path / "counter"
    path.write_text("1\n")
    lowest = os.dup(0)
    os.close(lowest)
    monkeypatch.setattr(cached_file.resource, "getrlimit", lambda _: (round(lowest / taken), 0))
    answers = []
    for share in (RAW_SHARE, COUNTERS_SHARE, cached_file.DESCRIPTOR_SHARE):
        file = CachedFile(str(path), share)
        try:
            answers.append(file.read(0.0))
        except OSError as error:
            answers.append(error.errno)
        file.close()
    assert answers == [errno.EMFILE] * refused + [b"1\n"] * (3 - refused)
    assert cached_file.read_small(path) == b"1\n"  # at once closed again: it always may
