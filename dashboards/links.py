"""Links from a name to the board that shows more about it, with the same data source, jobs and time range."""

from collections.abc import Mapping
from types import MappingProxyType

HOST_BOARD = "fabric-host"

SELECTION = "${datasource:queryparam}&${job:queryparam}&${__url_time_range}"

BOARDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "host": (HOST_BOARD, "host"),
        "switch": ("fabric-switches", "switch"),
        "train_job": ("fabric-training", "train_job"),
        "node_name": ("fabric-infiniband", "node_name"),
    }
)
"""For each label whose value has a board: the board, and its variable."""


def board_link(board: str) -> str:
    """Return the URL of a board."""
    return f"/d/{board}?{SELECTION}"


def value_link(label: str, value: str) -> str:
    """Return the URL of the board of a label's value, which may be a variable of Grafana."""
    board, variable = BOARDS[label]
    return f"/d/{board}?var-{variable}={value}&{SELECTION}"
