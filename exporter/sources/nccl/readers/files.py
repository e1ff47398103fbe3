"""The files that jobs leave for this host's exporter: in a folder of the job's, or in the common one.

A file's job is named by the folder below the common one that it lies in (`nccl-inspector-<job>`, or any name). Links
below the folders are not followed, and how many entries are looked at is bounded: whoever may write there is not
trusted.
"""

import glob
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple, TypeVar

from exporter.core.blocking import BlockingCalls, HungError
from exporter.core.source import Failure, SourceError
from exporter.sources.common.failures import failure_of
from exporter.sources.nccl.identity import MAX_NAME, UNKNOWN

MAX_ENTRIES = 20_000
"""Entries of all folders together that are looked at."""

CALL_DEADLINE = 2.0
"""Seconds that listing, or reading one file, may take."""

JOB_FOLDER = "nccl-inspector-"
"""How Inspector begins the name of the folder that it makes for a job of Slurm."""

_END = object()

Result = TypeVar("Result")


class Found(NamedTuple):
    """The folders there are, their files (job by the folder, and state), and whether there were too many entries."""

    folders: list[str]
    files: dict[str, tuple[str, os.stat_result]]
    cut: bool


def find_folders(patterns: Iterable[str]) -> list[str]:
    """Give the folders that are there."""
    found: dict[str, None] = {}
    for pattern in patterns:
        # Path.glob takes no absolute patterns
        paths = islice(glob.iglob(pattern), MAX_ENTRIES) if glob.has_magic(pattern) else (pattern,)  # noqa: PTH207
        found.update((path, None) for path in paths if os.path.isdir(path))  # noqa: PTH112  # one call a folder and poll
    return list(found)


def find(
    patterns: Sequence[str], endings: tuple[str, ...], wants: Callable[[str], bool], failures: list[Failure]
) -> Found:
    """Find the files in folders and one level below; blocks.

    Args:
        patterns: Folders, or shell patterns of folders.
        endings: How the files' names may end.
        wants: Tells by the name of its job whether a file may be touched.
        failures: Takes the folders that cannot be listed.
    """
    folders = find_folders(patterns)
    entries = _entries_of(folders, endings, failures)
    files: dict[str, tuple[str, os.stat_result]] = {}
    for entry in islice(entries, MAX_ENTRIES):
        if entry is None or entry[0] in files:
            continue
        path, job = entry
        if wants(job):
            try:
                files[path] = (job, os.lstat(path))
            except OSError:
                continue  # gone between listing and now
    return Found(folders, files, next(entries, _END) is not _END)


def _entries_of(
    folders: Iterable[str], endings: tuple[str, ...], failures: list[Failure]
) -> Iterator[tuple[str, str] | None]:
    """List files with their jobs. Other entries are None, so that who asks can bound how many are looked at."""
    for folder in folders:
        name = os.path.basename(folder.rstrip("/"))  # noqa: PTH119
        own = job_of_folder(name)[:MAX_NAME] if name.startswith(JOB_FOLDER) else UNKNOWN
        for entry in listed(folder, "", failures):
            if entry.is_dir(follow_symlinks=False):
                yield None
                job = job_of_folder(entry.name)[:MAX_NAME]
                for below in listed(entry.path, job, failures):
                    yield (below.path, job) if below.name.endswith(endings) else None
            else:
                yield (entry.path, own) if entry.name.endswith(endings) else None


def listed(folder: str, job: str, failures: list[Failure]) -> Iterator[os.DirEntry[str]]:
    """List a folder, of a job; that it cannot be listed is put to the failures, and that it is gone is none."""
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except FileNotFoundError:
        return
    except OSError as error:
        failures.append(failure_of(job, error, folder))


def job_of_folder(folder: str) -> str:
    """Read the name of a job off the name of its folder."""
    job = folder.removeprefix(JOB_FOLDER)
    return UNKNOWN if job in {"", "unknown-jobid"} else job


async def off_loop(serial: BlockingCalls, call: Callable[[], Result]) -> Result:
    """Make one call off the loop.

    Raises:
        SourceError: It hangs, or failed.
    """
    result = (await serial.run([("look", partial(_boxed, call))]))["look"]
    if isinstance(result, HungError):
        raise SourceError("timeout", str(result))
    if isinstance(result, Exception):
        raise SourceError("unreadable", str(result))
    return result[0]


def _boxed(call: Callable[[], Result]) -> tuple[Result]:
    """Put a result in a box, so that it is told from an exception whatever it is."""
    return (call(),)
