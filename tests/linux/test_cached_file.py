"""Cached files: read through one descriptor that stays open, and suspended after repeated EINVAL."""

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
    """Return a list of errors that the next reads raise; when it is empty, the file is read."""
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


def test_file_is_opened_again_after_enodev(file, answers):
    refuse(file, answers, errno.ENODEV)
    assert file.descriptor == -1
    assert file.read(0.0) == b"1\n"


def test_file_is_suspended_until_its_time_is_over_or_its_link_comes_up(file, answers):
    refuse(file, answers, *[errno.EINVAL] * (MAX_REFUSALS - 1))
    assert not file.is_suspended(0.0, link_came_up=False)
    refuse(file, answers, errno.EINVAL)
    assert file.is_suspended(SUSPENSION_SECONDS - 1, link_came_up=False)
    assert not file.is_suspended(SUSPENSION_SECONDS, link_came_up=False)
    refuse(file, answers, *[errno.EINVAL] * MAX_REFUSALS)
    assert not file.is_suspended(1.0, link_came_up=True)
    assert not file.is_suspended(1.0, link_came_up=False)


@pytest.mark.parametrize("between", [errno.EIO, errno.ENODEV, None])
def test_only_consecutive_refusals_suspend_a_file(file, answers, between):
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
def test_files_with_a_lower_share_are_refused_first(tmp_path, monkeypatch, taken, refused):
    """Raw counters are refused first, then counters; files of links and bursts use up to three quarters."""
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
    assert cached_file.read_small(path) == b"1\n"  # closed again at once, so it always may
