"""Build the Grafana dashboards: `python dashboards/build.py` writes their JSON beside this file.

A dashboard is data: rows of panels, each with its queries. The modules beside this one define the rows.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import host_board
import infiniband_board
import overview
import switches_board
import training_board
from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as model
from links import HOST_BOARD
from panels import DATASOURCE, Panel

FOLDER = Path(__file__).resolve().parent
TAG = "fabric-exporter"

_JOB = "label_values(fabric_exporter_build_info, job)"
_INSTANCE = 'label_values(fabric_exporter_build_info{job=~"$job"}, instance)'

_HOST = 'label_values({__name__=~"fabric_(nic|rdma)_info", job=~"$job"}, host)'
_HOST_INSTANCE = 'label_values({__name__=~"fabric_(nic|rdma)_info", job=~"$job", host="$host"}, instance)'


_SWITCH = 'label_values(fabric_switch_up{job=~"$job"}, switch)'

_TRAIN_JOB = 'label_values(fabric_nccl_verdict{job=~"$job"}, train_job)'

_NODE = 'label_values(fabric_ib_node_info{job=~"$job"}, node_name)'


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard; its first rows are open, and the others collapsed."""

    uid: str
    title: str
    description: str
    variables: tuple[dashboard.QueryVariable, ...]
    rows: Mapping[str, Callable[[], list[Panel]]]
    open_rows: int = 99


def _variable(name: str, label: str, query: str) -> dashboard.QueryVariable:
    """Return a variable that selects one value of the label."""
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(DATASOURCE)
        .query(query)
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.NATURAL_ASC)
    )


def _multi_variable(name: str, label: str, query: str) -> dashboard.QueryVariable:
    """Return a variable that selects several values of the label, by default all."""
    everything = model.VariableOption(text="All", value="$__all", selected=True)
    return _variable(name, label, query).multi(True).include_all(True).current(everything)


# In the overview "All" matches any instance; on the host dashboard it has to list the instances of the host.
BOARDS = (
    Board(
        uid="fabric-overview",
        title="Fabric overview",
        description="The network of a GPU cluster from the collectives down to the links, by fabric-exporter.",
        variables=(
            _multi_variable("job", "Job", _JOB).all_value(".+"),
            _multi_variable("instance", "Instance", _INSTANCE).all_value(".+"),
        ),
        rows=overview.ROWS,
        open_rows=2,
    ),
    Board(
        uid=HOST_BOARD,
        title="Fabric host",
        description="The network of one host, port by port, by fabric-exporter.",
        variables=(
            _multi_variable("job", "Job", _JOB).all_value(".+"),
            _variable("host", "Host", _HOST),
            _multi_variable("instance", "Instance", _HOST_INSTANCE),
        ),
        rows=host_board.ROWS,
        open_rows=5,
    ),
    Board(
        uid="fabric-switches",
        title="Fabric switches",
        description="Switches: uplinks, congestion, links and neighbours, by fabric-exporter.",
        variables=(
            _multi_variable("job", "Job", _JOB).all_value(".+"),
            _multi_variable("instance", "Instance", _INSTANCE).all_value(".+"),
            _multi_variable("switch", "Switch", _SWITCH).all_value(".+"),
        ),
        rows=switches_board.ROWS,
        open_rows=3,
    ),
    Board(
        uid="fabric-infiniband",
        title="Fabric InfiniBand",
        description="InfiniBand fabrics: links, errors, uplinks, congestion, nodes and managers, by fabric-exporter.",
        variables=(
            _multi_variable("job", "Job", _JOB).all_value(".+"),
            _multi_variable("instance", "Instance", _INSTANCE).all_value(".+"),
            _multi_variable("node_name", "Node name", _NODE).all_value(".+"),
        ),
        rows=infiniband_board.ROWS,
        open_rows=2,
    ),
    Board(
        uid="fabric-training",
        title="Fabric training",
        description="Training jobs: what delays each, stragglers, timings, by fabric-exporter.",
        variables=(
            _multi_variable("job", "Job", _JOB).all_value(".+"),
            _multi_variable("instance", "Instance", _INSTANCE).all_value(".+"),
            _multi_variable("train_job", "Train job", _TRAIN_JOB).all_value(".+"),
        ),
        rows=training_board.ROWS,
        open_rows=3,
    ),
)


def build(board: Board) -> model.Dashboard:
    """Build a dashboard."""
    builder = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags(["fabric", TAG])
        .readonly()
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .time("now-1h", "now")
        .refresh("30s")
        .timezone("browser")
        .link(_link_to_other_dashboards())
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    )
    for variable in board.variables:
        builder.with_variable(variable)
    for place, (title, panels) in enumerate(board.rows.items()):
        row = dashboard.Row(title)
        if place >= board.open_rows:
            for panel in panels():
                row.with_panel(panel)
            builder.with_row(row)
        else:
            builder.with_row(row)
            for panel in panels():
                builder.with_panel(panel)
    return builder.build()


def _link_to_other_dashboards() -> dashboard.DashboardLink:
    """Return the link to the other dashboards, with the same data source, jobs and time range."""
    return (
        dashboard.DashboardLink("Dashboards")
        .type(model.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .include_vars(True)
        .keep_time(True)
    )


def render(board: Board) -> str:
    """Return a dashboard as JSON, reproducibly, with its panels numbered."""
    made = json.loads(JSONEncoder().encode(build(board)))
    for link in made["links"]:
        del link["placement"]  # the only value of the SDK hides links in a menu
    panels = [one for panel in made["panels"] for one in (panel, *panel.get("panels", ()))]
    for number, panel in enumerate(panels, start=1):
        panel["id"] = number
    return json.dumps(made, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def files() -> dict[Path, str]:
    """Return the JSON of all dashboards, by path."""
    return {FOLDER / f"{board.uid}.json": render(board) for board in BOARDS}


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
