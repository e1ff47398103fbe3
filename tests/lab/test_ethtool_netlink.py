"""Ethtool netlink compared with Debian's `ethtool`, on the same devices."""

import errno
from contextlib import closing
from pathlib import Path

import pytest

from exporter.linux.nic_reader import KernelNic
from lab.guest import json_of, lines_of, run

YES = {"on": True, "off": False}


@pytest.fixture
def reader():
    with closing(KernelNic()) as one:
        yield one


def assert_same_pause(reader, name):
    # The switches as text, since the JSON of ethtool 6.1 has true for all of them.
    theirs = lines_of("ethtool", "--show-pause", name)
    (counts,) = json_of("ethtool", "--json", "-I", "--show-pause", name)
    ours = reader.pause(name)
    assert (ours.autoneg, ours.receive, ours.transmit) == tuple(
        YES[theirs[key]] for key in ("Autonegotiate", "RX", "TX")
    )
    counted = counts.get("statistics", {})
    assert ours.receive_frames == counted.get("rx_pause_frames")
    assert ours.transmit_frames == counted.get("tx_pause_frames")
    return ours


def test_pause_matches_ethtool(reader, card):
    one = card.ports[0]
    ours = assert_same_pause(reader, one)
    assert (ours.receive_frames, ours.transmit_frames) == (1, 2)  # netdevsim's own constants
    run("ethtool", "--pause", one, "rx", "on", "tx", "off")
    ours = assert_same_pause(reader, one)
    assert (ours.receive, ours.transmit) == (True, False)


def test_missing_pause_counter_is_absent(reader, card):
    """Disable one of them in the simulation."""
    switch = debugfs() / "netdevsim/netdevsim1/ports/0/ethtool/pause/report_stats_rx"
    switch.write_text("N")
    ours = assert_same_pause(reader, card.ports[0])
    assert (ours.receive_frames, ours.transmit_frames) == (None, 2)


def debugfs():
    folder = Path("/sys/kernel/debug")
    if not (folder / "netdevsim").exists():
        run("mount", "-t", "debugfs", "debugfs", folder)
    return folder


@pytest.mark.parametrize(
    ("encoding", "shown", "word"), [("rs", "RS", "rs"), ("baser", "BaseR", "baser"), ("off", "Off", "none")]
)
def test_fec_matches_ethtool(reader, card, encoding, shown, word):
    one = card.ports[0]
    run("ethtool", "--set-fec", one, "encoding", encoding)
    (theirs,) = json_of("ethtool", "--json", "-I", "--show-fec", one)
    ours = reader.fec(one)
    assert (theirs["active"], ours.active) == ([shown], word)
    assert ours.corrected_blocks == theirs["statistics"]["corrected_blocks"]["total"]
    assert ours.uncorrectable_blocks == theirs["statistics"]["uncorrectable_blocks"]["total"]
    assert ours.corrected_bits is None  # netdevsim has none, and ethtool prints none
    assert "corrected_bits" not in theirs["statistics"]


def test_link_modes_match_ethtool(reader, pair):
    theirs = lines_of("ethtool", pair[0])
    ours = reader.link_modes(pair[0])
    assert f"{ours.speed_bits_per_second // 10**6}Mb/s" == theirs["Speed"]
    assert ours.duplex == theirs["Duplex"].lower()
    assert ours.autoneg is YES[theirs["Auto-negotiation"]]
    assert ours.max_speed_bits_per_second is None  # it lists no modes


def test_link_state_matches_ethtool_up_and_down(reader, pair):
    for state, word in (("up", "yes"), ("down", "no")):
        run("ip", "link", "set", pair[0], state)
        ours = reader.link_state(pair[0])
        assert lines_of("ethtool", pair[0])["Link detected"] == word
        assert ours.up is (word == "yes")
        assert (ours.reason, ours.down_count) == (None, None)


def test_unsupported_requests_raise_eopnotsupp(reader, card, pair):
    requests = [
        (reader.pause, pair[0]),
        (reader.fec, pair[0]),
        (reader.link_modes, card.ports[0]),
        (reader.statistics, card.ports[0]),
        (reader.dcb, card.ports[0]),
    ]
    assert requests
    for request, name in requests:
        with pytest.raises(OSError) as caught:
            request(name)
        assert caught.value.errno == errno.EOPNOTSUPP, (request, name)


def test_requests_to_a_removed_device_raise_enodev(reader, card):
    one = card.ports[0]
    assert reader.pause(one).receive_frames == 1
    card.unplug()
    for request in (reader.pause, reader.fec, reader.link_state, reader.driver):
        with pytest.raises(OSError) as caught:
            request(one)
        assert caught.value.errno == errno.ENODEV, request


def test_renamed_device_is_read_by_its_new_name(reader, card):
    one = card.ports[0]
    run("ethtool", "--set-fec", one, "encoding", "rs")
    run("ip", "link", "set", one, "down")
    run("ip", "link", "set", one, "name", "fabric0")
    assert reader.fec("fabric0").active == "rs"
    with pytest.raises(OSError) as caught:
        reader.fec(one)
    assert caught.value.errno == errno.ENODEV
