"""Dumps of `ethtool` and `ethtool -i` from real devices: the metrics of each.

The dumps are converted to recordings; ethtool_settings.json has the values that the dumps contain.
"""

import json
import re
from pathlib import Path

import pytest

from exporter.core.definition import Context
from exporter.core.source import Host
from exporter.sources.nic import source as nic
from exporter.sources.nic.options import NicOptions
from tests.helpers.ethtool_dumps import OWN_EXPECTATIONS, dumps, folder_of

EXPECTED = json.loads((Path(__file__).parent / "ethtool_settings.json").read_text())


def parse_printed(text):
    """Return the value of each name; of a repeated name the first."""
    found = {}
    for name, value in re.findall(r"^[ \t]*([^:\n]+):[ \t]+(\S.*?)[ \t]*$", text, re.MULTILINE):
        found.setdefault(name, value)
    return found


def recording(settings, driver):
    """Convert the printed settings to a recording."""
    speed = re.fullmatch(r"(\d+)Mb/s", settings.get("Speed", ""))
    up, _, reason = settings["Link detected"].partition(" ")
    state = {"up": up == "yes"}
    if reason:
        state["reason"] = reason.strip("()").partition(",")[0].lower().replace(" ", "_")
    answers = {
        "link": {
            "ifindex": 2,
            "admin_up": True,
            "carrier": up == "yes",
            "operstate": "up" if up == "yes" else "down",
            "parent_dev_name": driver.get("bus-info", "0000:01:00.0"),
            "parent_dev_bus_name": "pci",
        },
        "link_modes": {
            "speed_bits_per_second": int(speed[1]) * 10**6 if speed else None,
            "duplex": {"Full": "full", "Half": "half"}.get(settings["Duplex"]),
            "autoneg": settings["Auto-negotiation"] == "on",
        },
        "link_state": state,
    }
    if driver:
        answers["driver"] = {"name": driver["driver"], "firmware": driver["firmware-version"]}
    return answers


def test_all_dumps_have_expectations(corpus):
    assert {path.name for path in (corpus / "host" / "ethtool").iterdir()} == EXPECTED.keys()
    drivers = {path.name for path in (corpus / "host" / "ethtool-i").iterdir()}
    assert drivers == {name for name, one in EXPECTED.items() if "driver" in one}


@pytest.mark.parametrize(("origin", "dump", "expected"), dumps(OWN_EXPECTATIONS["settings"], EXPECTED))
async def test_settings_of_a_recorded_device(request, tmp_path, origin, dump, expected):
    folder = folder_of(origin, request)
    driver = folder / "ethtool-i" / dump
    answers = recording(
        parse_printed((folder / "ethtool" / dump).read_text()),
        parse_printed(driver.read_text()) if driver.exists() else {},
    )
    (tmp_path / "eth0.json").write_text(json.dumps(answers))
    (source,) = nic.DEFINITION.build(NicOptions(), Context(Host("gpu-1", tmp_path, tmp_path, tmp_path)))
    try:
        reading = await source.read()
    finally:
        await source.close()
    assert reading.failures == []
    (table,) = (one for one in reading.tables if "link_up" in one.columns)
    row = {}
    for ending, column in table.columns.items():
        (value,) = column.values
        row[ending] = dict(zip(column.metric.extra, value, strict=True)) if column.metric.extra and value else value
    found = {
        "speed": row.get("link_speed_bytes_per_second"),
        "duplex": row["settings_info"]["duplex"] or None,
        "autoneg": row["settings_info"]["autoneg"],
        "up": row["link_up"],
        "reason": (row.get("link_down_reason_info") or {}).get("reason"),
    }
    if "driver" in expected:
        found |= {name: row["info"][name] for name in ("driver", "firmware", "pci")}
    assert found == expected
