"""Metrics of a simulated network card: identity, links, hotplug, and moves between namespaces.

NICs are read every ten minutes here: what is exported sooner was read because of a kernel event.
"""

import asyncio
import socket
import subprocess
import uuid

from exporter.core.source import Host
from exporter.linux.nic_reader import KernelNic
from exporter.sources.nic.metrics import SCHEMA
from exporter.sources.nic.options import NicOptions
from exporter.sources.nic.source import NicSource
from lab.guest import NETWORK, json_of, lines_of, link, nic, number, run

TOGGLES = 200


def shown(daemon, *names):
    return daemon.until(f"{names} are shown", lambda page: set(names) <= page.devices("fabric_nic_"))


def gone(daemon, *names):
    return daemon.until(f"{names} are gone", lambda page: not set(names) & page.devices("fabric_nic_"))


def up(daemon, name, value=1):
    return daemon.until(
        f"the link of {name} is {value}", lambda page: page.value("fabric_nic_link_up", device=name) == value
    )


def test_plugged_card_is_exported_at_once_until_it_is_removed(daemon, card):
    one, other = card.ports
    page = up(daemon, one)
    page = up(daemon, other)
    assert page.value("fabric_source_up", source="nic") == 1
    info = page.info("fabric_nic_info", device=one)
    theirs = lines_of("ethtool", "-i", one)
    assert (info["driver"], info["firmware"]) == (theirs["driver"], theirs["firmware-version"])
    assert info["mac"] == (NETWORK / one / "address").read_text().strip()
    assert (info["phys_port_name"], info["traffic"]) == ("p1", "kernel")
    assert page.value("fabric_nic_mtu_bytes", device=one) == 1500
    assert not page.names("fabric_source_failures", source="nic")
    card.unplug()
    gone(daemon, one, other)


def test_device_not_on_pci_has_no_pci_address(daemon, card):
    page = up(daemon, card.ports[0])
    assert "pci" not in page.info("fabric_nic_info", device=card.ports[0])


async def read_once():
    """Read all devices by the source alone, with details; return their values by ending."""
    source = NicSource(NicOptions(keep=("*",)), Host("host", NETWORK.parent.parent, NETWORK), KernelNic)
    try:
        reading = await source.read()
    finally:
        await source.close()
    assert not reading.failures
    found = {}
    for table in reading.tables:
        for place, (name, *_) in enumerate(table.rows.keys):
            found.setdefault(name, {}).update(
                {ending: column.values[place] for ending, column in table.columns.items()}
            )
    return found


async def test_kernel_counters_match_iproute2(card):
    """Compare with iproute2 after the frames were delivered."""
    one, other = card.ports
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
        sock.bind((one, 0))
        for _ in range(20):
            sock.send(bytes(100))
    for name in (one, other):
        run("ip", "link", "set", name, "down")
    found = await read_once()
    assert set(found) == {one, other}
    for name in found:
        (theirs,) = json_of("ip", "-j", "-s", "link", "show", name)
        for way, direction in (("receive", "rx"), ("transmit", "tx")):
            counts = theirs["stats64"][direction]
            assert found[name][f"kernel_{way}_bytes_total"] == counts["bytes"]
            assert found[name][f"kernel_{way}_packets_total"] == counts["packets"]
    assert found[one]["kernel_transmit_packets_total"] == 20
    assert found[one]["kernel_transmit_bytes_total"] == 20 * 100


async def test_port_counters_and_settings_of_netdevsim(card):
    """The counters are constants of netdevsim; the settings are made by ethtool."""
    one, other = card.ports
    run("ethtool", "--set-fec", one, "encoding", "rs")
    run("ethtool", "--pause", one, "rx", "on", "tx", "off")
    found = await read_once()
    assert (found[one]["fec_corrected_blocks_total"], found[one]["fec_uncorrectable_blocks_total"]) == (123, 4)
    assert (found[one]["receive_pause_frames_total"], found[one]["transmit_pause_frames_total"]) == (1, 2)
    settings = SCHEMA.metrics["settings_info"].extra
    labels = dict(zip(settings, found[one]["settings_info"], strict=True))
    assert {name: word for name, word in labels.items() if word} == {"fec": "rs", "pause": "receive"}
    labels = dict(zip(settings, found[other]["settings_info"], strict=True))
    assert {name: word for name, word in labels.items() if word} == {"pause": "none"}  # error correction was never set


async def test_representors_are_not_exported_but_uplinks_are(card, program):
    """Two virtual functions have representors, which are network devices of the card too."""
    devlink = program("devlink")
    ports = card.ports
    (card.folder / "sriov_numvfs").write_text("2")
    run(devlink, "dev", "eswitch", "set", "netdevsim/netdevsim1", "mode", "switchdev")
    names = {(entry / "phys_port_name").read_text().strip() for entry in (card.folder / "net").iterdir()}
    assert names == {"p1", "p2", "pf0vf0", "pf0vf1"}
    assert set(await read_once()) == set(ports)


