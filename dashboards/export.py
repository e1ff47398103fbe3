"""Export the dashboards for import by hand: `python dashboards/export.py DIRECTORY`.

Grafana asks for the data source when a dashboard with inputs is imported, as those of its public collection have. The
files beside this one have a variable for it instead, by which each reader chooses: they are better where several
servers are in use, and for provisioning.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent

INPUT = "DS_PROMETHEUS"

OLDEST_GRAFANA = "11.0.0"


def with_inputs(text: str) -> dict[str, Any]:
    """Return a dashboard with an input in place of the variable for its data source."""
    board: dict[str, Any] = json.loads(
        text.replace("${datasource:queryparam}&", "").replace("${datasource}", f"${{{INPUT}}}")
    )
    board["templating"]["list"] = [one for one in board["templating"]["list"] if one["type"] != "datasource"]
    panels = [one for panel in board["panels"] for one in (panel, *panel.get("panels", ()))]
    kinds = sorted({panel["type"] for panel in panels} - {"row"})
    asked = {"label": "Prometheus", "description": "", "type": "datasource", "pluginName": "Prometheus"}
    return {
        "__inputs": [{"name": INPUT, "pluginId": "prometheus", **asked}],
        "__elements": {},
        "__requires": [
            {"type": "grafana", "id": "grafana", "name": "Grafana", "version": OLDEST_GRAFANA},
            {"type": "datasource", "id": "prometheus", "name": "Prometheus", "version": "1.0.0"},
            *({"type": "panel", "id": kind, "name": kind, "version": ""} for kind in kinds),
        ],
        "id": None,
        **board,
    }


def main() -> None:
    """Write all dashboards."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0].partition(": `")[0] + ".")
    parser.add_argument("directory", type=Path, help="directory for the files, made if it does not exist")
    folder = parser.parse_args().directory
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(FOLDER.glob("fabric-*.json")):
            text = json.dumps(with_inputs(path.read_text(encoding="utf-8")), indent=2, ensure_ascii=False) + "\n"
            (folder / path.name).write_text(text, encoding="utf-8")
            sys.stdout.write(f"{folder / path.name}\n")
    except OSError as error:
        sys.exit(f"{folder}: {error.strerror}; name a directory that can be written")


if __name__ == "__main__":
    main()
