"""Make alertmanager.yml of alerts/alertmanager.yml: its routes and inhibitions, with receivers that print."""

from pathlib import Path

from exporter.simulator.monitoring import files

ROOT = Path(__file__).resolve().parent.parent.parent
HEAD = (
    "# Made by deploy/compose/build.py of alerts/alertmanager.yml; each receiver is deploy/compose/print_alerts.py.\n"
)

TARGET = Path(__file__).with_name("alertmanager.yml")


def alertmanager() -> str:
    """Return the text of alertmanager.yml."""
    shipped = (ROOT / "alerts" / "alertmanager.yml").read_text(encoding="utf-8")
    return HEAD + files.alertmanager(shipped, "http://receiver:9099")


if __name__ == "__main__":
    TARGET.write_text(alertmanager(), encoding="utf-8")
