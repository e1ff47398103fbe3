"""The search for files of jobs: what is found, whose it is, and that no job hides the files of another."""

import os
from pathlib import Path

import pytest

from exporter.sources.common import job_files
from exporter.sources.common.job_files import MAX_NAME, JobFileSearch


def write(path: Path, text: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)
    return path


def everything(_: str) -> bool:
    return True


class Folder:
    """A folder to search in; `failures` of jobs, and whether entries of all were cut, are those of the last search."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def find(self, *patterns: str, is_wanted=everything, is_selected=everything) -> dict[str, str]:
        """Return the job of each file."""
        failures = []
        search = JobFileSearch(tuple(str(self.path / one) for one in patterns), is_wanted, is_selected)
        self.folders, files = search.find(failures)
        self.failures = [one for one in failures if one.device]
        others = [(one.reason, one.detail.partition(" below ")[0]) for one in failures if not one.device]
        assert others in ([], [("too_many_files", f"more than {job_files.MAX_ENTRIES} entries")])
        self.truncated = bool(others)
        return {path.removeprefix(f"{self.path}/"): one.job for path, one in files.items()}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_files_and_their_jobs(folder: Folder) -> None:
    for path in ("nccl-inspector-12/a.log", "top.log", "one/a.log", "one/two/deeper.log", "wild-3/sub/a.log"):
        write(folder.path / path)
    os.mkfifo(folder.path / "pipe.log")
    (folder.path / "link.log").symlink_to(folder.path / "top.log")
    (folder.path / "linked").symlink_to(folder.path / "one")
    for patterns, expected in (
        (("",), {"nccl-inspector-12/a.log": "12", "top.log": "unknown", "one/a.log": "one"}),
        (("nccl-inspector-12",), {"nccl-inspector-12/a.log": "12"}),
        (("wild-*",), {"wild-3/sub/a.log": "wild-3"}),
        (("wild-*/sub/*.log",), {"wild-3/sub/a.log": "wild-3"}),
        (("*.log",), {"top.log": "unknown"}),
        (("nowhere", "no*where"), {}),
        (("one", "one/a.log", "o*e"), {"one/a.log": "unknown", "one/two/deeper.log": "two"}),
    ):
        assert folder.find(*patterns) == expected, patterns
        assert (folder.failures, folder.truncated) == ([], False)


def test_the_most_specific_part_of_a_path_names_the_job(folder: Folder) -> None:
    for path in (
        "users/ann/nccl-inspector-12/a.log",
        "users/ann/nccl-inspector-unknown-jobid/a.log",
        "users/ann/runs/a.log",
        "flat/slurm-77.out",
        "flat/slurm-78_3.out",
        "flat/77.out",
        f"flat/{'x' * 200}/a.log",
    ):
        write(folder.path / path)
    assert folder.find("users/*") == {
        "users/ann/nccl-inspector-12/a.log": "12",
        "users/ann/nccl-inspector-unknown-jobid/a.log": "ann",
        "users/ann/runs/a.log": "ann",
    }
    assert folder.find("flat") == {
        "flat/slurm-77.out": "77",
        "flat/slurm-78_3.out": "78",
        "flat/77.out": "unknown",
        f"flat/{'x' * 200}/a.log": "x" * MAX_NAME,
    }


def test_files_are_filtered_by_name_and_by_job(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ("a/1.log", "a/2.txt", "b/1.log", "slurm-7.log"):
        write(folder.path / path)
    touched = []
    lstat = os.lstat
    monkeypatch.setattr(os, "lstat", lambda path: touched.append(str(path)) or lstat(path))
    found = folder.find("", is_wanted=lambda name: name.endswith(".log"), is_selected=lambda job: job != "b")
    assert found == {"a/1.log": "a", "slurm-7.log": "7"}
    assert {path.removeprefix(f"{folder.path}/") for path in touched} & {"b/1.log", "a/2.txt"} == set()


def test_a_job_with_too_many_files_does_not_hide_those_of_others(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_files, "MAX_JOB_ENTRIES", 10)
    monkeypatch.setattr(job_files, "MAX_ENTRIES", 100)
    for job in "abcdef":
        for number in range(100 if job in "ae" else 5):
            write(folder.path / job / f"{number}.log")
    found = list(folder.find("").values())
    assert {job: found.count(job) for job in "abcdef"} == {"a": 10, "b": 5, "c": 5, "d": 5, "e": 10, "f": 5}
    assert sorted((one.device, one.reason) for one in folder.failures) == [
        ("a", "too_many_files"),
        ("e", "too_many_files"),
    ]
    assert f"more than 10 entries in {folder.path}/" in folder.failures[0].detail
    assert not folder.truncated


@pytest.mark.parametrize("pattern", ["shared/*", "shared/*/*.log", "shared/*/sub/*.log"])
def test_a_job_with_too_many_files_does_not_hide_those_that_a_pattern_matches(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    monkeypatch.setattr(job_files, "MAX_JOB_ENTRIES", 10)
    monkeypatch.setattr(job_files, "MAX_ENTRIES", 40)
    below = "sub" if "sub" in pattern else "."
    for job in "abcdef":
        for number in range(50 if job in "ae" else 5):
            write(folder.path / "shared" / job / below / f"{number}.log")
    found = list(folder.find(pattern).values())
    assert {job: found.count(job) for job in "abcdef"} == {"a": 10, "b": 5, "c": 5, "d": 5, "e": 10, "f": 5}
    assert sorted((one.device, one.reason) for one in folder.failures) == [
        ("a", "too_many_files"),
        ("e", "too_many_files"),
    ]
    assert not folder.truncated


def test_the_folders_of_a_job_have_one_limit(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_files, "MAX_JOB_ENTRIES", 10)
    monkeypatch.setattr(job_files, "MAX_ENTRIES", 20)
    for part in range(6):
        for number in range(5):
            write(folder.path / "shared" / "big" / f"{part}" / f"{number}.log")
    write(folder.path / "shared" / "small" / "1.log")
    found = folder.find("shared/*")
    assert {path.rpartition("/")[2] for path, job in found.items() if job == "small"} == {"1.log"}
    assert [(one.device, one.reason) for one in folder.failures] == [("big", "too_many_files")], "reported once"
    assert not folder.truncated


def test_files_in_a_shared_folder_itself_do_not_use_the_entries_of_jobs(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_files, "MAX_ENTRIES", 20)
    for number in range(15):
        write(folder.path / "shared" / f"{number}.log")
        write(folder.path / "shared" / "a" / f"{number}.log")
    for pattern in ("shared", "shared/*"):
        assert sorted(folder.find(pattern).values()) == ["a"] * 15 + ["unknown"] * 15
        assert (folder.failures, folder.truncated) == ([], False)


def test_entries_of_all_folders_are_bounded(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_files, "MAX_ENTRIES", 20)
    for job in range(10):
        for number in range(3):
            write(folder.path / "jobs" / f"{job}" / f"{number}.log")
    for number in range(21):
        write(folder.path / "flat" / f"{number}.log")
    for pattern in ("jobs", "jobs/*", "jobs/*/*.log", "flat", "flat/*"):
        assert len(folder.find(pattern)) == 20, pattern
        assert folder.truncated, pattern


def test_a_folder_that_cannot_be_listed_fails_alone(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder.path / "a" / "1.log")
    write(folder.path / "b" / "1.log")
    scandir = os.scandir

    def refuse(path):
        if str(path).endswith("/a"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert folder.find("") == {"b/1.log": "b"}
    assert [(one.device, one.reason) for one in folder.failures] == [("a", "eacces")]


def test_a_folder_removed_during_the_search_is_no_failure(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder.path / "a" / "1.log")
    scandir = os.scandir

    def gone(path):
        if str(path).endswith("/a"):
            raise FileNotFoundError(2, "No such file or directory")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", gone)
    assert folder.find("") == {}
    assert folder.failures == []
