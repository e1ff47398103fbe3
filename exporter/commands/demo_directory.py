"""The directory of the files of a demo."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from exporter.config.errors import UserError, system_errors_as_user_errors


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
