"""The Helm chart, rendered by Helm's own engine."""

import importlib
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helpers.kubernetes_objects import WORKLOADS, Manifest, parse
from tests.helpers.paths import ROOT

BUILDER = ROOT / "deploy" / "helm"
CHART = BUILDER / "fabric-exporter"
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())
VARIANTS = sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").iterdir())
NAMESPACE = "monitored"


def engine() -> Any:
    """Return Helm's engine, or skip."""
    return pytest.importorskip("helm_python", reason="needs helm-python-sdk")


def builder() -> Any:
    """Return deploy/helm/build.py."""
    sys.path.insert(0, str(BUILDER))
    try:
        return importlib.import_module("build")
    finally:
        sys.path.remove(str(BUILDER))


def texts(values: dict[str, Any], *, name: str = "fabric-exporter", chart: Path = CHART) -> dict[str, str]:
    """Render the chart, and return the text of each template by its name."""
    with engine().Chart.load(chart) as loaded:
        made = loaded.render(values, name=name, namespace=NAMESPACE)
    return {path.partition("/templates/")[2]: text for path, text in made.items()}


def objects(values: dict[str, Any], *, name: str = "fabric-exporter", chart: Path = CHART) -> list[Manifest]:
    """Render the chart, and return its objects."""
    rendered = texts(values, name=name, chart=chart)
    return [one for path, text in rendered.items() if path.endswith(".yaml") for one in parse(text)]


@cache
def objects_of(name: str) -> tuple[Manifest, ...]:
    """Render a variant once, and return its objects, which are not changed."""
    return tuple(objects(variant(name)))


def variant(name: str) -> dict[str, Any]:
    """Return the values of a variant."""
    return yaml.safe_load((CHART / "ci" / f"{name}-values.yaml").read_text())


def pods(manifests: Iterable[Manifest]) -> dict[str, Manifest]:
    """Return the pod templates of all workloads by their role."""
    found = [one["spec"]["template"] for one in manifests if one["kind"] in WORKLOADS]
    return {pod["metadata"]["labels"]["app.kubernetes.io/component"]: pod for pod in found}


def containers(pod: Manifest) -> list[Manifest]:
    """Return the containers of a pod template, the first ones first."""
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
