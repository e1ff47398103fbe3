"""The step that finds out by which transport jobs reach the network, where this host shows all of their traffic."""

from collections.abc import Callable, Iterable
from functools import partial

from exporter.core.definition import Context
from exporter.core.poller import Step
from exporter.core.source import Host
from exporter.core.table import Table
from exporter.linux.cached_file import read_text
from exporter.meaning.training import transport

SHARED_MODE = ("module", "ib_core", "parameters", "netns_mode")
"""File in sysfs: N where RDMA devices belong to one network namespace each, so that those of pods are not visible."""

NVLINK_CHANNELS = "nvidia-caps-imex-channels"
"""Folder in /dev of a host in a multi-node NVLink domain, whose traffic to other hosts may pass no NIC."""


def step_of(host: Host, tables: Callable[[], Iterable[Table]]) -> Step:
    """Return the step; one that computes nothing where traffic of jobs may be invisible.

    Args:
        host: The host.
        tables: Returns the tables of all sources.
    """
    is_hidden = read_text(host.sysfs.joinpath(*SHARED_MODE)) == "N"
    has_nvlink = host.dev is not None and (host.dev / NVLINK_CHANNELS).exists()
    return Context(host).transport if is_hidden or has_nvlink else partial(transport.step, host.name, tables)
