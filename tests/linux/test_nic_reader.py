import errno
import json
import os
from functools import partial

import pytest

from exporter.linux.ethtool_ioctl import DriverInfo, LinkSettings, Statistics
from exporter.linux.netlink.data_center_bridging import Dcb
from exporter.linux.netlink.ethtool_netlink import (
    Fec,
    LinkModes,
    LinkState,
    Pause,
)
from exporter.linux.netlink.queueing_disciplines import QueueingDiscipline
from exporter.linux.nic_reader import ReplayNic
from tests.helpers.paths import FIXTURES
from tests.helpers.record_nics import record

REQUESTS = (
    *("driver", "statistics", "settings", "link_modes", "link_state", "pause", "fec", "standard_statistics", "dcb"),
)


@pytest.fixture
def recorded():
    return ReplayNic(FIXTURES / "nic-replay")


def number_of(request, device):
    with pytest.raises(OSError) as caught:
        request(device)
    assert caught.value.filename == device
    return caught.value.errno


def disciplines_of(replay):
    """Return the queueing discipline of each device, or the errno if it is not known."""
    links = replay.links()
    found = replay.queueing_disciplines(links)
    answers = {link.name: found[link.ifindex] for link in links if link.ifindex in found}
    return {name: (one.errno, one.filename) if isinstance(one, OSError) else one for name, one in answers.items()}


def write(folder, device, text):
    new = folder / "new"
    new.write_bytes(text if isinstance(text, bytes) else os.fsencode(text))
    new.replace(folder / f"{device}.json")


def test_links_are_sorted_by_ifindex(recorded):
    links = recorded.links()
    assert [(link.ifindex, link.name, link.kind, link.carrier) for link in links] == [
        (3, "rail0", "", True),
        (4, "rail1", "", False),
        (5, "ib0", "ipoib", True),
        (9, "bond0", "bond", True),
    ]
    assert links[0].stats["rx_bytes"] == 2**53 + 1
    assert (links[0].hardware, links[0].parent_dev_name, links[0].lower) == (1, "0000:17:00.0", None)
    assert links[1].stats == {}
    assert links[1].carrier_changes is None


def test_answers_have_types_and_exact_numbers(recorded):
    assert recorded.driver("rail0") == DriverInfo("mlx5_core", "6.8.0", "28.40.1000 (EXA0000000001)", "0000:17:00.0")
    assert recorded.driver("rail1") == DriverInfo("vmxnet3", "", "", "0000:65:00.0")
    found = recorded.statistics("rail0")
    assert found.names[:2] == ("rx_packets", "rx_bytes_phy")
    assert list(found.values)[:3] == [120, 2**64 - 1, 5 * 10**18]
    assert recorded.settings("rail0") == LinkSettings(400_000_000_000, "full", True, "fibre")


def test_driver_with_repeated_names(recorded):
    found = recorded.statistics("rail1")
    assert found.names == ("Tx Queue#", "  ucast pkts tx", "Tx Queue#", "  ucast pkts tx")
    assert list(found.values) == [0, 5, 1, 6]


def test_errors_are_replayed(recorded):
    assert number_of(recorded.settings, "rail1") == errno.EINVAL
    assert number_of(recorded.statistics, "bond0") == errno.EOPNOTSUPP


