"""Objects of Kubernetes in YAML, and what tests look up in them."""

import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

Manifest = dict[str, Any]

OLDEST, NEWEST = "1.29", kubernetes_validate.latest_version().rpartition(".")[0]
CUSTOM_KINDS = {
    "AlertmanagerConfig",
    "JobSet",
    "PodMonitor",
    "PrometheusRule",
    "ScrapeConfig",
    "ServiceMonitor",
}
"""Kinds that Kubernetes has no schema of."""

WORKLOADS = {"DaemonSet", "StatefulSet", "Deployment"}


class StrictLoader(yaml.SafeLoader):
    """YAML in which a duplicate key is an error: the API server silently uses the last one."""


def unique_mapping(loader: StrictLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    keys = [loader.construct_object(key) for key, _ in node.value]
    assert len(keys) == len(set(keys)), f"a key twice in {keys} {node.start_mark}"
    return loader.construct_mapping(node, deep=True)


StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, unique_mapping)


def parse(text: str) -> list[Manifest]:
    return [one for one in yaml.load_all(text, Loader=StrictLoader) if one is not None]


def documents(path: Path) -> list[Manifest]:
    return parse(path.read_text())


def one(manifests: Iterable[Manifest], kind: str) -> Manifest:
    (found,) = (manifest for manifest in manifests if manifest["kind"] == kind)
    return found


def check_shape(manifest: Manifest, version: str) -> None:
    """Check an object against the schema of a version of Kubernetes, which has none of custom kinds."""
    if manifest["kind"] in CUSTOM_KINDS:
        with pytest.raises(kubernetes_validate.SchemaNotFoundError):
            kubernetes_validate.validate(manifest, version, strict=True)
    else:
        assert kubernetes_validate.validate(manifest, version, strict=True) == version


def selector(manifest: Manifest) -> dict[str, str] | None:
    """Return the labels by which an object finds pods."""
    spec = manifest.get("spec", {})
    match manifest["kind"]:
        case "DaemonSet" | "StatefulSet" | "Deployment" | "PodDisruptionBudget" | "PodMonitor":
            return spec["selector"]["matchLabels"]
        case "Service":
            return spec["selector"]
        case "NetworkPolicy":
            return spec["podSelector"]["matchLabels"]
        case _:
            return None


def flag(args: list[str], name: str) -> list[str]:
    return [value for key, _, value in (arg.partition("=") for arg in args) if key == name]


def check_flags(args: list[str]) -> None:
    """Parse the flags of a container, as the program does."""
    cli = importlib.import_module("exporter.cli")
    # Kubernetes puts the address of the node in before the program sees it.
    cli.parser().parse_args([arg.replace("$(HOST_IP)", "192.0.2.1") for arg in args])


def check_configuration(text: str, folder: Path) -> None:
    """Load a configuration, as the program does."""
    path = folder / "config.yaml"
    path.write_text(text)
    importlib.import_module("exporter.daemon.loading").load_config(path)
