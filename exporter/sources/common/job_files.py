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


class _Entry(NamedTuple):
    """A file or an entry of a folder, its job, and whether it may be a regular file."""

    path: str
    name: str
    job: str
    is_file: bool


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
        found = Found([], {}, False)
        entries = self._entries(found.folders, failures)
        selected: dict[str, bool] = {}
        for path, name, job, is_file in islice(entries, MAX_ENTRIES):
            if not is_file or path in found.files or not self.is_wanted(name):
                continue
            if job not in selected:
                selected[job] = self.is_selected(job)
            if not selected[job]:
                continue
            try:
                status = os.lstat(path)
            except OSError:
                continue  # removed since it was listed
            if stat.S_ISREG(status.st_mode):
                found.files[path] = JobFile(job, status)
        return found._replace(truncated=next(entries, None) is not None)

    def _entries(self, folders: list[str], failures: list[Failure]) -> Iterator[_Entry]:
        for pattern in self.patterns:
            for path, job, is_folder in _places(pattern):
                if is_folder:
                    folders.append(path)
                    yield from _below(path, job, failures)
                else:
                    name = path.rpartition("/")[2]
                    yield _Entry(path, name, _job_of(name, job), is_file=True)


def _places(pattern: str) -> Iterator[_Place]:
    """Yield what a pattern matches."""
    parts = pattern.split("/")
    wild = next((index for index, part in enumerate(parts) if glob.has_magic(part)), None)
    # Path.glob takes no absolute patterns
    for path in islice(glob.iglob(pattern), MAX_ENTRIES) if wild is not None else (pattern,):  # noqa: PTH207
        is_folder = os.path.isdir(path)  # noqa: PTH112  # one call per place and poll
        job, name = UNKNOWN, path.rstrip("/").rpartition("/")[2]
        if wild is not None and (is_folder or wild < len(parts) - 1):
            job = job_of_folder(path.split("/")[wild])
        elif is_folder and name.startswith(JOB_FOLDER):
            job = job_of_folder(name)
        yield _Place(path, job, is_folder)


def _below(folder: str, job: str, failures: list[Failure]) -> Iterator[_Entry]:
    """Yield the entries of a folder, and of the folders in it."""
    for entry in _listed(folder, job, failures):
        yield _entry(entry, job)
        if entry.is_dir(follow_symlinks=False):
            inner = job_of_folder(entry.name)
            own = inner if job == UNKNOWN or (inner != UNKNOWN and entry.name.startswith(JOB_FOLDER)) else job
            below = _listed(entry.path, own, failures)
            for one in islice(below, MAX_JOB_ENTRIES):
                yield _entry(one, own)
            if next(below, None) is not None:
                detail = f"more than {MAX_JOB_ENTRIES} entries in {entry.path}; remove old ones"
                failures.append(Failure(own, "too_many_files", detail))


def _listed(folder: str, job: str, failures: list[Failure]) -> Iterator[os.DirEntry[str]]:
    """List a folder of a job; a missing folder is not an error."""
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except FileNotFoundError:
        return
    except OSError as error:
        failures.append(failure_of(job, error, folder))


def _entry(entry: os.DirEntry[str], job: str) -> _Entry:
    return _Entry(entry.path, entry.name, _job_of(entry.name, job), entry.is_file(follow_symlinks=False))


def _job_of(name: str, job: str) -> str:
    """Return the job of a file: that of its folder if known, else the one in Slurm's name of an output file."""
    found = _SLURM.fullmatch(name) if job == UNKNOWN else None
    return found[1] if found else job


def job_of_folder(folder: str) -> str:
    """Return the job name in the name of a folder."""
    job = folder.removeprefix(JOB_FOLDER)[:MAX_NAME]
    return UNKNOWN if job in {"", "unknown-jobid"} else job
