"""Readers of the files of jobs: those that grow, and those that are rewritten as a whole.

Both search, detect what changed, and read it in a thread within a budget; each file fails alone. The caller parses.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

from exporter.core.blocking import BlockingCalls
from exporter.core.source import Failure
from exporter.linux.rewritten_files import RewrittenFiles
from exporter.linux.tail import FILE_BUDGET, MAX_LINE, Chunk, FollowedFile, Tail
from exporter.nccl.decoding import FormatError
from exporter.sources.common.blocking_call import make_call
from exporter.sources.common.failures import failure_of
from exporter.sources.common.job_files import FoundJobFiles, JobFile, JobFileSearch

CALL_TIMEOUT_SECONDS = 2.0
"""Timeout of listing the folders, or of reading one file."""

SEARCH = "search for files"
"""Name of the calls that search for files."""

Parsed = TypeVar("Parsed")


@dataclass(slots=True)
class JobLog:
    """A file that grows.

    Attributes:
        file: Its path, and the position up to which it was read.
        job: Its job.
        uid: User ID of its owner when it last grew.
        modified: Unix time of the last write to it.
        state: What the parser keeps of the lines before.
    """

    file: FollowedFile
    job: str
    uid: int = -1
    modified: float = 0.0
    state: object = None

    @property
    def path(self) -> str:
        """Its path."""
        return self.file.path


@dataclass(slots=True)
class JobFilesPoll(Generic[Parsed]):
    """Result of one poll.

    Attributes:
        parsed: What was parsed, by path.
        gone: Paths of files that are no longer read, since the last poll.
        failures: Files that could not be read, and exceeded limits.
        errors: The exceptions among the failures.
    """

    parsed: dict[str, Parsed] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    failures: list[Failure] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)

    def add(self, path: str, job: str, result: Parsed | Exception) -> None:
        """Add the result of one file."""
        if isinstance(result, FileNotFoundError):
            return  # removed since it was listed, as for jobs that ended
        if not isinstance(result, Exception):
            self.parsed[path] = result
            return
        self.errors.append(result)
        if isinstance(result, FormatError):
            self.failures.append(Failure(job, result.reason, f"{path}: {result}"))
        else:
            self.failures.append(failure_of(job, result, path))


class JobLogs(Generic[Parsed]):
    """Follows the growing files of jobs.

    Attributes:
        files: The files that are followed, by path.
    """

    def __init__(
        self,
        calls: BlockingCalls,
        search: JobFileSearch,
        parse: Callable[[JobLog, Chunk], Parsed],
        *,
        first_bytes: int = 0,
    ) -> None:
        """Create the reader.

        Args:
            calls: Thread for all blocking calls.
            search: The files.
            parse: Parses what was appended to a file; runs in the thread.
            first_bytes: See `Tail`.
        """
        self.files: dict[str, JobLog] = {}
        self._calls, self._search, self._parse = calls, search, parse
        self._tail = Tail(first_bytes=first_bytes)
        self._gone: set[str] = set()
        self._left = 0

    async def search(self) -> FoundJobFiles:
        """Return what exists, without reading it.

        Raises:
            SourceError: The search failed.
        """
        return (await make_call(self._calls, SEARCH, partial(self._find_grown, [])))[0]

    async def poll(self, budget: int) -> JobFilesPoll[Parsed]:
        """Read what was appended since the last poll, at most about `budget` bytes; the rest follows at the next poll.

        Raises:
            SourceError: The search failed.
        """
        poll: JobFilesPoll[Parsed] = JobFilesPoll()
        _, grown = await make_call(self._calls, SEARCH, partial(self._find_grown, poll.failures))
        poll.gone, self._gone = self._gone, set()
        self._left = budget
        results = await self._calls.run((log.path, partial(self._read, log)) for log in grown)
        for log in grown:
            result = results[log.path]
            if isinstance(result, _Read):
                poll.add(log.path, log.job, result.parsed)
                if result.skipped:
                    detail = f"{log.path}: grows faster than it is read; {result.skipped} bytes skipped"
                    poll.failures.append(Failure(log.job, "backlog", detail))
            elif result is not None:
                poll.add(log.path, log.job, result)
        return poll

    def _find_grown(self, failures: list[Failure]) -> tuple[FoundJobFiles, list[JobLog]]:
        """Find the files and those that grew; runs in the thread."""
        found = self._search.find(failures)
        scan = self._tail.scan({path: one.status for path, one in found.files.items()})
        for gone in scan.gone:
            self.files.pop(gone.path, None)
            self._gone.add(gone.path)
        for path in self._tail.files.keys() - self.files.keys():
            self.files[path] = JobLog(self._tail.files[path], found.files[path].job)
        for path, log in self.files.items():
            if path in found.files:
                log.modified = found.files[path].status.st_mtime
        grown = [self.files[file.path] for file in scan.grown]
        for log in grown:
            log.uid = found.files[log.path].status.st_uid  # another user may have replaced it
        if scan.too_many:
            failures.append(_too_many(len(self.files), self._search))
        return found, grown

    def _read(self, log: JobLog) -> "_Read[Parsed] | None":
        """Read what was appended to one file; runs in the thread."""
        if self._left <= MAX_LINE:
            return None  # it is among the first at the next poll
        chunk = self._tail.read(log.file, min(FILE_BUDGET, self._left))
        self._left -= chunk.read
        return _Read(self._parse(log, chunk), chunk.skipped)


@dataclass(slots=True)
class _Read(Generic[Parsed]):
    """What was parsed of one file, and the bytes that were skipped."""

    parsed: Parsed
    skipped: int


class JobDumps(Generic[Parsed]):
    """Reads the files of jobs that are rewritten as a whole, each version once."""

    def __init__(
        self,
        calls: BlockingCalls,
        search: JobFileSearch,
        parse: Callable[[str, JobFile, bytes], Parsed],
        *,
        settled: bool,
    ) -> None:
        """Create the reader.

        Args:
            calls: Thread for all blocking calls.
            search: The files.
            parse: Parses a file, given its path, its job and status, and its content; runs in the thread.
            settled: Whether a file is only read once it no longer changes.
        """
        self._calls, self._search, self._parse = calls, search, parse
        self._files = RewrittenFiles(settled=settled)

    async def search(self) -> FoundJobFiles:
        """Return what exists, without reading it.

        Raises:
            SourceError: The search failed.
        """
        return await make_call(self._calls, SEARCH, partial(self._search.find, []))

    async def poll(self) -> JobFilesPoll[Parsed]:
        """Read the files that were rewritten.

        Raises:
            SourceError: The search failed.
        """
        poll: JobFilesPoll[Parsed] = JobFilesPoll()
        found = await make_call(self._calls, SEARCH, partial(self._search.find, poll.failures))
        files = found.files
        scan = self._files.update({path: one.status for path, one in files.items()})
        poll.gone = scan.gone
        if scan.too_many:
            poll.failures.append(_too_many(len(self._files.files), self._search))
        results: Mapping[str, Parsed | Exception] = await self._calls.run(
            (path, partial(self._read, path, files[path])) for path in scan.ready
        )
        for path in scan.ready:
            poll.add(path, files[path].job, results[path])
        return poll

    def _read(self, path: str, file: JobFile) -> Parsed:
        return self._parse(path, file, self._files.read(path))


def _too_many(count: int, search: JobFileSearch) -> Failure:
    detail = f"more than {count} files below {', '.join(search.patterns)}; remove those of old jobs"
    return Failure("", "too_many_files", detail)