def test_answers_of_all_kinds(tmp_path):
    write(
        tmp_path,
        "rail0",
        """{
        "link_modes": {"speed_bits_per_second": 100000000000, "duplex": "full", "autoneg": true, "lanes": 2,
                       "max_speed_bits_per_second": 400000000000},
        "link_state": {"up": false, "reason": "no_cable", "down_count": 4294967295},
        "pause": {"autoneg": false, "receive": true, "transmit": false, "receive_frames": 18446744073709551615},
        "fec": {"active": "rs", "corrected_blocks": 5, "uncorrectable_blocks": 0, "corrected_bits": 7},
        "standard_statistics": {"FramesReceivedOK": 18446744073709551615, "SomethingNew": 1},
        "dcb": {"pfc": [3], "dscp_rules": true, "classes": [100, 0, 0, 0, 0, 0, 0, "strict"],
                "priority_classes": [0, 1, 2, 3, 4, 5, 6, 7]}
        }""",
    )
    write(tmp_path, "rail1", '{"pause": {}, "dcb": {"pfc": []}, "fec": {"errno": "EIO"}}')
    replay = ReplayNic(tmp_path)
    assert replay.link_modes("rail0") == LinkModes(100_000_000_000, "full", True, 2, 400_000_000_000)
    assert replay.link_state("rail0") == LinkState(False, "no_cable", 2**32 - 1)
    assert replay.pause("rail0") == Pause(False, True, False, receive_frames=2**64 - 1)
    assert replay.fec("rail0") == Fec("rs", 5, 0, 7)
    assert replay.standard_statistics("rail0") == {"FramesReceivedOK": 2**64 - 1, "SomethingNew": 1}
    assert replay.dcb("rail0") == Dcb((3,), True, (100, *[0] * 6, "strict"), tuple(range(8)))
    assert replay.pause("rail1") == Pause()
    assert replay.dcb("rail1") == Dcb(pfc=())
    assert number_of(replay.fec, "rail1") == errno.EIO
    assert number_of(replay.link_state, "rail1") == errno.EOPNOTSUPP


def test_queueing_disciplines_are_replayed(recorded):
    assert disciplines_of(recorded) == {
        "rail0": QueueingDiscipline("tbf", 0x10000, 2**32 - 1, 31, 32, 33, 50_000_000_000),
        "rail1": QueueingDiscipline("mq", drops=0),
        "bond0": QueueingDiscipline("noqueue"),
    }


def test_malformed_or_failed_queueing_discipline_affects_only_its_device(tmp_path):
    for index, name in enumerate(("rail0", "rail1", "rail2", "rail3"), 1):
        answer = ('{"kind": "fq"}', '{"kind": 3}', '{"errno": "EIO"}', '{"kind": "fq", "drops": -1}')[index - 1]
        write(tmp_path, name, f'{{"link": {{"ifindex": {index}}}, "queueing": {answer}}}')
    found = disciplines_of(ReplayNic(tmp_path))
    assert found.pop("rail0") == QueueingDiscipline("fq")
    assert found == {
        "rail1": (errno.EBADMSG, "rail1"),
        "rail2": (errno.EIO, "rail2"),
        "rail3": (errno.EBADMSG, "rail3"),
    }
    record(ReplayNic(tmp_path), tmp_path / "again")
    again = disciplines_of(ReplayNic(tmp_path / "again"))
    assert (again["rail0"], again["rail1"], again["rail2"]) == (
        QueueingDiscipline("fq"),
        (errno.EBADMSG, "rail1"),
        (errno.EIO, "rail2"),
    )


class RefusingReader(ReplayNic):
    """A kernel that refuses to list queueing disciplines."""

    def __init__(self, folder, number):
        super().__init__(folder)
        self.number = number

    def queueing_disciplines(self, links):
        raise OSError(self.number, "injected")


@pytest.mark.parametrize(
    ("number", "again"), [(errno.EPERM, {"rail0": (errno.EPERM, "rail0")}), (errno.EOPNOTSUPP, {})]
)
def test_failed_queueing_dump_is_recorded_for_each_device(tmp_path, number, again):
    write(tmp_path, "rail0", '{"link": {"ifindex": 1}}')
    record(RefusingReader(tmp_path, number), tmp_path / "made")
    assert disciplines_of(ReplayNic(tmp_path / "made")) == again


def test_lower_device_of_an_infiniband_partition_is_recorded(tmp_path):
    write(tmp_path, "ib0", '{"link": {"ifindex": 4, "hardware": 32, "kind": "ipoib"}}')
    write(tmp_path, "ib0.8001", '{"link": {"ifindex": 5, "hardware": 32, "kind": "ipoib", "lower": 4}}')
    record(ReplayNic(tmp_path), tmp_path / "again")
    for folder in (tmp_path, tmp_path / "again"):
        assert [(link.name, link.lower) for link in ReplayNic(folder).links()] == [("ib0", None), ("ib0.8001", 4)]


