"""Files that are rewritten as a whole: each version is read once, old ones never, and no job delays those of others."""

import os
from pathlib import Path

import pytest

from exporter.linux import rewritten_files
from exporter.linux.rewritten_files import RewrittenFiles


class Folder:
    """A folder of dumps, polled by one tracker; their modification times are counted up, not those of a clock."""

    def __init__(self, path: Path, *, settled: bool = False, max_files: int = 100) -> None:
        self.path = path
        self.tracker = RewrittenFiles(settled=settled, max_files=max_files)
        self.seconds = 0

    def write(self, name: str, content: bytes = b"x") -> None:
        """Write a file later than all others."""
        self.seconds += 1
        (self.path / name).write_bytes(content)
        os.utime(self.path / name, (self.seconds, self.seconds))

    def poll(self) -> list[str]:
        """Read what is ready; return the names in order."""
        self.scan = self.tracker.update({str(one): one.lstat() for one in sorted(self.path.iterdir())})
        for path in self.scan.ready:
            assert self.tracker.read(path) == Path(path).read_bytes()
        return [Path(path).name for path in self.scan.ready]


def test_each_version_is_read_once_and_none_from_before_the_start(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write("old")
    assert folder.poll() == []
    folder.write("new")
    assert [folder.poll(), folder.poll()] == [["new"], []]
    folder.write("old")
    assert [folder.poll(), folder.poll()] == [["old"], []]
    (tmp_path / "old").unlink()
    folder.poll()
    assert folder.scan.gone == {str(tmp_path / "old")}


def test_a_file_is_read_once_it_no_longer_changes(tmp_path: Path) -> None:
    folder = Folder(tmp_path, settled=True)
    folder.poll()
    for size in (1, 2):
        folder.write("a", b"x" * size)
        assert folder.poll() == []
    assert [folder.poll(), folder.poll()] == [["a"], []]


def test_an_old_file_that_the_limit_excluded_stays_old(tmp_path: Path) -> None:
    folder = Folder(tmp_path, max_files=2)
    for name in "abc":
        folder.write(name)
    assert folder.poll() == []
    assert folder.scan.too_many == 1
    (tmp_path / "c").unlink()
    assert folder.poll() == [], "a is as old as the others"
    folder.write("a")
    assert folder.poll() == ["a"]


def test_new_files_are_read_while_the_limit_excludes_old_ones(tmp_path: Path) -> None:
    folder = Folder(tmp_path, max_files=2)
    for name in "abc":
        folder.write(name)
    folder.poll()
    folder.write("d")
    folder.write("a")
    assert folder.poll() == ["a", "d"]
    assert folder.scan.too_many == 2


def test_a_file_that_uses_the_budget_at_each_poll_does_not_delay_others_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewritten_files, "POLL_BUDGET", 100)
    folder = Folder(tmp_path)
    folder.poll()
    folder.write("b", b"y" * 60)
    polls = []
    for _ in range(3):
        folder.write("a", b"x" * 100)
        polls.append(folder.poll())
    assert polls == [["a"], ["b"], ["a"]]


def test_a_file_over_the_budget_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewritten_files, "POLL_BUDGET", 100)
    folder = Folder(tmp_path)
    folder.poll()
    folder.write("a", b"x" * 101)
    folder.write("b")
    scan = folder.tracker.update({str(one): one.lstat() for one in sorted(tmp_path.iterdir())})
    assert [Path(path).name for path in scan.ready] == ["a", "b"]
    with pytest.raises(OSError, match="more than 100 bytes"):
        folder.tracker.read(scan.ready[0])
