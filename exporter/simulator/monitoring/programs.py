"""Programs that run beside the simulation, started and stopped together.

    async with Programs() as programs:
        await programs.start([Program("broker", ("mosquitto", "-c", "broker.conf"), 1883, "", Path("broker.log"))])
        await programs.failed()  # until one ends that was not stopped

Each is the leader of a session, so that Ctrl-C reaches this process alone, which stops the others in order.
"""

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from exporter.config.errors import UserError

START_TIMEOUT = 120.0
"""Seconds within which a program has to respond, on a busy machine."""

STOP_TIMEOUT = 10.0
"""Seconds after which a program that does not end is killed."""

LOOK_INTERVAL = 0.1

LOOK_TIMEOUT = 2.0

QUOTED_LINES = 5
"""Last lines of a program's log in an error."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program.

    Attributes:
        name: Its name in errors.
        command: Path and arguments.
        port: TCP port on loopback, on which it listens when it is ready; 0 where it does not listen.
        ready: Path of HTTP that has the status 200 then; empty where it does not speak HTTP. Without a port, pattern of
            its output then.
        log: File of its output.
        environment: Variables beside those of this process.
        folder: Folder in which it runs; None for that of this process.
        console: Its first input; without one it has none.
    """

    name: str
    command: tuple[str, ...]
    port: int
    ready: str
    log: Path
    environment: tuple[tuple[str, str], ...] = ()
    folder: Path | None = None
    console: str = ""


class Programs:
    """Running programs; `async with` stops all at its end."""

    def __init__(self) -> None:
        self._running: dict[Program, asyncio.subprocess.Process] = {}
        self._stopping: set[Program] = set()
        self._changed = asyncio.Event()

    @property
    def pids(self) -> dict[str, int]:
        """Process IDs by name."""
        return {program.name: process.pid for program, process in self._running.items()}

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop all programs, those that were started last first."""
        for program in reversed(list(self._running)):
            await self.stop([program])

    async def start(self, programs: Sequence[Program]) -> None:
        """Start programs at once, and wait until all are ready.

        Raises:
            UserError: One cannot be started, ends, or is not ready in time.
        """
        for program in programs:
            self._running[program] = await _started(program)
        self._changed.set()
        await asyncio.gather(*(self._ready(program) for program in programs))

    async def stop(self, programs: Sequence[Program]) -> None:
        """Stop programs that run; those that do not are left alone."""
        found = [program for program in programs if program in self._running]
        self._stopping.update(found)
        await asyncio.gather(*(_stop(self._running[program]) for program in found))
        for program in found:
            del self._running[program]
            self._stopping.discard(program)

    async def failed(self) -> None:
        """Wait until a program ends that was not stopped.

        Raises:
            UserError: One ended; the text has the end of its log.
        """
        while True:
            self._changed.clear()
            waits = {asyncio.ensure_future(one.wait()): program for program, one in self._running.items()}
            changed = asyncio.ensure_future(self._changed.wait())
            try:
                done, _ = await asyncio.wait([*waits, changed], return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (*waits, changed):
                    task.cancel()
            for task in done:
                if task in waits and waits[task] in self._running and waits[task] not in self._stopping:
                    raise _ended(waits[task], self._running[waits[task]])
            if changed not in done:  # one is being stopped: do not look again at once
                await asyncio.sleep(LOOK_INTERVAL)

    async def _ready(self, program: Program) -> None:
        process = self._running[program]
        try:
            async with asyncio.timeout(START_TIMEOUT):
                while not await _responds(program) or process.returncode is not None:
                    if process.returncode is not None:
                        raise _ended(program, process)
                    await asyncio.sleep(LOOK_INTERVAL)
        except TimeoutError:
            raise UserError(
                f"{program.name} {_missed(program)} after {START_TIMEOUT:g} s; "
                f"its log: {await asyncio.to_thread(_last_lines, program.log)}"
            ) from None


async def _started(program: Program) -> asyncio.subprocess.Process:
    output = await asyncio.to_thread(program.log.open, "ab")
    try:
        process = await asyncio.create_subprocess_exec(
            *program.command,
            stdin=asyncio.subprocess.PIPE if program.console else asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **dict(program.environment)},
            cwd=program.folder,
        )
    except OSError as error:
        raise UserError(f"{program.name} cannot be started: {program.command[0]}: {error.strerror}") from None
    finally:
        output.close()
    if process.stdin is not None:
        process.stdin.write(program.console.encode())
    return process


async def _stop(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(STOP_TIMEOUT):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _responds(program: Program) -> bool:
    """Return whether a program is ready; not while another one has its port and does not respond."""
    if not program.port:
        text = await asyncio.to_thread(program.log.read_text, encoding="utf-8", errors="replace")
        return re.search(program.ready, text) is not None
    try:
        async with asyncio.timeout(LOOK_TIMEOUT):
            reader, writer = await asyncio.open_connection("127.0.0.1", program.port)
            try:
                if not program.ready:
                    return True
                writer.write(f"GET {program.ready} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
                return b" 200 " in await reader.readline()
            finally:
                writer.close()
    except OSError:  # TimeoutError is one
        return False


def _missed(program: Program) -> str:
    return f"does not respond on port {program.port}" if program.port else "is not ready"


def _ended(program: Program, process: asyncio.subprocess.Process) -> UserError:
    status = process.returncode
    return UserError(f"{program.name} ended with status {status}; the end of its log: {_last_lines(program.log)}")


def _last_lines(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return " | ".join(lines[-QUOTED_LINES:]) or "empty"