def test_there_are_no_events(recorded):
    assert recorded.event_fd() is None
    assert recorded.events() == []
    recorded.forget("rail0")
    recorded.close()
    recorded.close()


def test_missing_file_and_missing_answers(tmp_path):
    write(tmp_path, "eth0", "{}")
    replay = ReplayNic(tmp_path)
    assert replay.links() == []
    for request in REQUESTS:
        assert number_of(getattr(replay, request), "eth0") == errno.EOPNOTSUPP
        assert number_of(getattr(replay, request), "eth1") == errno.ENODEV


@pytest.mark.parametrize("name", ["", ".", "..", "../outside", "/outside", "sub/eth0", "a\0b", "x" * 300])
def test_device_name_cannot_leave_the_folder(tmp_path, name):
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    text = '{"driver": {"name": "outside"}}'
    write(tmp_path, "outside", text)
    write(folder / "sub", "eth0", text)
    for hidden in ("", ".", ".."):
        write(folder, hidden, text)
    assert number_of(ReplayNic(folder).driver, name) == errno.ENODEV


def test_replaced_file_changes_the_counters_and_reuses_the_names(tmp_path):
    replay = ReplayNic(tmp_path)
    write(tmp_path, "eth0", '{"link": {"ifindex": 2}, "statistics": {"rx_bytes": 1, "tx_bytes": 1}}')
    first = replay.statistics("eth0")
    assert replay.statistics("eth0") is first, "an unchanged file is not read again"
    write(tmp_path, "eth0", '{"link": {"ifindex": 2, "mtu": 68}, "statistics": {"rx_bytes": 2, "tx_bytes": 3}}')
    second = replay.statistics("eth0")
    assert list(second.values) == [2, 3]
    assert second.names is first.names
    assert replay.links()[0].mtu == 68
    write(tmp_path, "eth0", '{"statistics": {"rx_bytes": 2, "rx_drops": 3}}')
    assert replay.statistics("eth0").names == ("rx_bytes", "rx_drops")
    (tmp_path / "eth0.json").unlink()
    assert number_of(replay.statistics, "eth0") == errno.ENODEV
    assert replay.links() == []


@pytest.mark.parametrize(
    ("text", "text_of_error"),
    [
        ("", "truncated"),
        ('{"link": ', "truncated"),
        ("[]", "expected `object`, got `array`"),
        ('{"lnik": {}}', "unknown field `lnik`"),
        ('{"driver": ' + "[" * 200_000, "recursion"),
        (b"\xff{}", "malformed"),
        (b" " * (8 * 1024 * 1024 + 1), "larger than 8388608 bytes"),
    ],
)
def test_malformed_file_affects_only_its_device(tmp_path, caplog, text, text_of_error):
    write(tmp_path, "good", '{"link": {"ifindex": 1}, "driver": {"name": "virtio_net"}}')
    write(tmp_path, "bad", text)
    replay = ReplayNic(tmp_path)
    for _ in range(2):
        assert [link.name for link in replay.links()] == ["good"]
        assert replay.driver("good").name == "virtio_net"
        for request in REQUESTS:
            assert number_of(getattr(replay, request), "bad") == errno.EBADMSG
        assert replay.unreadable_links().keys() == {"bad"}
        error = replay.unreadable_links()["bad"]
        assert (error.errno, error.filename) == (errno.EBADMSG, "bad")
        assert f"{tmp_path / 'bad.json'}: " in error.strerror
        assert text_of_error in error.strerror.lower()
    assert caplog.records == []  # the caller logs it
    write(tmp_path, "bad", '{"link": {"ifindex": 2}}')
    assert [link.name for link in replay.links()] == ["good", "bad"]
    assert replay.unreadable_links() == {}


