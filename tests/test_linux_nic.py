import errno
import os

import pytest
from conftest import FIXTURES

from exporter.linux.ethtool import Driver, LinkSettings, Statistics
from exporter.linux.nic import ReplayNic, record

REQUESTS = ("driver", "statistics", "settings")


@pytest.fixture
def recorded():
    return ReplayNic(FIXTURES / "nic-replay")


def number_of(request, device):
    with pytest.raises(OSError) as caught:
        request(device)
    assert caught.value.filename == device
    return caught.value.errno


def write(folder, device, text):
    new = folder / "new"
    new.write_bytes(text if isinstance(text, bytes) else os.fsencode(text))
    new.replace(folder / f"{device}.json")


def test_links_come_in_the_kernels_order_with_what_was_recorded(recorded):
    links = recorded.links()
    assert [(link.ifindex, link.name, link.kind, link.carrier) for link in links] == [
        (3, "rail0", "", True),
        (4, "rail1", "", False),
        (9, "bond0", "bond", True),
    ]
    assert links[0].stats["rx_bytes"] == 2**53 + 1
    assert (links[0].hardware, links[0].parent_dev_name, links[0].phys_switch_id) == (1, "0000:17:00.0", None)
    assert links[1].stats == {}
    assert links[1].carrier_changes is None


def test_answers_are_typed_and_numbers_whole(recorded):
    assert recorded.driver("rail0") == Driver("mlx5_core", "6.8.0", "28.40.1000 (EXA0000000001)", "0000:17:00.0")
    assert recorded.driver("rail1") == Driver("vmxnet3", "", "", "0000:65:00.0")
    found = recorded.statistics("rail0")
    assert found.names[:2] == ("rx_packets", "rx_bytes_phy")
    assert list(found.values)[:3] == [120, 2**64 - 1, 5 * 10**18]
    assert recorded.settings("rail0") == LinkSettings(400_000_000_000, "full", True, "fibre")


def test_a_driver_that_repeats_its_names(recorded):
    found = recorded.statistics("rail1")
    assert found.names == ("Tx Queue#", "  ucast pkts tx", "Tx Queue#", "  ucast pkts tx")
    assert list(found.values) == [0, 5, 1, 6]


def test_errors_are_replayed(recorded):
    assert number_of(recorded.settings, "rail1") == errno.EINVAL
    assert number_of(recorded.statistics, "bond0") == errno.EOPNOTSUPP


def test_there_are_no_events(recorded):
    assert recorded.event_fd() is None
    assert recorded.events() == []
    recorded.forget("rail0")
    recorded.close()
    recorded.close()


def test_a_device_without_a_file_and_an_answer_that_was_left_out(tmp_path):
    write(tmp_path, "eth0", "{}")
    replay = ReplayNic(tmp_path)
    assert replay.links() == []
    for request in REQUESTS:
        assert number_of(getattr(replay, request), "eth0") == errno.EOPNOTSUPP
        assert number_of(getattr(replay, request), "eth1") == errno.ENODEV


@pytest.mark.parametrize("name", ["", ".", "..", "../outside", "/outside", "sub/eth0", "a\0b", "x" * 300])
def test_no_name_leads_out_of_the_folder(tmp_path, name):
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    text = '{"driver": {"name": "outside"}}'
    write(tmp_path, "outside", text)
    write(folder / "sub", "eth0", text)
    for hidden in ("", ".", ".."):
        write(folder, hidden, text)
    assert number_of(ReplayNic(folder).driver, name) == errno.ENODEV


def test_a_replaced_file_moves_the_counters_and_keeps_the_names(tmp_path):
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
    ("text", "says"),
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
def test_a_broken_file_costs_its_own_device_and_is_logged_once(tmp_path, caplog, text, says):
    write(tmp_path, "good", '{"link": {"ifindex": 1}, "driver": {"name": "virtio_net"}}')
    write(tmp_path, "bad", text)
    replay = ReplayNic(tmp_path)
    for _ in range(2):
        assert [link.name for link in replay.links()] == ["good"]
        assert replay.driver("good").name == "virtio_net"
        for request in REQUESTS:
            assert number_of(getattr(replay, request), "bad") == errno.EBADMSG
    (entry,) = caplog.records
    assert str(tmp_path / "bad.json") in entry.getMessage()
    assert says in entry.getMessage().lower()


@pytest.mark.parametrize(
    ("part", "value", "says"),
    [
        ("link", '{"mtu": 1500}', "ifindex"),
        ("link", '{"ifindex": 1, "mtu": "1500"}', "`$.mtu`"),
        ("link", '{"ifindex": 1, "name": "eth1"}', "unknown key 'name'; known are admin_up"),
        ("driver", '{"name": 7}', "`$.name`"),
        ("driver", "null", "null"),
        ("driver", '{"name": "\udcff"}', "utf-8"),
        ("statistics", '{"rx_bytes": -1}', "'rx_bytes' is -1; a statistic has 64 bits, unsigned"),
        ("statistics", '{"rx_bytes": 18446744073709551616}', "'rx_bytes' is 18446744073709551616;"),
        ("statistics", '{"rx_bytes": 1.5}', "float"),
        ("statistics", '[["rx_bytes"]]', "length 2"),
        ("settings", '{"speed": 1}', "unknown key 'speed'"),
        ("settings", '{"errno": "EWHATEVER"}', "errno 'EWHATEVER' is unknown; write a name such as EINVAL"),
        ("settings", '{"errno": "errorcode"}', "errno 'errorcode' is unknown"),
    ],
)
def test_a_broken_answer_costs_itself_alone(tmp_path, caplog, part, value, says):
    answers = {
        "link": '{"ifindex": 1}',
        "driver": '{"name": "virtio_net"}',
        "statistics": '{"rx_bytes": 1}',
        "settings": "{}",
    } | {part: value}
    write(tmp_path, "eth0", "{" + ",".join(f'"{key}": {text}' for key, text in answers.items()) + "}")
    replay = ReplayNic(tmp_path)
    assert len(replay.links()) == (part != "link")
    for request in REQUESTS:
        if request == part:
            assert number_of(getattr(replay, request), "eth0") == errno.EBADMSG
        else:
            getattr(replay, request)("eth0")
    (entry,) = caplog.records
    assert says in entry.getMessage()


def test_what_is_no_file_does_not_block(tmp_path, caplog):
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "dangling.json").symlink_to("nowhere")
    (tmp_path / "notes.txt").write_text("not a recording")
    replay = ReplayNic(tmp_path)
    assert replay.links() == []
    assert number_of(replay.driver, "pipe") == errno.EBADMSG
    assert number_of(replay.driver, "dangling") == errno.ENODEV
    assert sorted(entry.getMessage().split()[-1] for entry in caplog.records) == ["file", "file"]


def test_a_folder_that_is_not_there(tmp_path):
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


def test_a_recording_of_a_recording_is_the_same(recorded, tmp_path):
    record(recorded, tmp_path / "made" / "here")
    again = ReplayNic(tmp_path / "made" / "here")
    assert again.links() == recorded.links()
    assert answers_of(again) == answers_of(recorded)
    assert len(answers_of(again)) == 9
    assert sorted(path.name for path in (tmp_path / "made" / "here").iterdir()) == [
        "bond0.json",
        "rail0.json",
        "rail1.json",
    ]


def test_statistics_compare_by_what_they_say(recorded):
    found = recorded.statistics("rail0")
    assert found == Statistics(found.names, found.values)
    assert found != recorded.statistics("rail1")
