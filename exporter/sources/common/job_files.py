"""Search for the files that jobs write for the exporter of their host: Inspector's, logs, dumps of profilers.

A file's job is never read from its content, which the job itself writes, but from its path: Inspector's own folder
(`nccl-inspector-<job>`); else the folder that matches a wildcard; else the folder below the configured one; else the
number in Slurm's name of an output file. Writers are untrusted: links below the configured folders are not followed,
only regular files are found, and entries are bounded for each job and for all jobs, so that one job cannot hide the
files of others. The entries of a shared folder itself, which any job may create, have a limit of their own: more than
that many hide some of the folders and files in it, which is reported.
"""

import glob
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import NamedTuple, TypeVar

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
"""Entries of the folders of all jobs together; and those of a folder that jobs share, or matches of a pattern in it."""

MAX_JOB_ENTRIES = 5000
"""Entries of the folders of one job."""

JOB_FOLDER = "nccl-inspector-"
"""Prefix of the folder that Inspector creates for a Slurm job."""

UNKNOWN = "unknown"
"""Job name where it is unknown."""

MAX_NAME = 128
"""Characters of a job name."""

_SLURM = re.compile(r"slurm-(\d{1,12})(?:_\d{1,9})?\.\w{1,8}", re.ASCII)

_Entry = TypeVar("_Entry")


class JobFile(NamedTuple):
    """Job of a file, and its status as of the search."""

    job: str
    status: os.stat_result


class FoundJobFiles(NamedTuple):
    """The folders that exist, and the selected files by path."""

    folders: list[str]
    files: dict[str, JobFile]


@dataclass(frozen=True, slots=True)
class JobFileSearch:
    """What to search for.

    Attributes:
        patterns: Folders or files, or shell patterns of either; files are in a folder or one level below.
        is_wanted: Filter by file name.
        is_selected: Filter by job name; files of other jobs are not touched.
    """

    patterns: tuple[str, ...]
    is_wanted: Callable[[str], bool]
    is_selected: Callable[[str], bool]

    def find(self, failures: list[Failure]) -> FoundJobFiles:
        """Find the files; folders that cannot be listed, and exceeded limits, are appended to `failures`. Blocks."""
        walk = _Walk(self, failures)
        for pattern in self.patterns:
            parts = pattern.split("/")
            wild = next((index for index, part in enumerate(parts) if glob.has_magic(part)), None)
            if wild is None:
                walk.add_configured(pattern)
            else:
                walk.add_matches(pattern, wild, is_last=wild == len(parts) - 1)
        if walk.is_truncated:
            detail = f"more than {MAX_ENTRIES} entries below {', '.join(self.patterns)}; remove those of old jobs"
            failures.append(Failure("", "too_many_files", detail))
        return FoundJobFiles(walk.folders, walk.files)


class _Walk:
    """The walk of one search: what was found so far, and whether there were more entries than allowed."""

    def __init__(self, search: JobFileSearch, failures: list[Failure]) -> None:
        self.folders: list[str] = []
        self.files: dict[str, JobFile] = {}
        self.is_truncated = False
        self._search, self._failures = search, failures
        self._left = MAX_ENTRIES
        self._entries: Counter[str] = Counter()  # by job
        self._selected: dict[str, bool] = {}

    def add_configured(self, path: str) -> None:
        """Add a file or folder that the configuration names; the folder is of one job if Inspector created it."""
        name = _name(path.rstrip("/"))
        if not os.path.isdir(path):  # noqa: PTH112  # one call per path and poll
            self._add_file(path, name, UNKNOWN)
        elif name.startswith(JOB_FOLDER):
            self._add_folder(path, job_of_folder(name), is_shared=False)
        else:
            self._add_folder(path, UNKNOWN, is_shared=True)

    def add_matches(self, pattern: str, wild: int, *, is_last: bool) -> None:
        """Add what a pattern matches.

        Args:
            pattern: The pattern.
            wild: Index of its first part with a wildcard, which matches the folder of a job.
            is_last: Whether that part is the last one: it also matches files, which are of no job.
        """
        matches = glob.iglob(pattern)  # noqa: PTH207  # Path.glob takes no absolute patterns
        for path in self._first(matches) if is_last else matches:
            job = job_of_folder(path.split("/")[wild])
            if not is_last and not self._take(job, pattern):
                continue
            if os.path.isdir(path):  # noqa: PTH112  # one call per match and poll
                self._add_folder(path, job, is_shared=False)
            else:
                self._add_file(path, _name(path), UNKNOWN if is_last else job)

    def _add_folder(self, folder: str, job: str, *, is_shared: bool) -> None:
        """Add the files of a folder, and those of the folders in it."""
        self.folders.append(folder)
        for entry in self._listed(folder, job, is_shared=is_shared):
            if entry.is_dir(follow_symlinks=False):
                own = _inner_job(entry.name, job)
                for below in self._listed(entry.path, own, is_shared=False):
                    if below.is_file(follow_symlinks=False):
                        self._add_file(below.path, below.name, own)
            elif entry.is_file(follow_symlinks=False):
                self._add_file(entry.path, entry.name, job)

    def _add_file(self, path: str, name: str, job: str) -> None:
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

    def _listed(self, folder: str, job: str, *, is_shared: bool) -> list[os.DirEntry[str]]:
        """List a folder, of a job or of all; a missing folder is not an error."""
        try:
            with os.scandir(folder) as found:
                return self._first(found) if is_shared else list(takewhile(lambda _: self._take(job, folder), found))
        except FileNotFoundError:
            return []
        except OSError as error:
            self._failures.append(failure_of(job, error, folder))
            return []

    def _first(self, entries: Iterable[_Entry]) -> list[_Entry]:
        """Return the entries of a shared folder, of too many the first."""
        first = list(islice(entries, MAX_ENTRIES + 1))
        self.is_truncated |= len(first) > MAX_ENTRIES
        return first[:MAX_ENTRIES]

    def _take(self, job: str, place: str) -> bool:
        """Count an entry of a job; return False, and report it once, if that is one too many."""
        if self._entries[job] >= MAX_JOB_ENTRIES:
            if self._entries[job] == MAX_JOB_ENTRIES:
                self._entries[job] += 1  # it is reported
                detail = f"more than {MAX_JOB_ENTRIES} entries in {place}; remove old ones"
                self._failures.append(Failure(job, "too_many_files", detail))
            return False
        if self._left <= 0:
            self.is_truncated = True
            return False
        self._entries[job] += 1
        self._left -= 1
        return True


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
