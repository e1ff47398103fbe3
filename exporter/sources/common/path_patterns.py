"""Files that a configuration names by shell patterns."""

import glob
from collections.abc import Iterable
from pathlib import Path

from exporter.config.errors import RuleError


def matching_files(key: str, patterns: Iterable[str], folder: Path) -> list[Path]:
    """List the files that match shell patterns, in order and each once. Blocks.

    Args:
        key: Key of the configuration that contains the patterns.
        patterns: The patterns.
        folder: Folder of the configuration, to which patterns are relative.

    Raises:
        RuleError: A pattern without wildcards matches no file.
    """
    found: list[Path] = []
    for place, pattern in enumerate(patterns):
        paths = sorted(glob.glob(pattern, root_dir=folder))  # noqa: PTH207  # absolute patterns too
        if not paths and not glob.has_magic(pattern):
            raise RuleError([key, place], f"file not found: {folder / pattern}; create it, or remove it here")
        found += [folder / path for path in paths if folder / path not in found]
    return found
