"""Dumps of PyTorch's Flight Recorder: schemas of several versions, and pickles, which are never loaded."""

import json
import pickle

import pytest

from exporter.nccl.decoding import FormatError
from exporter.nccl.flight_recorder import (
    MAX_FILE,
    ProcessGroup,
    RecorderEntry,
    parse_dump,
)
from tests.helpers.paths import FIXTURES

FOLDER = FIXTURES / "nccl-formats"


def test_oldest_schema_has_no_groups_and_unknown_times():
    dump = parse_dump((FOLDER / "recorder-2.3.json").read_bytes())
    assert (dump.version, dump.groups, dump.bad) == ("2.3", {}, 0)
    (entry,) = dump.entries
    assert (entry.kind, entry.state, entry.sequence, entry.process_group) == (
        "AllGather",
        "scheduled",
        9,
        ("0", "default_pg"),
    )
    assert entry.time_created_ns == 1700000000000000000
    assert (entry.time_discovered_started_ns, entry.time_discovered_completed_ns, entry.duration_ms) == (
        None,
        None,
        None,
    )
    assert entry.input_bytes == 2 * 8 * 2 + 4 * 8
    assert not entry.is_p2p


def test_newest_schema_is_parsed_and_invalid_entries_are_skipped():
    dump = parse_dump((FOLDER / "recorder-2.10.json").read_bytes())
    assert dump.version == "2.10"
    assert dump.groups == {
        "0": ProcessGroup("0", "default_pg", (0, 1, 2, 3)),
        "1": ProcessGroup("51", "mesh_tp", (2, 3)),
        "2": ProcessGroup("x", "odd", None),
    }
    scatter, receive = dump.entries
    assert (scatter.kind, scatter.duration_ms, scatter.input_bytes) == ("ReduceScatter", 1.25, 4096)
    assert scatter.time_discovered_completed_ns == 1700000000000000003
    assert (receive.kind, receive.ends, receive.state) == ("Recv", (0, 3), "started")
    assert receive.is_p2p
    assert receive.input_bytes is None
    assert dump.bad == 2
    assert "duration_ms" in dump.first_error


def test_sender_and_receiver_of_point_to_point_entries():
    assert RecorderEntry("nccl:send 1->2").ends == (1, 2)
    assert RecorderEntry("nccl:all_reduce").ends is None
    assert RecorderEntry("nccl:send 1->99999999999").ends is None


@pytest.mark.parametrize("protocol", range(6))
def test_pickles_of_any_protocol_are_rejected_and_not_loaded(protocol, tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "loaded"), "w"))

    for what in ({"version": "2.5", "entries": [Trap()]}, Trap(), [1]):
        data = pickle.dumps(what, protocol=protocol)
        with pytest.raises(FormatError) as caught:
            parse_dump(data)
        assert caught.value.reason == "pickle" or (protocol < 2 and caught.value.reason == "malformed")
    assert not (tmp_path / "loaded").exists()


def test_pickle_error_contains_the_remedy():
    with pytest.raises(FormatError, match="_dump_nccl_trace_json") as caught:
        parse_dump(pickle.dumps({"version": "2.5"}))
    assert caught.value.reason == "pickle"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "malformed"),
        (b"[]", "invalid"),
        (b"{}", "invalid"),
        (b'{"version":2}', "invalid"),
        (b'{"version":"2.5","entries":7}', "invalid"),
        (b'{"version":"2.5","entries":[NaN]}', "malformed"),
        (b'{"version":"2.5","x":' + b"[" * 100_000, "malformed"),
        (b" " * (MAX_FILE + 1), "too_large"),
    ],
)
def test_malformed_dumps_are_rejected(data, reason):
    with pytest.raises(FormatError) as caught:
        parse_dump(data)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    "values",
    [
        {"duration_ms": 1e300},
        {"record_id": -1},
        {"record_id": 10**40},
        {"time_created_ns": "now"},
        {"input_sizes": [[-4]]},
        {"input_sizes": "x"},
        {"input_sizes": [[1] * 17]},
        {"process_group": ["x" * 300]},
    ],
)
def test_implausible_value_rejects_its_entry(values):
    dump = parse_dump(json.dumps({"version": "2.5", "entries": [{"profiling_name": "nccl:x", **values}]}).encode())
    assert (dump.entries, dump.bad) == ((), 1)


@pytest.mark.parametrize(
    ("sizes", "types", "expected"),
    [
        ([[4, 0]], ["Float"], 0),
        ([[1 << 40, 1 << 40]], ["Float"], None),
        ([[4]], ["Float", "Float"], None),
        ([[4]], ["Quaternion"], None),
        ([[], [3]], ["Double", "Byte"], 11),
    ],
)
def test_input_bytes_require_shapes_and_data_types(sizes, types, expected):
    row = {"profiling_name": "nccl:all_reduce", "input_sizes": sizes, "input_dtypes": types}
    (entry,) = parse_dump(json.dumps({"version": "2.5", "entries": [row]}).encode()).entries
    assert entry.input_bytes == expected


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ("[0, 1]", (0, 1)),
        ("[ 7 ]", (7,)),
        ([2, 3], (2, 3)),
        ("[]", None),
        ("[1, -2]", None),
        ("[9999999]", None),
        ([-1], None),
    ],
)
def test_group_ranks_are_strings_or_lists(ranks, expected):
    data = json.dumps({"version": "2.5", "pg_config": {"0": {"name": "0", "ranks": ranks}}}).encode()
    assert parse_dump(data).groups["0"].ranks == expected
