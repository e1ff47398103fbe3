"""What tools printed of RDMA ports of real hosts, turned into trees and read: values read off the raw files.

`rdma statistic`, `rdma link`, `ibstat` and `ibstatus` show the same values as files and netlink.
"""

import json
import re
from pathlib import Path

import pytest

from exporter.linux.ethtool_ioctl import Statistics
from exporter.linux.netlink.rdma import RdmaDevice, RdmaPort
from tests.helpers.paths import FIXTURES
from tests.helpers.rdma_trees import (
    Netlink,
    make,
    opened,
    ports_of,
)

EXPECTATIONS = json.loads((Path(__file__).parent / "rdma_expectations.json").read_text("utf-8"))

OWN = FIXTURES / "rdma-tools"
"""One small output of each tool, written by hand, so that every check also runs without the corpus."""

OWN_EXPECTATIONS = json.loads((OWN / "expectations.json").read_text("utf-8"))

STATES = {"Down": "1: DOWN", "Initializing": "2: INIT", "Armed": "3: ARMED", "Active": "4: ACTIVE"}
PHYSICAL = {"Polling": "2: Polling", "Disabled": "3: Disabled", "LinkUp": "5: LinkUp"}
RATES = {"10": "10 Gb/sec (4X SDR)", "100": "100 Gb/sec (4X EDR)"}
"""The files behind what ibstat prints, which leaves the lanes out."""

FOLDERS = (("rdma", "*"), ("amd-ainic", "rdma_*"), ("ib", "rdma*"), ("ib", "ibstat*"))
"""Where what these tools printed is, and how its names begin."""

OTHERS = {
    "rdma/ceems-rdma-resource-show-cq.txt",
    "rdma/ceems-rdma-resource-show-qp.txt",
    "rdma/ceems-rdma-statistic-qp-show.txt",
}
"""Single queue pairs and completion queues, by their numbers: nothing that is read here."""

NO_COUNTERS = {"ifname", "port"}


def statistic_json(text):
    """Read `rdma statistic -j`: counters by device and port."""
    listed = json.loads(text)
    return {(one["ifname"], one["port"]): {k: v for k, v in one.items() if k not in NO_COUNTERS} for one in listed}


def statistic_lines(text):
    """Read `rdma statistic`: `link mlx5_0/1 rx_write_requests 0 …`."""
    found = {}
    for line in text.splitlines():
        words = line.split()
        device, _, port = words[1].partition("/")
        found[device, int(port)] = dict(zip(words[2::2], map(int, words[3::2]), strict=True))
    return found


def link_json(text):
    """Read `rdma link -j`: network devices by device and port."""
    return {(one["ifname"], one["port"]): one["netdev"] for one in json.loads(text)}


def link_lines(text):
    """Read `rdma link`: `link rocep68s0/1 state ACTIVE physical_state LINK_UP netdev enp68s0`."""
    return {
        (found[1], int(found[2])): found[3]
        for found in re.finditer(r"^link (\S+)/(\d+) .* netdev (\S+)", text, re.MULTILINE)
    }


def tree_of_statistics(root, counters, driver):
    for place, ((device, port), values) in enumerate(counters.items(), start=1):
        pci = f"0000:{place:02x}:00.0"
        make(root, device, values, driver=driver, port=port, pci=pci, guid=f"0200:c0ff:fe00:{place:04x}")


def netlink_of(counters, netdevs):
    netlink = Netlink()
    for place, ((device, port), values) in enumerate(counters.items(), start=1):
        netlink.listed.append(RdmaDevice(place, device, f"0200c0fffe00{place:04x}", 1, ""))
        netlink.counters[place, port] = Statistics(tuple(values), tuple(values.values()))
        netlink.ports[place, port] = RdmaPort(netdevs.get((device, port)))
    return netlink


def texts_of(root, device, texts):
    folder = make(root, device, guid="")
    for path, text in texts.items():
        (folder / path).write_text(f"{text}\n")


def tree_of_ibstat(root, text):
    for block in re.split(r"^CA ", text, flags=re.MULTILINE)[1:]:
        found = dict(re.findall(r"^\s+([^:\n]+): (.+)$", block, re.MULTILINE))
        guid = found["Node GUID"].removeprefix("0x")
        texts = {
            "hca_type": found["CA type"],
            "fw_ver": found["Firmware version"],
            "node_guid": ":".join(re.findall("....", guid)),
            "ports/1/state": STATES[found["State"]],
            "ports/1/phys_state": PHYSICAL[found["Physical state"]],
            "ports/1/rate": RATES[found["Rate"]],
            "ports/1/link_layer": found["Link layer"],
        }
        texts_of(root, block.split("'")[1], texts)