def test_software_devices_are_not_exported_but_bonds_are(daemon, card, pair):
    with (
        link("dummy0", "type", "dummy"),
        link("child0", "link", pair[0], "type", "macvlan"),
        link("tagged0", "link", card.ports[0], "type", "vlan", "id", "5"),
        link("bond0", "type", "bond", "mode", "active-backup"),
    ):
        run("ip", "link", "set", card.ports[1], "down")
        run("ip", "link", "set", card.ports[1], "master", "bond0")
        page = up(daemon, "bond0")
        assert page.devices("fabric_nic_") == {*card.ports, "bond0"}
        allowed = {
            "info",
            "link_up",
            "carrier_changes_total",
            "mtu_bytes",
            "resets_total",
            "link_speed_bytes_per_second",
        }
        assert page.names("fabric_nic_", device="bond0") <= {f"fabric_nic_{ending}" for ending in allowed}
    gone(daemon, "bond0")


def test_renamed_card_is_exported_under_its_new_name(daemon, card):
    one = card.ports[0]
    shown(daemon, one)
    run("ip", "link", "set", one, "name", "fabric0")
    page = shown(daemon, "fabric0")
    assert one not in page.devices("fabric_nic_")
    up(daemon, "fabric0")


def test_card_moved_into_a_namespace_disappears_until_it_returns(daemon, card):
    one = card.ports[0]
    shown(daemon, one)
    namespace = f"fabric-lab-{uuid.uuid4().hex[:8]}"
    run("ip", "netns", "add", namespace)
    try:
        run("ip", "link", "set", one, "netns", namespace)
        page = gone(daemon, one)
        assert page.value("fabric_nic_link_up", device=card_port(page)) is not None
        run("ip", "-n", namespace, "link", "set", one, "netns", "1")
        shown(daemon, one)
    finally:
        subprocess.run(["ip", "netns", "del", namespace], check=True)


def card_port(page):
    """Return the device that is left."""
    (name,) = page.devices("fabric_nic_")
    return name


def test_storm_of_link_events_ends_in_the_right_state(daemon, card, tmp_path):
    one, other = card.ports
    before = up(daemon, one)
    changes = number(NETWORK / one / "carrier_changes")
    batch = tmp_path / "batch"
    batch.write_text(f"link set {other} down\nlink set {other} up\n" * TOGGLES)
    with subprocess.Popen(["ip", "-batch", batch]) as storm:
        while storm.poll() is None:
            assert daemon.scrape().value("fabric_source_up", source="nic") == 1
        assert storm.returncode == 0
    kernel = number(NETWORK / one / "carrier_changes")
    assert kernel == changes + 2 * TOGGLES
    after = daemon.until(
        "all changes are counted",
        lambda page: page.value("fabric_nic_carrier_changes_total", device=one) == kernel,
    )
    assert after.value("fabric_nic_link_up", device=one) == 1
    assert after.value("fabric_nic_link_up", device=other) == 1
    # It reads for many events at once, and none is left to be read for.
    reads = [page.value("fabric_source_reads_total", source="nic") for page in (before, after)]
    assert 1 <= reads[1] - reads[0] < TOGGLES
    assert after.value("fabric_source_overruns_total", source="nic") == before.value(
        "fabric_source_overruns_total", source="nic"
    )
    names = [after.names("fabric_source_failures", source="nic"), before.names("fabric_source_failures", source="nic")]
    assert names[0] == names[1]


def test_repeated_hotplug_does_not_affect_other_cards(daemon, card):
    shown(daemon, *card.ports)
    for _ in range(5):
        with nic(2) as other:
            names = other.ports
            shown(daemon, *names)
        gone(daemon, *names)
    page = shown(daemon, *card.ports)
    assert page.value("fabric_source_up", source="nic") == 1


async def test_dropped_events_request_a_read(card, pair):
    """Overflow a small buffer with events of unselected devices: only the overrun requests a read."""
    reader = KernelNic()
    source = NicSource(NicOptions(), Host("host", NETWORK.parent.parent, NETWORK), lambda: reader)
    try:
        await source.read()
        run("ip", "link", "set", pair[1], "down")
        for _ in range(3):
            await asyncio.sleep(0)
        assert not source.changed.is_set()
        reader._events._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        for state in ("up", "down") * 10:
            run("ip", "link", "set", pair[1], state)
        await asyncio.wait_for(source.changed.wait(), 5)
    finally:
        await source.close()
