"""Lists the network namespaces of this host other than the own one: those with a name, and those of processes."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from exporter.core.source import Failure
from exporter.linux.network_namespaces import OWN, NamespaceKey, namespace_key
from exporter.sources.common.failures import failure_of
from exporter.sources.pods.model import NamespaceRef

MAX_NAMESPACES = 4096
"""Namespaces that are read; a node has a few hundred pods, of Kubernetes at most 110 by default."""

MAX_ENTRIES = 65_536
"""Entries of a folder, or processes, that are looked at."""


class Listing(NamedTuple):
    """The own namespace, the others by their identity, and what could not be read."""

    own: NamespaceRef
    namespaces: dict[NamespaceKey, NamespaceRef]
    failures: Sequence[Failure] = ()


def list_namespaces(folders: Sequence[str], procfs: Path | None = None, own: str = OWN) -> Listing:
    """List the namespaces; blocks.

    Several paths may lead to one namespace: the first one counts, a name before a process. A file without a namespace
    mounted on it is skipped; one is left for a moment while a namespace is made or removed.

    Args:
        folders: Folders whose files are namespaces; those that are missing are skipped.
        procfs: Where to look for the namespaces of processes; None to leave them out.
        own: File of the namespace that is left out.

    Raises:
        OSError: The own namespace cannot be read.
    """
    mine = namespace_key(own)
    found: dict[NamespaceKey, NamespaceRef] = {}
    failures: list[Failure] = []
    for path in _paths(folders, procfs, failures):
        try:
            key = namespace_key(path)
        except FileNotFoundError:
            continue  # it ended meanwhile
        except OSError as error:
            if procfs is None or not path.startswith(str(procfs)):  # the lookup of owners reports processes
                failures.append(failure_of("", error, path))
            continue
        if key.device != mine.device or key == mine or key in found:
            continue
        if len(found) >= MAX_NAMESPACES:
            failures.append(Failure("", "too_many", f"more than {MAX_NAMESPACES} network namespaces"))
            break
        found[key] = NamespaceRef(path, *key)
    return Listing(NamespaceRef(own, *mine), found, failures)


def label_of(namespace: NamespaceRef) -> str:
    """Return the name of a namespace; of one without a name its number."""
    folder, name = os.path.split(namespace.path)
    return number_of(namespace) if folder.endswith("/ns") else name


def number_of(namespace: NamespaceRef) -> str:
    """Return the number of a namespace, as `readlink /proc/self/ns/net` prints it."""
    return f"net:[{namespace.inode}]"


def _paths(folders: Sequence[str], procfs: Path | None, failures: list[Failure]) -> Iterator[str]:
    for folder in folders:
        for name in _names(folder, failures):
            yield f"{folder}/{name}"
    if procfs is not None:
        for name in _names(str(procfs), failures):
            if name.isdecimal():
                yield f"{procfs}/{name}/ns/net"


def _names(folder: str, failures: list[Failure]) -> list[str]:
    """List a folder in the order of its names, so that the first of several paths is always the same."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry, _ in zip(entries, range(MAX_ENTRIES), strict=False)]
    except FileNotFoundError:
        return []
    except OSError as error:
        failures.append(failure_of("", error, folder))
        return []
    return sorted(names)