def tree_of_ibstatus(root, text):
    for block in re.split(r"^Infiniband device ", text, flags=re.MULTILINE)[1:]:
        found = dict(re.findall(r"^\s+([^:\n]+):\s+(.+)$", block, re.MULTILINE))
        names = {"state": "state", "phys_state": "phys state", "rate": "rate", "link_layer": "link_layer"}
        texts_of(root, block.split("'")[1], {f"ports/1/{file}": found[name] for file, name in names.items()})


STATISTICS = {"statistic -j": statistic_json, "statistic": statistic_lines}
LINKS = {"link -j": link_json, "link": link_lines}
TREES = {"ibstat": tree_of_ibstat, "ibstatus": tree_of_ibstatus}


@pytest.fixture
def recording(request):
    """Return the text of a recording and its expectations; those of the corpus need the corpus."""
    origin, name = request.param
    if origin == "own":
        return (OWN / name).read_text("utf-8"), OWN_EXPECTATIONS[name]
    return (request.getfixturevalue("corpus") / "host" / name).read_text("utf-8"), EXPECTATIONS[name]


def recordings_of(tools):
    """Parametrise a test over the recordings of some tools: own ones, and those of the corpus."""
    found = [
        (origin, name)
        for origin, expectations in (("own", OWN_EXPECTATIONS), ("corpus", EXPECTATIONS))
        for name, one in expectations.items()
        if one["tool"] in tools
    ]
    assert {origin for origin, _ in found} == {"own", "corpus"}
    return pytest.mark.parametrize("recording", found, indirect=True, ids=" ".join)


def check(found, failures, expected):
    assert failures == []
    assert len(found) == expected["ports"]
    assert sorted({ending for row in found.values() for ending in row}) == expected["columns"]
    for port, values in expected["values"].items():
        row = found[tuple(port.split())]
        for ending, value in values.items():
            actual = (
                row["info"].get(ending.removeprefix("info."), None) if ending.startswith("info.") else row.get(ending)
            )
            assert actual == value, (port, ending)


def test_every_recording_has_expectations(corpus):
    recordings = {
        f"{folder}/{path.name}"
        for folder, pattern in FOLDERS
        for path in (corpus / "host" / folder).glob(pattern)
        if path.is_file()
    }
    assert recordings == EXPECTATIONS.keys() | OTHERS
    assert {one["tool"] for one in EXPECTATIONS.values()} <= STATISTICS.keys() | LINKS.keys() | TREES.keys()


def test_own_recordings_cover_every_tool():
    assert {one["tool"] for one in OWN_EXPECTATIONS.values()} == STATISTICS.keys() | LINKS.keys() | TREES.keys()


@pytest.mark.parametrize("by", ["files", "netlink"])
@recordings_of(STATISTICS)
async def test_counters_of_recorded_ports(recording, tmp_path, by):
    text, expected = recording
    counters = STATISTICS[expected["tool"]](text)
    tree_of_statistics(tmp_path, counters, expected.get("driver", ""))
    netlink = netlink_of(counters, {}) if by == "netlink" else Netlink()
    async with opened(tmp_path, netlink) as source:
        found, failures = await ports_of(source)
    check(found, failures, expected)


@recordings_of(TREES)
async def test_links_of_recorded_ports(recording, tmp_path):
    text, expected = recording
    TREES[expected["tool"]](tmp_path, text)
    async with opened(tmp_path) as source:
        found, failures = await ports_of(source)
    check(found, failures, expected)


@recordings_of(LINKS)
async def test_netdevs_of_recorded_ports(recording, tmp_path):
    text, expected = recording
    netdevs = LINKS[expected["tool"]](text)
    counters = {port: {"tx_rdma_cnp_pkts": 0} for port in netdevs}
    tree_of_statistics(tmp_path, counters, expected.get("driver", ""))
    async with opened(tmp_path, netlink_of(counters, netdevs)) as source:
        found, failures = await ports_of(source)
    check(found, failures, expected)
