"""Files that a configuration names by shell patterns."""

import glob
from collections.abc import Iterable
from pathlib import Path

from exporter.config.errors import RuleError


def matching(key: str, patterns: Iterable[str], folder: Path) -> list[Path]:
    """List the files that fit shell patterns, in order. Blocks.

    Args:
        key: Where the patterns stand.
        patterns: The patterns; relative ones are taken from
        folder: the configuration's.

    Raises:
        RuleError: A pattern without wildcards fits none.
    """
    found: list[Path] = []
    for place, pattern in enumerate(patterns):
        paths = sorted(glob.glob(pattern, root_dir=folder))  # noqa: PTH207  # absolute patterns too
        if not paths and not glob.has_magic(pattern):
            raise RuleError([key, place], f"there is no file {folder / pattern}; make it, or leave it away here")
        found += [folder / path for path in paths if folder / path not in found]
    return found
