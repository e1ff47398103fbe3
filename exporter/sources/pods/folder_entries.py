"""Entries of a folder that is the host's, of which there may be too many."""

import os
from collections.abc import Callable
from pathlib import Path

from exporter.core.source import Failure
from exporter.sources.common.failures import failure_of


def visit_entries(
    folder: Path, limit: int, failures: list[Failure], visit: Callable[["os.DirEntry[str]"], None]
) -> None:
    """Visit the entries of a folder; what cannot be read is appended to `failures`, a missing folder is none. Blocks.

    Args:
        folder: The folder.
        limit: Entries at most; more are a failure.
        failures: Where failures are appended.
        visit: Called for each entry, while the folder is open. An OSError of it ends the visit, and is a failure.
    """
    try:
        with os.scandir(folder) as entries:
            for place, entry in enumerate(entries):
                if place >= limit:
                    failures.append(Failure(str(folder), "too_many_files", f"{folder}: more than {limit} entries"))
                    break
                visit(entry)
    except FileNotFoundError:
        return
    except OSError as error:
        failures.append(failure_of(str(folder), error, folder))
