"""What collectives reached in runs of nccl-tests, from files that the configuration names.

A file that proves nothing is an error of the configuration, not a missing baseline: who gives one wants to be judged
by it. So are runs on one node, over NVLink, which say nothing of a network.
"""

from collections.abc import Iterable
from pathlib import Path

from exporter.config.yaml_reader import ConfigError
from exporter.nccl.decoding import FormatError
from exporter.nccl.nccl_tests import (
    MAX_JSON,
    baseline,
    parse_json,
    parse_text,
)
from exporter.sources.common.path_patterns import matching_files
from exporter.sources.nccl_facts.files import read_whole

HINT = (
    "run all_reduce_perf, all_gather_perf or reduce_scatter_perf of nccl-tests over two nodes or more, and name the"
    " file after it where its output does not tell which"
)


def load(patterns: Iterable[str], folder: Path) -> list[dict[tuple[str, int], float]]:
    """Read files of nccl-tests, text or JSON. Blocks.

    Args:
        patterns: Paths or shell patterns; relative ones are taken from
        folder: the configuration's.

    Returns:
        For each file, bus bandwidth in bytes per second by kind and size as nccl-tests counts it.

    Raises:
        RuleError: A pattern without wildcards fits no file; its steps are `baseline` and the place among the patterns.
        ConfigError: A file cannot be read, or is no baseline; the text says which and why.
    """
    return [_measured(path) for path in matching_files("baseline", patterns, folder)]


def _measured(path: Path) -> dict[tuple[str, int], float]:
    """Read one file.

    Raises:
        ConfigError: It cannot be read, or is no baseline.
    """
    try:
        data, _ = read_whole(str(path.resolve()), MAX_JSON)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; check its permissions, and baseline") from None
    try:
        run = parse_json(data) if data.lstrip()[:1] == b"{" else parse_text(data)
        found = baseline([run], _kind_of(path.name))
    except FormatError as error:
        raise ConfigError(f"{path}: is no baseline: {error}; {HINT}") from None
    if run.n_nodes == 1:
        raise ConfigError(f"{path}: is no baseline: all ranks ran on one node, so that no network was used; {HINT}")
    return {key: one.bus_bandwidth for key, one in found.items()}


def _kind_of(name: str) -> str | None:
    """Give the kind that a file's name tells, such as all_gather-16nodes.txt, for outputs that tell none."""
    bare = name.lower().replace("_", "").replace("-", "")
    told = [kind for kind in ("allreduce", "allgather", "reducescatter") if kind in bare]
    return told[0] if len(told) == 1 else None
