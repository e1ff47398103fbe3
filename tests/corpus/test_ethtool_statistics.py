"""Dumps of `ethtool -S` from real devices: all counters of each, and that nothing else is read.

The numbers of ethtool_expectations.json were read off the dumps; they are raw, before any factor. A row without any
number but 0 proves little, and gives the reason as `nothing`.
"""

import json
import re
from array import array
from pathlib import Path

import pytest

from exporter.linux.ethtool_ioctl import Statistics
from exporter.sources.common.driver_statistics import (
    DriverNames,
    make_plan,
    sum_values,
    unmapped,
)
from exporter.sources.nic.drivers import DRIVERS
from tests.helpers.ethtool_dumps import OWN_EXPECTATIONS, dumps, folder_of

EXPECTED = json.loads((Path(__file__).parent / "ethtool_expectations.json").read_text())
FOLDERS = ("ethtool-S", "amd-ainic")
DUMPS = dumps(OWN_EXPECTATIONS["statistics"], EXPECTED)


def parsed(text: str) -> Statistics:
    """Parse the printed statistics to names, without surrounding blanks, and values."""
    found = re.findall(r"^[ \t]*(\S.*): (\d+)[ \t]*$", text, re.MULTILINE)
    return Statistics(tuple(name for name, _ in found), array("Q", [int(value) for _, value in found]))


def test_all_dumps_have_expectations(corpus):
    found = {
        f"{folder}/{path.name}"
        for folder in FOLDERS
        for path in (corpus / "host" / folder).iterdir()
        if folder == "ethtool-S" or path.name.startswith("ethtool_S")
    }
    assert found == EXPECTED.keys()
    assert len(found) == 26
    assert {one["driver"] for one in EXPECTED.values()} & DRIVERS.keys() >= {"bnxt_en", "i40e", "ionic", "mlx5_core"}


@pytest.mark.parametrize(("origin", "dump", "expected"), DUMPS)
def test_empty_expectation_has_a_reason(origin, dump, expected):
    groups = (expected["port"], *expected["priority"].values())
    assert any(any(group.values()) for group in groups) is not bool(expected.get("nothing"))


@pytest.mark.parametrize(("origin", "dump", "expected"), DUMPS)
def test_dump_gives_the_expected_counters(request, origin, dump, expected):
    statistics = parsed((folder_of(origin, request) / dump).read_text())
    assert len(statistics.names) == expected["strings"]
    names = DRIVERS.get(expected["driver"], DriverNames(()))
    made = make_plan(names, statistics.names)
    assert sum_values(made.port, statistics.values) == expected["port"]
    found = {number: sum_values(where, statistics.values) for number, where in made.priority.items()}
    assert found == expected["priority"]
    everything = unmapped(made, statistics.names, ["*"])
    used = [place for groups in (made.port, *made.priority.values()) for where in groups.values() for place in where]
    assert len(used) == len(set(used)), "no value is read twice"
    assert len(everything) + len(used) == len(set(statistics.names))
