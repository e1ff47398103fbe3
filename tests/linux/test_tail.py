"""Tails of growing files: complete lines only, each once, whatever the writer does, and within limits."""

import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.linux import tail
from exporter.linux.tail import (
    HEAD_SIZE,
    MAX_LINE,
    START_WINDOW,
    Tail,
)


def states(folder: Path) -> dict[str, os.stat_result]:
    return {str(path): path.lstat() for path in sorted(folder.iterdir())}


def read_all(reader: Tail, folder: Path, budget: int = tail.FILE_BUDGET) -> list[bytes]:
    """Read until nothing is left, and return the lines that are not history."""
    lines = []
    for _ in range(200):
        grown = reader.scan(states(folder)).grown
        before = [(one.offset, one.skipping) for one in grown]
        for one in grown:
            lines += [line.text for line in reader.read(one, budget).lines if not line.history]
        if [(one.offset, one.skipping) for one in grown] == before:
            return lines
    raise AssertionError("reading never ended")


def started(folder: Path) -> Tail:
    reader = Tail()
    reader.scan({})
    return reader


TEXTS = st.lists(st.binary(min_size=1, max_size=30).filter(lambda text: not set(text) & set(b"\n\r\0")), max_size=20)


@settings(max_examples=60, deadline=None)
@given(TEXTS, st.lists(st.integers(0, 400), max_size=8), st.integers(40, 100))
def test_lines_do_not_depend_on_how_writes_are_split(tmp_path_factory, texts, cuts, budget):
    folder = tmp_path_factory.mktemp("split")
    data = b"".join(text + b"\n" for text in texts)
    reader, path, lines = started(folder), folder / "a.log", []
    path.touch()
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    for begin, end in pairwise(places):
        with path.open("ab") as file:
            file.write(data[begin:end])
        lines += read_all(reader, folder, budget)
    assert lines == texts


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["append", "replace", "cut"]), st.integers(1, 3)), max_size=10))
def test_replaced_or_truncated_files_are_read_from_the_beginning(tmp_path_factory, actions):
    folder = tmp_path_factory.mktemp("changes")
    reader, path = started(folder), folder / "a.log"
    got, expected = [], []
    path.touch()
    for number, (action, count) in enumerate(actions):
        new = [b"line %d %d" % (number, place) for place in range(count)]
        data = b"".join(one + b"\n" for one in new)
        if action == "append":
            with path.open("ab") as file:
                file.write(data)
        elif action == "replace":
            (folder / "new").write_bytes(data)
            (folder / "new").rename(path)
        else:
            path.write_bytes(data)  # the same inode, truncated and written again
        expected += new
        got += read_all(reader, folder)
    assert got == expected


def test_file_truncated_and_grown_between_scans_is_read_from_the_beginning(tmp_path):
    reader, path = started(tmp_path), tmp_path / "a.log"
    path.write_bytes(b"old 1\nold 2\n")
    assert read_all(reader, tmp_path) == [b"old 1", b"old 2"]
    inode = path.stat().st_ino
    path.write_bytes(b"new 1\nnew 2\nnew 3\n")
    assert path.stat().st_ino == inode
    assert read_all(reader, tmp_path) == [b"new 1", b"new 2", b"new 3"]


def test_file_replaced_by_a_longer_one_with_the_same_head_is_read_from_the_beginning(tmp_path):
    reader, path = started(tmp_path), tmp_path / "a.log"
    path.write_bytes(b"1\n2\n")
    assert read_all(reader, tmp_path) == [b"1", b"2"]
    (tmp_path / "new").write_bytes(b"1\n2\n3\n")
    (tmp_path / "new").rename(path)
    assert read_all(reader, tmp_path) == [b"1", b"2", b"3"]


def test_file_replaced_within_a_discarded_line_is_read_from_its_first_line(tmp_path):
    reader, path = started(tmp_path), tmp_path / "a.log"
    path.write_bytes(b"x" * (MAX_LINE + 1))
    assert read_all(reader, tmp_path) == []
    path.write_bytes(b"1\n2\n")
    assert read_all(reader, tmp_path) == [b"1", b"2"]


def test_hole_after_truncation_is_skipped(tmp_path):
    reader, path = started(tmp_path), tmp_path / "a.log"
    with path.open("wb", buffering=0) as file:
        file.write(b"x" * 99 + b"\n")
        file.seek(40_000_000)
        file.write(b"old\n")
        os.truncate(path, 0)
        file.seek(30_000_000)
        file.write(b"first after\nsecond after\n")
    assert read_all(reader, tmp_path) == [b"first after", b"second after"]
    with path.open("wb", buffering=0) as file:
        file.seek(30_000_000)
        file.write(b"third after\n")
    chunk = reader.read(reader.scan(states(tmp_path)).grown[0])
    assert chunk.restarted
    assert chunk.read < 10_000, "the hole itself is not read"
    assert [line.text for line in chunk.lines] == [b"third after"]