@pytest.mark.parametrize(
    ("part", "value", "text_of_error"),
    [
        ("link", '{"mtu": 1500}', "ifindex"),
        ("link", '{"ifindex": 1, "mtu": "1500"}', "`$.mtu`"),
        ("link", '{"ifindex": 1, "name": "eth1"}', "unknown key 'name'; known are admin_up"),
        ("driver", '{"name": 7}', "`$.name`"),
        ("driver", "null", "null"),
        ("driver", '{"name": "\udcff"}', "utf-8"),
        ("statistics", '{"rx_bytes": -1}', "'rx_bytes' is -1; write an unsigned 64-bit integer"),
        ("statistics", '{"rx_bytes": 18446744073709551616}', "'rx_bytes' is 18446744073709551616;"),
        ("statistics", '{"rx_bytes": 1.5}', "float"),
        ("statistics", '[["rx_bytes"]]', "length 2"),
        ("settings", '{"speed": 1}', "unknown key 'speed'"),
        ("link", '{"ifindex": 1, "stats": {"rx_bytes": 1' + "0" * 400 + "}}", "'rx_bytes' is a number of "),
        ("link", '{"ifindex": 1, "carrier_changes": -9}', "'carrier_changes' is -9; write an unsigned"),
        ("fec", '{"corrected_blocks": -7}', "'corrected_blocks' is -7;"),
        ("link_modes", '{"lanes": "4"}', "`$.lanes`"),
        ("link_state", '{"up": 1}', "`$.up`"),
        ("pause", "[]", "array"),
        ("fec", '{"active": "rs", "corrected": 1}', "unknown key 'corrected'; known are active, corrected_bits,"),
        ("standard_statistics", '{"FramesReceivedOK": -1}', "'FramesReceivedOK' is -1; write an unsigned"),
        ("standard_statistics", '[["FramesReceivedOK", 1]]', "array"),
        ("dcb", '{"pfc": 3}', "`$.pfc`"),
        ("settings", '{"errno": "EWHATEVER"}', "errno 'EWHATEVER' is unknown; write a name such as EINVAL"),
        ("settings", '{"errno": "errorcode"}', "errno 'errorcode' is unknown"),
    ],
)
def test_malformed_answer_affects_only_itself(tmp_path, part, value, text_of_error):
    answers = dict.fromkeys(REQUESTS, "{}") | {
        "link": '{"ifindex": 1}',
        "driver": '{"name": "virtio_net"}',
        part: value,
    }
    write(tmp_path, "eth0", "{" + ",".join(f'"{key}": {text}' for key, text in answers.items()) + "}")
    replay = ReplayNic(tmp_path)
    assert len(replay.links()) == (part != "link")
    assert replay.unreadable_links().keys() == ({"eth0"} if part == "link" else set())
    failed = {}
    for request in REQUESTS:
        try:
            getattr(replay, request)("eth0")
        except OSError as error:
            failed[request] = error
    assert failed.keys() == ({part} if part != "link" else set())
    error = failed[part] if failed else replay.unreadable_links()["eth0"]
    assert error.errno == errno.EBADMSG
    assert f"{part} in {tmp_path / 'eth0.json'}: " in error.strerror
    assert text_of_error in error.strerror


def test_cache_of_removed_devices_is_dropped(tmp_path):
    reader = ReplayNic(tmp_path)
    for number in range(20):
        write(tmp_path, f"veth{number}", f'{{"link": {{"ifindex": {number + 1}}}}}')
        assert [link.name for link in reader.links()] == [f"veth{number}"]
        (tmp_path / f"veth{number}.json").unlink()
    assert reader.links() == []
    assert not reader._recordings._cache


def test_anything_but_regular_files_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "dangling.json").symlink_to("nowhere")
    (tmp_path / "notes.txt").write_text("not a recording")
    replay = ReplayNic(tmp_path)
    assert replay.links() == []
    assert number_of(replay.driver, "pipe") == errno.EBADMSG
    assert number_of(replay.driver, "dangling") == errno.ENODEV
    assert replay.unreadable_links().keys() == {"pipe", "folder"}
    assert all("is not a regular file" in error.strerror for error in replay.unreadable_links().values())


