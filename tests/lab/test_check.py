"""`check` and the source `hostcheck` on the devices of the guest, compared with programs of Linux."""

import errno
import json
import re
import subprocess
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from exporter import cli
from exporter.linux.nic_reader import KernelNic
from exporter.linux.pci_config import read_pci_config
from lab.guest import ADDRESS, address_index, exporter, lines_of, rdma, run
from tests.helpers.unprivileged import status_without_rights

CONFIG = """
sources:
  rdma: {enabled: false}
  nic: {enabled: false}
  nccl: {enabled: false}
  hostcheck: {interval: 10s}
"""


@pytest.fixture
def roce(card):
    """Return a SoftRoCE device and the port of a card under it, which has an address."""
    port = card.ports[0]
    run("ip", "address", "add", f"{ADDRESS}/24", "dev", port)
    with rdma("rxe0", "rxe", port) as name:
        yield name, port


def rows_of(text):
    """Return the results as words and evidence by check and object."""
    return {(row["check"], row["object"]): (row["result"], row["evidence"]) for row in json.loads(text)["results"]}


@pytest.fixture
def checked(capfd):
    """Return a function that runs the command as root."""

    def check():
        assert cli.main(["check", "--json"]) in {0, 1}
        captured = capfd.readouterr()
        assert not captured.err
        return rows_of(captured.out)

    return check


def test_the_gid_that_nccl_picks_is_that_of_the_address(roce, checked):
    device, port = roce
    index = address_index(device)
    assert re.search(rf"GID\[ *{index}\]:\s+::ffff:{ADDRESS}, RoCE v2", run("ibv_devinfo", "-v", "-d", device))
    assert checked()["roce_gid", f"{device}:1"] == ("ok", f"NCCL picks GID {index}, RoCE v2, IPv4")
    run("ip", "address", "del", f"{ADDRESS}/24", "dev", port)
    result, evidence = checked()["roce_gid", f"{device}:1"]
    assert result == "fail"
    assert "link-local" in evidence


@pytest.mark.parametrize(("mtu", "result"), [(1500, "warn"), (2200, "warn"), (4200, "ok"), (9000, "ok")])
def test_the_mtu_of_rdma_is_that_of_verbs(roce, checked, mtu, result):
    """As the device itself reports its active MTU: `1024 (3)`."""
    device, port = roce
    run("ip", "link", "set", port, "mtu", mtu)
    active = lines_of("ibv_devinfo", "-d", device)["active_mtu"].split()[0]
    found, evidence = checked()["roce_mtu", port]
    assert found == result
    assert f"MTU {mtu}: RDMA uses {active} bytes" in evidence


def test_a_port_that_is_down_is_not_checked_and_no_fault(roce, checked):
    device, port = roce
    run("ip", "link", "set", port, "down")
    assert f"link {device}/1 state DOWN" in run("rdma", "link", "show", f"{device}/1")
    found = checked()
    assert found["roce_gid", f"{device}:1"][0] == "not_applicable"
    assert found["port_speed", port][0] == "unknown"
    assert not [row for row in found.values() if row[0] in {"warn", "fail"} and device in row[1]]


@pytest.mark.parametrize("place", [0, 1])
def test_links_of_pci_cards_are_those_of_lspci(pci_cards, program, checked, place):
    address = pci_cards[place]
    shown = run(program("lspci"), "-vv", "-s", address)
    speed, width = re.search(r"LnkSta:\s+Speed ([\d.]+)GT/s.*Width x(\d+)", shown).groups()
    (link,) = [row for (check, name), row in checked().items() if check == "pcie_link" and name.startswith(address)]
    assert link == ("ok", f"PCIe link {speed} GT/s x{width}, as card and slot support")