def test_lines_from_before_the_start_are_history(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(b"old\nhalf")
    reader = Tail()
    assert reader.scan(states(tmp_path)).grown == [], "an old file that does not grow is never opened"
    with path.open("ab") as file:
        file.write(b" done\nnew\n")
    chunk = reader.read(reader.scan(states(tmp_path)).grown[0])
    assert [(line.text, line.history) for line in chunk.lines] == [
        (b"old", True),
        (b"half done", False),
        (b"new", False),
    ]


def test_the_beginning_of_an_old_file_is_read_as_history_where_wanted(tmp_path):
    lines = [b"%07d" % number for number in range(START_WINDOW // 4)]
    (tmp_path / "large").write_bytes(b"".join(line + b"\n" for line in lines))
    (tmp_path / "small").write_bytes(b"1\n2\nhalf")
    reader = Tail(first_bytes=20)
    large, small = reader.scan(states(tmp_path)).grown
    assert [line.text for line in reader.read(small).lines] == [b"1", b"2"]
    chunk = reader.read(large)
    assert [line.text for line in chunk.lines] == [*lines[:2], *lines[-START_WINDOW // 8 + 1 :]]
    assert chunk.read == 20 + START_WINDOW
    assert all(line.history for line in chunk.lines)
    assert reader.scan(states(tmp_path)).grown == [], "once"
    with (tmp_path / "large").open("ab") as file:
        file.write(b"new\n")
    (grown,) = reader.scan(states(tmp_path)).grown
    assert [(line.text, line.history) for line in reader.read(grown).lines] == [(b"new", False)]


def test_only_the_end_of_a_large_old_file_is_read(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(b"".join(b"%07d\n" % number for number in range(START_WINDOW // 4)))
    reader = Tail()
    reader.scan(states(tmp_path))
    with path.open("ab") as file:
        file.write(b"new\n")
    chunk = reader.read(reader.scan(states(tmp_path)).grown[0])
    assert chunk.read == START_WINDOW + 4
    assert [line.text for line in chunk.lines if not line.history] == [b"new"]
    assert chunk.lines[0].text == b"%07d" % (START_WINDOW // 4 - START_WINDOW // 8 + 1), "the cut line is left out"
    assert chunk.skipped == 0


def test_too_long_line_is_discarded_and_counted_once(tmp_path):
    reader, path = started(tmp_path), tmp_path / "a.log"
    path.write_bytes(b"before\n" + b"x" * (5 * MAX_LINE))
    counted = []
    for _ in range(6):
        for one in reader.scan(states(tmp_path)).grown:
            chunk = reader.read(one)
            counted += chunk.too_long
            assert not chunk.lines or chunk.lines[0].text == b"before"
    with path.open("ab") as file:
        file.write(b"xx\nafter\n" + b"y" * (MAX_LINE + 1) + b"\nlast\n")
    for _ in range(3):
        for one in reader.scan(states(tmp_path)).grown:
            chunk = reader.read(one)
            counted += chunk.too_long
            if chunk.lines:
                assert [line.text for line in chunk.lines] == [b"after", b"last"]
    assert counted == [7, 7 + 5 * MAX_LINE + 9]


def test_backlog_is_read_within_the_budget_and_skipped_when_too_large(tmp_path, monkeypatch):
    monkeypatch.setattr(tail, "MAX_BACKLOG", 3 * START_WINDOW)
    reader, path = started(tmp_path), tmp_path / "a.log"
    lines = [b"%015d" % number for number in range(2 * START_WINDOW // 16)]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    (one,) = reader.scan(states(tmp_path)).grown
    first = reader.read(one, 1024)
    assert [line.text for line in first.lines] == lines[:64]
    assert read_all(reader, tmp_path, 65_536) == lines[64:]
    with path.open("ab") as file:
        file.write(b"".join(line + b"\n" for line in lines * 2))
    chunk = reader.read(reader.scan(states(tmp_path)).grown[0])
    assert chunk.skipped == 3 * START_WINDOW
    assert chunk.lines[-1].text == lines[-1]
    assert not any(line.history for line in chunk.lines)


def test_longest_unread_files_come_first(tmp_path):
    reader = started(tmp_path)
    for name in "abc":
        (tmp_path / name).write_bytes(b"1\n2\n")
    assert [Path(one.path).name for one in reader.scan(states(tmp_path)).grown] == ["a", "b", "c"]
    reader.read(reader.files[str(tmp_path / "a")], 2)
    assert [Path(one.path).name for one in reader.scan(states(tmp_path)).grown] == ["b", "c", "a"]


def test_removed_files_are_reported_and_the_newest_files_are_followed(tmp_path):
    reader = Tail(max_files=2)
    for place, name in enumerate("abc"):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (place, place))
    assert reader.scan(states(tmp_path)).too_many == 1
    assert {Path(path).name for path in reader.files} == {"b", "c"}
    (tmp_path / "c").unlink()
    result = reader.scan(states(tmp_path))
    assert [Path(one.path).name for one in result.gone] == ["c"]
    assert result.too_many == 0
    assert {Path(path).name for path in reader.files} == {"a", "b"}


@pytest.mark.timeout(10)
def test_anything_but_regular_files_is_rejected(tmp_path):
    reader, target = started(tmp_path), tmp_path / "target"
    target.write_bytes(b"secret\n")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(target)
    (tmp_path / "loop").symlink_to("loop")
    assert [Path(one.path).name for one in reader.scan(states(tmp_path)).grown] == ["target"]
    for name in ("fifo", "folder", "link", "loop"):  # as if put in a file's place after it was listed
        with pytest.raises(OSError, match=name if "fo" not in name else "regular"):
            reader.read(tail.FollowedFile(str(tmp_path / name), (0, 0)))


def test_growing_head_is_not_a_replacement(tmp_path):
    reader, path = started(tmp_path), tmp_path / "a.log"
    lines = [b"%d" % number for number in range(3 * HEAD_SIZE)]
    got = []
    for line in lines[:100]:
        with path.open("ab") as file:
            file.write(line + b"\n")
        got += read_all(reader, tmp_path)
    assert got == lines[:100]
