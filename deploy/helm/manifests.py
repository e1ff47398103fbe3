"""The files of deploy/kubernetes that the chart renders, for those who use no Helm."""

from dataclasses import dataclass
from pathlib import Path

import yaml

RELEASE = "fabric-exporter"
"""Name of the release, so that names of objects have no other."""

VALUES = Path(__file__).resolve().parent / "manifest_values"
"""One file of values for each. Comments before its first value are those of the manifest."""

HEAD = """\
# Made by `make docs` of the chart and deploy/helm/manifest_values/{name}.yaml; a copy of it may be edited.
"""

OBJECTS = (
    "Namespace",
    "PriorityClass",
    "ServiceAccount",
    "ConfigMap",
    "DaemonSet",
    "StatefulSet",
    "Deployment",
    "Service",
    "NetworkPolicy",
)
"""Kinds that Kubernetes has, in the order in which they are created."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One file.

    Attributes:
        name: Its name, and that of its values.
        namespace: The namespace of its objects.
        kinds: The kinds of objects that it has.
    """

    name: str
    namespace: str
    kinds: tuple[str, ...] = OBJECTS


MANIFESTS = (
    Manifest("daemonset", "fabric-exporter"),
    Manifest("switch-poller", "fabric-exporter-switches"),
    Manifest("infiniband-poller", "fabric-exporter-infiniband"),
    Manifest("collector", "fabric-exporter-collector"),
    Manifest("podmonitor", "fabric-exporter", ("PodMonitor",)),
    Manifest("scrapeconfig", "fabric-exporter-switches", ("ScrapeConfig",)),
)


def text(chart: Path, manifest: Manifest) -> str:
    """Render one file.

    Args:
        chart: Folder of the chart.
        manifest: The file.

    Raises:
        ImportError: Helm's engine is not installed.
    """
    values = (VALUES / f"{manifest.name}.yaml").read_text(encoding="utf-8")
    found = documents(chart, values, manifest.namespace)
    kinds = [yaml.safe_load(one)["kind"] for one in found]
    chosen = sorted(
        (manifest.kinds.index(kind), one) for kind, one in zip(kinds, found, strict=True) if kind in manifest.kinds
    )
    return HEAD.format(name=manifest.name) + _comments(values) + "---\n".join(one for _, one in chosen)


def documents(chart: Path, values: str, namespace: str) -> list[str]:
    """Render a chart, and return the text of each object."""
    import helm_python  # noqa: PLC0415  # not installed everywhere

    with helm_python.Chart.load(chart) as loaded:
        files = loaded.render(yaml.safe_load(values), name=RELEASE, namespace=namespace)
    parts = [part for name, one in files.items() if name.endswith(".yaml") for part in ("\n" + one).split("\n---\n")]
    return [part.strip() + "\n" for part in parts if part.strip()]


def _comments(values: str) -> str:
    lines = values.splitlines(keepends=True)
    return "".join(lines[: next(number for number, line in enumerate(lines) if not line.startswith("#"))])
