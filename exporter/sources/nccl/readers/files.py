"""Discovery of the files that jobs write for this host's exporter, in the job's own folder or in the common one.

A file's job is named by its folder below the common one (`nccl-inspector-<job>`, or any name). Links below the folders
are not followed, and the number of entries is bounded: writers are untrusted.
"""

import glob
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple, TypeVar

from exporter.core.blocking import BlockingCalls, HungError
from exporter.core.source import Failure, SourceError
from exporter.linux.untrusted_files import open_untrusted
from exporter.sources.common.failures import failure_of
from exporter.sources.nccl.identity import MAX_NAME, UNKNOWN

MAX_ENTRIES = 20_000
"""Entries of all folders together."""

CALL_TIMEOUT_SECONDS = 2.0
"""Timeout of listing the folders, or of reading one file."""

JOB_FOLDER = "nccl-inspector-"
"""Prefix of the folder that Inspector creates for a Slurm job."""

_END = object()

Result = TypeVar("Result")


class Found(NamedTuple):
    """The existing folders, their files (job and stat by path), and whether there were more than MAX_ENTRIES."""

    folders: list[str]
    files: dict[str, tuple[str, os.stat_result]]
    truncated: bool


def find_folders(patterns: Iterable[str]) -> list[str]:
    """Return the folders that exist."""
    found: dict[str, None] = {}
    for pattern in patterns:
        # Path.glob takes no absolute patterns
        paths = islice(glob.iglob(pattern), MAX_ENTRIES) if glob.has_magic(pattern) else (pattern,)  # noqa: PTH207
        found.update((path, None) for path in paths if os.path.isdir(path))  # noqa: PTH112  # one call a folder and poll
    return list(found)


def find(
    patterns: Sequence[str], endings: tuple[str, ...], is_selected: Callable[[str], bool], failures: list[Failure]
) -> Found:
    """Find the files in folders and one level below; blocks.

    Args:
        patterns: Folders, or shell patterns of folders.
        endings: Possible endings of file names.
        is_selected: Filter by job name; other files are not touched.
        failures: Receives the folders that cannot be listed.
    """
    folders = find_folders(patterns)
    entries = _entries_of(folders, endings, failures)
    files: dict[str, tuple[str, os.stat_result]] = {}
    for entry in islice(entries, MAX_ENTRIES):
        if entry is None or entry[0] in files:
            continue
        path, job = entry
        if is_selected(job):
            try:
                files[path] = (job, os.lstat(path))
            except OSError:
                continue  # removed since it was listed
    return Found(folders, files, next(entries, _END) is not _END)


def _entries_of(
    folders: Iterable[str], endings: tuple[str, ...], failures: list[Failure]
) -> Iterator[tuple[str, str] | None]:
    """Yield files with their jobs. Other entries are yielded as None, so that the caller can bound their number."""
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
    """List a folder of a job; errors are appended to `failures`, a missing folder is not an error."""
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except FileNotFoundError:
        return
    except OSError as error:
        failures.append(failure_of(job, error, folder))


def job_of_folder(folder: str) -> str:
    """Return the job name in the name of a folder."""
    job = folder.removeprefix(JOB_FOLDER)
    return UNKNOWN if job in {"", "unknown-jobid"} else job


async def off_loop(serial: BlockingCalls, call: Callable[[], Result]) -> Result:
    """Run one call in the thread.

    Raises:
        SourceError: It timed out, or failed.
    """
    result = (await serial.run([("call", partial(_boxed, call))]))["call"]
    if isinstance(result, HungError):
        raise SourceError("timeout", str(result))
    if isinstance(result, Exception):
        raise SourceError("unreadable", str(result))
    return result[0]


def _boxed(call: Callable[[], Result]) -> tuple[Result]:
    """Wrap a result, so that it can be distinguished from an exception."""
    return (call(),)


def read_whole(path: str, limit: int) -> tuple[bytes, os.stat_result]:
    """Read the first bytes of a file. Blocks.

    Returns:
        Its content, one byte more than `limit` if it is larger, and its stat.

    Raises:
        OSError: The file cannot be opened or read, or is not a regular file.
    """
    with open_untrusted(path) as (descriptor, state), open(descriptor, "rb", closefd=False) as file:
        return file.read(limit + 1), state
