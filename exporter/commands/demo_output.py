"""What the demos share: the directory of their files, and output with colours on a terminal."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TextIO

from exporter.config.errors import UserError, system_errors_as_user_errors

BOLD, GREEN, YELLOW, RED, CYAN, PLAIN = "\033[1m", "\033[32m", "\033[33m", "\033[31m", "\033[36m", "\033[0m"
COLOURS = (BOLD, GREEN, YELLOW, RED, CYAN, PLAIN)


def print_lines(stream: TextIO, lines: Iterable[str]) -> None:
    """Print lines at once; colours on a terminal only.

    Raises:
        OSError: The stream cannot be written.
    """
    text = "".join(f"{line}\n" for line in lines)
    if not stream.isatty() or os.environ.get("NO_COLOR"):
        for code in COLOURS:
            text = text.replace(code, "")
    stream.write(text)
    stream.flush()


@asynccontextmanager
async def demo_directory(directory: Path | None, flag: str) -> AsyncIterator[Path]:
    """Yield a new or empty directory, which remains; without one a temporary one, which is removed at the end.

    Args:
        directory: The directory.
        flag: Where it is from, for errors.

    Raises:
        UserError: The directory cannot be written or is not empty.
    """
    if directory is None:
        temporary = await asyncio.to_thread(tempfile.TemporaryDirectory, prefix="fabric-exporter-demo-")
        try:
            yield Path(temporary.name)
        finally:
            await asyncio.to_thread(temporary.cleanup)
        return
    yield await asyncio.to_thread(_create_empty, directory, flag)


def _create_empty(directory: Path, flag: str) -> Path:
    with system_errors_as_user_errors(f"{flag}: {directory}", "name a directory that this user can write"):
        directory.mkdir(parents=True, exist_ok=True)
        is_empty = not any(directory.iterdir())
    if not is_empty:
        raise UserError(f"{flag}: {directory} is not empty; name a new directory, or remove its contents")
    return directory.resolve()
