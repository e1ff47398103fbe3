"""Make what the Helm chart has of other files, and deploy/kubernetes of the chart: `python deploy/helm/build.py`.

The table of values in the chart's README.md is made of the comments of values.yaml, the AlertmanagerConfig of
alerts/alertmanager.yml, and the manifests by rendering the chart with the values in `manifest_values`.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

import alertmanager_config
import manifests
import values_table

ROOT = Path(__file__).resolve().parent.parent.parent
CHART = ROOT / "deploy" / "helm" / "fabric-exporter"


def pages() -> Mapping[Path, str]:
    """Return the text of each file that is made without rendering, by its path."""
    readme = CHART / "README.md"
    values = (CHART / "values.yaml").read_text(encoding="utf-8")
    routes = (ROOT / "alerts" / "alertmanager.yml").read_text(encoding="utf-8")
    parts = alertmanager_config.converted(routes)
    return {
        readme: values_table.with_table(readme.read_text(encoding="utf-8"), values),
        **{CHART / "files" / "alertmanagerconfig" / name: text for name, text in parts.items()},
    }


def rendered() -> Mapping[Path, str]:
    """Return the text of each file of deploy/kubernetes that the chart renders, by its path.

    Raises:
        ImportError: Helm's engine is not installed.
    """
    folder = ROOT / "deploy" / "kubernetes"
    return {folder / f"{one.name}.yaml": manifests.text(CHART, one) for one in manifests.MANIFESTS}


def _write(files: Mapping[Path, str]) -> None:
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")


def main() -> None:
    """Write the files."""
    _write(pages())
    try:
        _write(rendered())
    except ImportError:
        sys.exit("error: deploy/kubernetes is not rendered: helm-python-sdk has packages for Linux on x86-64 only")


if __name__ == "__main__":
    main()
