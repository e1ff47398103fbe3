"""Search for the files that jobs write for the exporter of their host: Inspector's, logs, dumps of profilers.

A file's job is never read from its content, which the job itself writes, but from its path: Inspector's own folder
(`nccl-inspector-<job>`); else the folder that matches a wildcard; else the folder below the configured one; else the
number in Slurm's name of an output file. Writers are untrusted: links below the configured folders are not followed,
only regular files are found, and entries are bounded for each job's folder and for all, so that one job cannot hide the
files of others.
"""

import glob
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from exporter.core.source import Failure
from exporter.sources.common.failures import failure_of

FOLDER = "/run/fabric-exporter"
"""Folder that a host's exporter and its jobs share by default."""

INSPECTOR_FOLDER = f"{FOLDER}/nccl"
"""Default folder of Inspector's files."""

LOG_FOLDER = f"{FOLDER}/nccl-logs"
"""Default folder of NCCL's logs."""

TIMING_SOCKET = f"{FOLDER}/timing.sock"
"""Default socket of `fabric_timing.py`."""

MAX_ENTRIES = 20_000
"""Entries of all folders together."""

MAX_JOB_ENTRIES = 5000
"""Entries of a folder below a configured one."""

JOB_FOLDER = "nccl-inspector-"
"""Prefix of the folder that Inspector creates for a Slurm job."""

UNKNOWN = "unknown"
"""Job name where it is unknown."""

MAX_NAME = 128
"""Characters of a job name."""

_SLURM = re.compile(r"slurm-(\d{1,12})(?:_\d{1,9})?\.\w{1,8}", re.ASCII)


class JobFile(NamedTuple):
    """Job of a file, and its status as of the search."""

    job: str
    status: os.stat_result


class Found(NamedTuple):
    """The folders that exist, the selected files by path, and whether there were more than MAX_ENTRIES."""

    folders: list[str]
    files: dict[str, JobFile]
    truncated: bool


class _Place(NamedTuple):
    """A folder or file that a pattern matches, and the job that its path names."""

    path: str
    job: str
    is_folder: bool


@dataclass(frozen=True, slots=True)
class Search:
    """What to search for.

    Attributes:
        patterns: Folders or files, or shell patterns of either; files are in a folder or one level below.
        is_wanted: Filter by file name.
        is_selected: Filter by job name; files of other jobs are not touched.
    """

    patterns: tuple[str, ...]
    is_wanted: Callable[[str], bool]
    is_selected: Callable[[str], bool]

    def find(self, failures: list[Failure]) -> Found:
        """Find the files; folders that cannot be listed are appended to `failures`. Blocks."""
        walk = _Walk(self, failures)
        folders = []
        for pattern in self.patterns:
            for path, job, is_folder in _places(pattern):
                if is_folder:
                    folders.append(path)
                    walk.add_folder(path, job)
                else:
                    walk.add_file(path, _name(path), job)
        return Found(folders, walk.files, walk.truncated)


def _places(pattern: str) -> Iterator[_Place]:
    """Yield what a pattern matches."""
    parts = pattern.split("/")
    wild = next((index for index, part in enumerate(parts) if glob.has_magic(part)), None)
    # Path.glob takes no absolute patterns
    for path in islice(glob.iglob(pattern), MAX_ENTRIES) if wild is not None else (pattern,):  # noqa: PTH207
        is_folder = os.path.isdir(path)  # noqa: PTH112  # one call per place and poll
        job, name = UNKNOWN, _name(path.rstrip("/"))
        if wild is not None and (is_folder or wild < len(parts) - 1):
            job = job_of_folder(path.split("/")[wild])
        elif is_folder and name.startswith(JOB_FOLDER):
            job = job_of_folder(name)
        yield _Place(path, job, is_folder)


class _Walk:
    """The walk of one search: the files found so far, and whether there were more entries than allowed."""

    def __init__(self, search: Search, failures: list[Failure]) -> None:
        self.files: dict[str, JobFile] = {}
        self.truncated = False
        self._search, self._failures = search, failures
        self._left = MAX_ENTRIES
        self._selected: dict[str, bool] = {}

    def add_folder(self, folder: str, job: str) -> None:
        """Add the files of a folder, and those of the folders in it."""
        for entry in self._listed(folder, job, MAX_ENTRIES):
            if entry.is_dir(follow_symlinks=False):
                own = _inner_job(entry.name, job)
                for below in self._listed(entry.path, own, MAX_JOB_ENTRIES):
                    if below.is_file(follow_symlinks=False):
                        self.add_file(below.path, below.name, own)
            elif entry.is_file(follow_symlinks=False):
                self.add_file(entry.path, entry.name, job)

    def add_file(self, path: str, name: str, job: str) -> None:
        """Add one file if it is wanted."""
        if path in self.files or not self._search.is_wanted(name):
            return
        if job == UNKNOWN and (found := _SLURM.fullmatch(name)):
            job = found[1]
        if job not in self._selected:
            self._selected[job] = self._search.is_selected(job)
        if not self._selected[job]:
            return
        try:
            status = os.lstat(path)
        except OSError:
            return  # removed since it was listed
        if stat.S_ISREG(status.st_mode):
            self.files[path] = JobFile(job, status)

    def _listed(self, folder: str, job: str, limit: int) -> list[os.DirEntry[str]]:
        """List a folder of a job; a missing folder is not an error."""
        try:
            with os.scandir(folder) as found:
                entries = list(islice(found, min(limit, self._left) + 1))
        except FileNotFoundError:
            return []
        except OSError as error:
            self._failures.append(failure_of(job, error, folder))
            return []
        if len(entries) > self._left:
            self.truncated = True
        elif len(entries) > limit:
            detail = f"more than {limit} entries in {folder}; remove old ones"
            self._failures.append(Failure(job, "too_many_files", detail))
        entries = entries[: min(limit, self._left)]
        self._left -= len(entries)
        return entries


def _inner_job(folder: str, job: str) -> str:
    """Return the job of a folder inside a folder of a job."""
    inner = job_of_folder(folder)
    return inner if job == UNKNOWN or (inner != UNKNOWN and folder.startswith(JOB_FOLDER)) else job


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def job_of_folder(folder: str) -> str:
    """Return the job name in the name of a folder."""
    job = folder.removeprefix(JOB_FOLDER)[:MAX_NAME]
    return UNKNOWN if job in {"", "unknown-jobid"} else job