def test_missing_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="absent"):
        ReplayNic(tmp_path / "absent").links()


def answers_of(reader):
    found = {}
    for link in reader.links():
        for request in REQUESTS:
            try:
                answer = getattr(reader, request)(link.name)
            except OSError as error:
                answer = error.errno
            found[link.name, request] = answer
    return found


def test_recording_of_a_replay_is_identical(recorded, tmp_path):
    record(recorded, tmp_path / "made" / "here")
    again = ReplayNic(tmp_path / "made" / "here")
    assert again.links() == recorded.links()
    assert answers_of(again) == answers_of(recorded)
    assert disciplines_of(again) == disciplines_of(recorded)
    assert len(answers_of(again)) == 4 * len(REQUESTS)
    assert sorted(path.name for path in (tmp_path / "made" / "here").iterdir()) == [
        "bond0.json",
        "ib0.json",
        "rail0.json",
        "rail1.json",
    ]


# --- the memory of modules


class ModuleReader(ReplayNic):
    """A device whose module memory is `page * 7 + bank * 5 + address + offset`, except for given bytes."""

    def __init__(self, folder, given, errors=()):
        super().__init__(folder)
        self.given = given
        self.errors = dict(errors)
        self.read = set()

    def byte(self, page, bank, offset, address):
        usual = (page * 7 + bank * 5 + address + offset) % 256
        return self.given.get(offset, usual) if offset < 128 and address == 0x50 else usual

    def module_page(self, device, *, page, bank, offset, length, address=0x50):
        if (address, page) in self.errors:
            raise OSError(self.errors[address, page], "injected", device)
        assert length <= 128
        assert offset >= 128 or (page == 0 and offset + length <= 128)
        for place in range(offset, offset + length):
            self.read.add((address, page if place >= 128 else None, place))
        return bytes(self.byte(page, bank, place, address) for place in range(offset, offset + length))


def recorded_module(tmp_path, given, errors=()):
    """Record a module; return it, a replay of the recording, and the recorded pages."""
    source, made = tmp_path / "source", tmp_path / "made"
    source.mkdir()
    write(source, "rail0", '{"link": {"ifindex": 1}}')
    module = ModuleReader(source, given, errors)
    record(module, made, module=True)
    return module, ReplayNic(made), json.loads((made / "rail0.json").read_text()).get("module")


def assert_the_same(module, replay, ranges):
    for address, page, offset, length in ranges:
        memory_range = {"page": page, "bank": 0, "offset": offset, "length": length, "address": address}
        assert replay.module_page("rail0", **memory_range) == module.module_page("rail0", **memory_range), memory_range


def test_cmis_module_is_recorded_without_latched_flags(tmp_path):
    module, replay, written = recorded_module(tmp_path, {0: 0x19, 2: 0x00})
    assert written.keys() == {"lower", "page_00h", "page_01h", "page_02h", "page_11h_bank_0"}
    assert written["lower"].startswith("19 51 00 53 54 55 56 57 .. .. .. .. .. .. 5e 5f ")
    assert {place for _, page, place in module.read if page is None} == {*range(128)} - {*range(8, 14)}
    assert {place for _, page, place in module.read if page == 0x11} == {*range(128, 256)} - {*range(134, 154)}
    upper = [(0x50, page, 128, 128) for page in (0, 1, 2)]
    assert_the_same(module, replay, [(0x50, 0, 0, 8), (0x50, 0, 14, 114), *upper, (0x50, 0x11, 154, 102)])
    for page, offset, length in ((0, 8, 1), (0, 0, 9), (0x11, 134, 1), (0x11, 150, 10), (3, 128, 1)):
        with pytest.raises(OSError) as caught:
            replay.module_page("rail0", page=page, bank=0, offset=offset, length=length)
        assert (caught.value.errno, caught.value.filename) == (errno.EOPNOTSUPP, "rail0")


