"""Baselines of bus bandwidth, from files of nccl-tests named in the configuration.

A file that is not usable as a baseline is a configuration error, not a missing baseline. So are runs on one node, over
NVLink, which do not measure the network.
"""

from collections.abc import Iterable
from pathlib import Path

from exporter.config.errors import ConfigError
from exporter.linux.untrusted_files import read_untrusted
from exporter.nccl.decoding import FormatError
from exporter.nccl.nccl_tests import MAX_JSON, baseline, parse_outputs
from exporter.sources.common.path_patterns import matching_files

HINT = (
    "run all_reduce_perf, all_gather_perf or reduce_scatter_perf of nccl-tests over two nodes or more, and put the name"
    " of the collective into the file name where the output does not name it"
)


def load_baselines(patterns: Iterable[str], folder: Path) -> list[dict[tuple[str, int], float]]:
    """Read files of nccl-tests, text or JSON. Blocks.

    Args:
        patterns: Paths or shell patterns; relative ones are relative to `folder`.
        folder: Folder of the configuration.

    Returns:
        For each file, bus bandwidth in bytes per second by kind and size in bytes as nccl-tests counts it.

    Raises:
        RuleError: A pattern without wildcards matches no file; its steps are `baseline` and the index of the pattern.
        ConfigError: A file cannot be read, or is not usable as a baseline; the text has the path and the reason.
    """
    return [_read_baseline(path) for path in matching_files("baseline", patterns, folder)]


def _read_baseline(path: Path) -> dict[tuple[str, int], float]:
    """Read one file.

    Raises:
        ConfigError: It cannot be read, or is not usable as a baseline.
    """
    try:
        data, _ = read_untrusted(str(path.resolve()), MAX_JSON)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; check its permissions, and baseline") from None
    try:
        runs = parse_outputs(data)
        found = baseline(runs, kind_in_name(path.name))
    except FormatError as error:
        raise ConfigError(f"{path}: not a baseline: {error}; {HINT}") from None
    local = [number for number, run in enumerate(runs, 1) if run.n_nodes == 1]
    if local:
        which = f"run {local[0]} of {len(runs)}: " if len(runs) > 1 else ""
        raise ConfigError(f"{path}: not a baseline: {which}all ranks ran on one node, so no network was used; {HINT}")
    return {key: one.bus_bandwidth for key, one in found.items()}


def kind_in_name(name: str) -> str | None:
    """Return the collective in a file name, such as all_gather-16nodes.txt, for outputs that do not name it."""
    bare = name.lower().replace("_", "").replace("-", "")
    kinds = [kind for kind in ("allreduce", "allgather", "reducescatter", "alltoall", "sendrecv") if kind in bare]
    return kinds[0] if len(kinds) == 1 else None
