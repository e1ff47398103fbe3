"""The page about the simulated fabric lists its faults."""

import re

from exporter.simulator.fabric.fault_table import KINDS
from tests.helpers.paths import ROOT


def test_every_fault_of_the_fabric_is_listed_with_its_default_target():
    page = (ROOT / "docs" / "simulated-fabric.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)` \| ([\w/-]+) \|", page, re.MULTILINE)
    assert sorted(rows) == sorted((name, kind.default or "none") for name, kind in KINDS.items())