def test_sff_8636_module_is_recorded_without_latched_flags(tmp_path):
    module, replay, written = recorded_module(tmp_path, {0: 0x11, 2: 0x00})
    assert written.keys() == {"lower", "page_00h", "page_03h"}
    assert {place for _, page, place in module.read if page is None} == {0, 1, 2, *range(22, 128)}
    assert_the_same(module, replay, [(0x50, 0, 0, 3), (0x50, 0, 22, 106), (0x50, 0, 128, 128), (0x50, 3, 128, 128)])


@pytest.mark.parametrize(
    ("identifier", "status", "pages"),
    [(one, 0x7F, {1, 2, 0x11}) for one in (0x18, 0x19, 0x1E, 0x1F, 0x20)]
    + [(one, 0xFB, {3}) for one in (0x0C, 0x0D, 0x11)],
)
def test_other_status_bits_do_not_matter_for_recording(tmp_path, identifier, status, pages):
    module, _, _ = recorded_module(tmp_path, {0: identifier, 2: status})
    assert {page for _, page, _ in module.read} == {None, 0} | pages


@pytest.mark.parametrize(("identifier", "flat"), [(0x18, 0x80), (0x11, 0x04)])
def test_flat_memory_is_recorded_without_pages(tmp_path, identifier, flat):
    module, _, written = recorded_module(tmp_path, {0: identifier, 2: flat})
    assert written.keys() == {"lower", "page_00h"}
    assert {page for _, page, _ in module.read} == {None, 0}


def test_sfp_diagnostics_are_recorded_if_present(tmp_path):
    module, replay, written = recorded_module(tmp_path, {0: 0x03, 92: 0x40})
    assert written.keys() == {"lower", "page_00h", "a2_lower"}
    assert {place for address, _, place in module.read if address == 0x51} == {*range(110), *range(118, 128)}
    assert_the_same(module, replay, [(0x50, 0, 0, 128), (0x50, 0, 128, 128), (0x51, 0, 0, 110), (0x51, 0, 118, 10)])
    (tmp_path / "without").mkdir()
    _, _, written = recorded_module(tmp_path / "without", {0: 0x03, 92: 0x30})
    assert written.keys() == {"lower", "page_00h"}


def test_only_the_identifier_of_an_unknown_module_is_recorded(tmp_path):
    module, _, written = recorded_module(tmp_path, {0: 0x7F})
    assert module.read == {(0x50, None, 0)}
    assert written == {"lower": "7f" + " .." * 127}


def test_failed_page_is_recorded_as_its_error(tmp_path):
    errors = {(0x50, 1): errno.EIO, (0x50, 2): errno.EOPNOTSUPP}
    _, replay, written = recorded_module(tmp_path, {0: 0x18, 2: 0}, errors)
    assert written["page_01h"] == {"errno": "EIO"}
    assert written.keys() == {"lower", "page_00h", "page_01h", "page_11h_bank_0"}
    for page, number in ((1, errno.EIO), (2, errno.EOPNOTSUPP)):
        with pytest.raises(OSError) as caught:
            replay.module_page("rail0", page=page, bank=0, offset=128, length=1)
        assert caught.value.errno == number


@pytest.mark.parametrize(
    ("number", "written"),
    [(errno.EPERM, {"errno": "EPERM"}), (errno.EOPNOTSUPP, None), (errno.EINVAL, {"errno": "EINVAL"})],
)
def test_unreadable_module_is_recorded_as_its_error(tmp_path, number, written):
    _, replay, found = recorded_module(tmp_path, {}, {(0x50, 0): number})
    assert found == written
    with pytest.raises(OSError) as caught:
        replay.module_page("rail0", page=0, bank=0, offset=0, length=1)
    assert (caught.value.errno, caught.value.filename) == (number, "rail0")


def test_modules_are_recorded_only_on_request(tmp_path):
    write(tmp_path, "rail0", '{"link": {"ifindex": 1}}')
    module = ModuleReader(tmp_path, {0: 0x18})
    record(module, tmp_path / "made")
    assert module.read == set()
    assert "module" not in json.loads((tmp_path / "made" / "rail0.json").read_text())


