"""Which files of jobs there are, and whose: in folders, one level below, or named by shell patterns.

A job is never told by what stands in a file, which the job itself writes, but by where the file lies: by the folder
that a wildcard stands for; else by the folder below the one that is configured; else by Slurm's name of the file.
"""

import glob
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from exporter.core.source import Failure
from exporter.linux.untrusted_files import open_untrusted
from exporter.sources.nccl.identity import UNKNOWN
from exporter.sources.nccl.readers.files import (
    JOB_FOLDER,
    MAX_ENTRIES,
    job_of_folder,
    listed,
)

_SLURM = re.compile(r"slurm-(\d{1,12})(?:_\d{1,9})?\.\w{1,8}", re.ASCII)


class Found(NamedTuple):
    """The files that are wanted, by path: job and state; and whether there were more entries than are looked at."""

    files: dict[str, tuple[str, os.stat_result]]
    cut: bool


def find(
    patterns: Iterable[str],
    takes: Callable[[str], bool],
    wants: Callable[[str], bool],
    failures: list[Failure],
) -> Found:
    """Look for files. Blocks.

    Args:
        patterns: Folders or files, or shell patterns of such.
        takes: Tells by its name whether a file is one to be read.
        wants: Tells by its name whether a job is wanted.
        failures: Where folders that cannot be listed are told.
    """
    entries = _entries(patterns, failures)
    files: dict[str, tuple[str, os.stat_result]] = {}
    for path, job in islice(entries, MAX_ENTRIES):
        if path not in files and takes(os.path.basename(path)) and wants(job):  # noqa: PTH119  # thousands a poll
            try:
                state = os.lstat(path)
            except OSError:
                continue  # gone between listing and now
            if stat.S_ISREG(state.st_mode):
                files[path] = (job, state)
    return Found(files, next(entries, None) is not None)


def _entries(patterns: Iterable[str], failures: list[Failure]) -> Iterator[tuple[str, str]]:
    """Give every entry with its job."""
    for pattern in patterns:
        parts = pattern.split("/")
        wild = next((place for place, part in enumerate(parts) if glob.has_magic(part)), None)
        # Path.glob takes no absolute patterns
        for path in glob.iglob(pattern) if wild is not None else (pattern,):  # noqa: PTH207
            is_folder = os.path.isdir(path)  # noqa: PTH112  # one call an entry and poll
            job = UNKNOWN
            if wild is not None and (is_folder or wild < len(parts) - 1):
                job = job_of_folder(path.split("/")[wild])
            elif is_folder and (name := os.path.basename(path.rstrip("/"))).startswith(JOB_FOLDER):  # noqa: PTH119
                job = job_of_folder(name)
            if is_folder:
                yield from _below(path, job, failures)
            else:
                yield path, _told(path, job)


def _below(folder: str, job: str, failures: list[Failure]) -> Iterator[tuple[str, str]]:
    """Give what is in a folder, and in the folders in it; links to folders are not followed."""
    for entry in listed(folder, job, failures):
        yield entry.path, _told(entry.path, job)
        if entry.is_dir(follow_symlinks=False):
            own = job_of_folder(entry.name) if job == UNKNOWN else job
            for below in listed(entry.path, own, failures):
                yield below.path, _told(below.path, own)


def _told(path: str, job: str) -> str:
    """Give the job of a file: where its folder tells none, that in the name which Slurm gives to outputs."""
    found = _SLURM.fullmatch(path.rsplit("/", 1)[-1]) if job == UNKNOWN else None
    return found[1] if found else job


def read_whole(path: str, limit: int) -> tuple[bytes, os.stat_result]:
    """Read a file as it is now. Blocks.

    Returns:
        Its first bytes, one more than `limit` where it is larger, and its state.

    Raises:
        OSError: It cannot be opened or read, or is not a regular file.
    """
    with open_untrusted(path) as (descriptor, state), open(descriptor, "rb", closefd=False) as file:
        return file.read(limit + 1), state