@pytest.mark.parametrize("acs", ["1d", "4", "0"])
def test_pci_settings_are_those_of_lspci(pci_cards, program, acs):
    """ACS of the root port above a card, which setpci changes, and the requests of the card, which QEMU holds fixed."""
    folder = (Path("/sys/bus/pci/devices") / pci_cards[0]).resolve()
    port = folder.parent.name
    run(program("setpci"), "-s", port, f"ECAP_ACS+6.w={acs}")
    control = re.search(r"ACSCtl:(.*)", run(program("lspci"), "-vv", "-s", port))[1].split()
    bridge = read_pci_config(folder.parent / "config")
    run(program("setpci"), "-s", port, "ECAP_ACS+6.w=0")
    redirects = {"ReqRedir", "CmpltRedir", "UpstreamFwd"}
    assert {*bridge.redirects} == {word[:-1] for word in control if word.endswith("+")} & redirects
    assert len(bridge.redirects) == {"1d": 3, "4": 1, "0": 0}[acs]
    shown = run(program("lspci"), "-vv", "-s", pci_cards[0])
    card = read_pci_config(folder / "config")
    assert f"MaxPayload {card.max_payload} bytes, MaxReadReq {card.max_read_request} bytes" in shown
    assert f"RlxdOrd{'+' if card.relaxed_ordering else '-'}" in shown


def test_no_device_of_the_guest_has_dcb(card, pci_cards, program):
    """Neither netdevsim nor a card of QEMU: priority flow control is tested with recordings. As iproute2 finds too."""
    devices = [
        *card.ports,
        *(entry.name for one in pci_cards for entry in Path("/sys/bus/pci/devices", one).rglob("net/*")),
    ]
    assert len(devices) == len(card.ports) + len(pci_cards)
    found = {name: subprocess.run([program("dcb"), "pfc", "show", "dev", name], check=False) for name in devices}
    with closing(KernelNic()) as reader:
        errors = {name: error_of(reader, name) for name in devices}
    assert {one.returncode == 0 for one in found.values()} == {False}
    assert set(errors.values()) == {errno.EOPNOTSUPP}


def error_of(reader, name):
    with pytest.raises(OSError) as caught:
        reader.dcb(name)
    return caught.value.errno


def test_a_node_that_is_not_in_dev_fails_as_in_a_container(roce, checked, tmp_path, capfd):
    device, _ = roce
    assert checked()["rdma_device_nodes", device] == ("ok", "uverbs is in /dev/infiniband")
    assert cli.main(["check", "--json", "--path.dev", str(tmp_path), "--only", "rdma_device_nodes"]) == 1
    found = rows_of(capfd.readouterr().out)
    assert found["rdma_device_nodes", device][0] == "fail"
    run("ibv_devinfo", "-d", device)


def test_without_rights_the_results_are_the_same_or_unknown(roce, pci_cards, checked, capfd):
    as_root = checked()
    assert status_without_rights(lambda: cli.main(["check", "--json"])) in {0, 1}
    captured = capfd.readouterr()
    assert not captured.err
    found = rows_of(captured.out)
    less = {key: row for key, row in found.items() if as_root.get(key) != row}
    assert {result for result, _ in less.values()} == {"unknown"}
    assert all("root" in evidence for _, evidence in less.values())
    assert ("roce_gid", f"{roce[0]}:1") in found.keys() - less.keys()


def test_a_daemon_counts_what_the_command_shows(roce, pci_cards, checked):
    with exporter(CONFIG, "--path.dev=/dev") as one:
        page = one.until("the checks are counted", lambda page: page.names("fabric_check_results"))
    counted = {
        (labels["check"], labels["result"]): value
        for (name, has), value in page.samples.items()
        if name == "fabric_check_results" and (labels := dict(has))
    }
    shown = Counter((check, result) for (check, _), (result, _) in checked().items())
    applicable = {check for check, result in shown if result != "not_applicable"}
    assert counted == {(check, result): number for (check, result), number in shown.items() if check in applicable}
    assert ("roce_mtu", "warn") in counted