def test_banks_addresses_and_blanks_of_recorded_pages(tmp_path):
    halves = {
        "lower": "1E  " + ".. " * 127,
        "page_11h": "01" * 128,
        "page_11h_bank_1": "02" * 128,
        "a2_lower": "03 " * 128,
        "a2_page_00h": "04" * 128,
    }
    write(tmp_path, "rail0", json.dumps({"module": halves}))
    replay = ReplayNic(tmp_path)
    found = [
        replay.module_page("rail0", page=page, bank=bank, offset=offset, length=1, address=address)
        for page, bank, offset, address in (
            (0, 0, 0, 0x50),
            (0x11, 0, 200, 0x50),
            (0x11, 1, 200, 0x50),
            (0, 0, 5, 0x51),
            (0, 0, 255, 0x51),
        )
    ]
    assert found == [b"\x1e", b"\1", b"\2", b"\3", b"\4"]


@pytest.mark.parametrize(
    ("page", "offset", "length", "number"),
    [
        (0, 0, 129, errno.ERANGE),
        (0, 0, 0, errno.ERANGE),
        (0, 256, 1, errno.ERANGE),
        (0, -1, 1, errno.ERANGE),
        (0, 1, 128, errno.EINVAL),
        (0, 129, 128, errno.EINVAL),
        (1, 127, 1, errno.EINVAL),
        (0, 127, 1, 0),
        (1, 128, 128, 0),
    ],
)
def test_ranges_of_recorded_module_memory(tmp_path, page, offset, length, number):
    halves = dict.fromkeys(("lower", "page_00h", "page_01h"), "00" * 128)
    write(tmp_path, "rail0", json.dumps({"module": halves}))
    read = partial(ReplayNic(tmp_path).module_page, "rail0", page=page, bank=0, offset=offset, length=length)
    if not number:
        assert read() == bytes(length)
        return
    with pytest.raises(OSError) as caught:
        read()
    assert (caught.value.errno, caught.value.filename) == (number, "rail0")


@pytest.mark.parametrize(
    ("key", "value", "text_of_error"),
    [
        ("upper", "00" * 128, "unknown key 'upper'; write such as lower, page_00h"),
        ("page_0h", "00" * 128, "unknown key 'page_0h'"),
        ("page_00h_bank_256", "00" * 128, "unknown key 'page_00h_bank_256'"),
        ("a2_page_11h_bank_0", "00" * 127, "'a2_page_11h_bank_0' is not 128 bytes"),
        ("lower", "00" * 129, "'lower' is not 128 bytes"),
        ("lower", "0" * 255 + "g", "'lower' is not 128 bytes"),
        ("lower", "." + "00" * 127 + ".", "'lower' is not 128 bytes"),
        ("page_11h_bank_0", "00" * 128, "'page_11h_bank_0' occurs twice"),
        ("lower", {"errno": "EWHATEVER"}, "errno 'EWHATEVER' is unknown"),
        ("lower", {"error": "EIO"}, "`error`"),
        ("lower", 7, "`int`"),
    ],
)
def test_malformed_module_memory(tmp_path, key, value, text_of_error):
    write(tmp_path, "rail0", json.dumps({"driver": {"name": "x"}, "module": {"page_11h": "00" * 128, key: value}}))
    replay = ReplayNic(tmp_path)
    with pytest.raises(OSError) as caught:
        replay.module_page("rail0", page=0, bank=0, offset=0, length=1)
    assert caught.value.errno == errno.EBADMSG
    assert f"module in {tmp_path / 'rail0.json'}: " in caught.value.strerror
    assert text_of_error in caught.value.strerror
    assert replay.driver("rail0").name == "x"


def test_statistics_compare_by_value(recorded):
    found = recorded.statistics("rail0")
    assert found == Statistics(found.names, found.values)
    assert found != recorded.statistics("rail1")
