"""Discovery of the files of jobs, in folders, one level below, or by shell patterns; and their jobs.

A file's job is never read from its content, which the job itself writes, but from its path: the folder that matches a
wildcard; else the folder below the configured one; else Slurm's name of the output file.
"""

import glob
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from exporter.core.source import Failure
from exporter.sources.nccl.identity import UNKNOWN
from exporter.sources.nccl.readers.files import (
    JOB_FOLDER,
    MAX_ENTRIES,
    job_of_folder,
    listed,
)

_SLURM = re.compile(r"slurm-(\d{1,12})(?:_\d{1,9})?\.\w{1,8}", re.ASCII)


class Found(NamedTuple):
    """The selected files, by path with job and stat; and whether there were more than MAX_ENTRIES."""

    files: dict[str, tuple[str, os.stat_result]]
    truncated: bool


def find(
    patterns: Iterable[str],
    is_wanted: Callable[[str], bool],
    is_selected: Callable[[str], bool],
    failures: list[Failure],
) -> Found:
    """Find files. Blocks.

    Args:
        patterns: Folders or files, or shell patterns of either.
        is_wanted: Filter by file name.
        is_selected: Filter by job name.
        failures: Receives the folders that cannot be listed.
    """
    entries = _entries(patterns, failures)
    files: dict[str, tuple[str, os.stat_result]] = {}
    for path, job in islice(entries, MAX_ENTRIES):
        if path not in files and is_wanted(os.path.basename(path)) and is_selected(job):  # noqa: PTH119  # thousands per poll
            try:
                state = os.lstat(path)
            except OSError:
                continue  # removed since it was listed
            if stat.S_ISREG(state.st_mode):
                files[path] = (job, state)
    return Found(files, next(entries, None) is not None)


def _entries(patterns: Iterable[str], failures: list[Failure]) -> Iterator[tuple[str, str]]:
    """Yield every entry with its job."""
    for pattern in patterns:
        parts = pattern.split("/")
        wild = next((index for index, part in enumerate(parts) if glob.has_magic(part)), None)
        # Path.glob takes no absolute patterns
        for path in glob.iglob(pattern) if wild is not None else (pattern,):  # noqa: PTH207
            is_folder = os.path.isdir(path)  # noqa: PTH112  # one call per entry and poll
            job = UNKNOWN
            if wild is not None and (is_folder or wild < len(parts) - 1):
                job = job_of_folder(path.split("/")[wild])
            elif is_folder and (name := os.path.basename(path.rstrip("/"))).startswith(JOB_FOLDER):  # noqa: PTH119
                job = job_of_folder(name)
            if is_folder:
                yield from _below(path, job, failures)
            else:
                yield path, _job_of(path, job)


def _below(folder: str, job: str, failures: list[Failure]) -> Iterator[tuple[str, str]]:
    """Yield the entries of a folder, and of the folders in it; links to folders are not followed."""
    for entry in listed(folder, job, failures):
        yield entry.path, _job_of(entry.path, job)
        if entry.is_dir(follow_symlinks=False):
            own = job_of_folder(entry.name) if job == UNKNOWN else job
            for below in listed(entry.path, own, failures):
                yield below.path, _job_of(below.path, own)


def _job_of(path: str, job: str) -> str:
    """Return the job of a file: that of its folder if known, else the one in Slurm's name of an output file."""
    found = _SLURM.fullmatch(path.rsplit("/", 1)[-1]) if job == UNKNOWN else None
    return found[1] if found else job
