"""Names of folders in `/var/log/pods`: kubelet creates NAMESPACE_NAME_UID for each pod, which joins a UID to its name.

Nothing below them is read. The folder of a pod that was deleted may remain for a while.
"""

import os
from pathlib import Path

from exporter.core.source import Failure
from exporter.sources.pods.folder_entries import visit_entries
from exporter.sources.pods.model import PodOwner
from exporter.sources.pods.pod_names import pod_owner

MAX_ENTRIES = 20_000
"""Entries that are listed."""


def read_log_folders(folder: Path, failures: list[Failure]) -> dict[str, PodOwner]:
    """Return pods by UID; what cannot be read is appended to `failures`, a missing folder is no failure. Blocks."""
    found: dict[str, PodOwner] = {}

    def visit(entry: "os.DirEntry[str]") -> None:
        pod = pod_of_folder(entry.name) if entry.is_dir(follow_symlinks=False) else None
        if pod is not None:
            found[pod.pod_uid] = pod

    visit_entries(folder, MAX_ENTRIES, failures, visit)
    return found


def pod_of_folder(name: str) -> PodOwner | None:
    """Return the pod that the name of a folder names; None if it is not one that kubelet gives.

    Names of Kubernetes have no underscore.
    """
    parts = name.split("_", 3)
    if len(parts) != 3 or not parts[2]:
        return None
    try:
        return pod_owner(*parts)
    except ValueError:
        return None
