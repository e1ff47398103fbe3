"""RAS: replies of several releases, unequal counts, the dialogue, and the conditions for polling."""

import json

import pytest

from exporter.nccl.decoding import FormatError
from exporter.nccl.ras import (
    MAX_ANSWER,
    CountMismatch,
    MissingRank,
    MissingStatus,
    RankStatus,
    RasCommunicator,
    RasRank,
    count_mismatches,
    is_stalled,
    parse_report,
)
from exporter.nccl.ras_protocol import (
    QueryStep,
    StatusQuery,
    may_poll,
    parse_version,
)
from tests.helpers.paths import FIXTURES

FOLDER = FIXTURES / "nccl-formats"


def test_larger_group_with_the_lowest_count_is_behind():
    report = parse_report((FOLDER / "ras-2.29.2-unequal.json").read_bytes())
    assert report.nccl_version == "2.29.2"
    assert (report.ras.collection_time_sec, report.ras.timeouts_count) == (0.012, 0)
    (communicator,) = report.communicators
    assert (communicator.hash, communicator.secondary_hash, communicator.size) == ("0xabc", "0x1:0x2", 4)
    assert communicator.ranks[3].host == "10.0.0.2"
    assert count_mismatches(communicator) == (CountMismatch("AllGather", 640, 641, (0, 1, 3)),)


def test_missing_comma_of_2_28_7_is_repaired():
    data = (FOLDER / "ras-2.28.7-no-comma.json").read_bytes()
    with pytest.raises(json.JSONDecodeError):
        json.loads(data)
    report = parse_report(data)
    (communicator,) = report.communicators
    assert communicator.ranks == (RasRank(0, "10.0.0.1", 5, 0, RankStatus(7, 8), {"AllReduce": 3}),)
    assert communicator.missing_ranks == (
        MissingRank(1, "10.0.0.2", 6, 1, MissingStatus(True, False)),
        MissingRank(2, "10.0.0.2", 7, -1, MissingStatus(False, True)),
    )
    assert report.ras.timeouts_count == 2


@pytest.mark.parametrize(
    "data",
    [
        b'{"nccl_version": "2.28.7" "communicators": []}',
        b'{"nccl_version": "2.28.7", "communicators": [{"cuda_dev": 1\n"nvml_dev": 1}]}',
        b'{"a": "\\"nvml_dev\\": 1\n\\"status\\":"}',
    ],
)
def test_other_syntax_errors_are_not_repaired(data):
    with pytest.raises(FormatError):
        parse_report(data)


def communicator(**counts):
    ranks = tuple(RasRank(int(name[1:]), collective_counts={"AllReduce": count}) for name, count in counts.items())
    return RasCommunicator("0x1", 8, "", ranks)


def test_stall_is_detected_between_two_polls_only():
    assert count_mismatches(communicator(r0=5, r1=5)) == ()
    assert count_mismatches(communicator()) == ()
    assert is_stalled(communicator(r0=5, r1=5), communicator(r0=5, r1=5)) is True
    assert is_stalled(communicator(r0=5, r1=6), communicator(r0=5, r1=7)) is False
    assert is_stalled(communicator(r0=5), communicator(r0=5, r1=5)) is None
    assert is_stalled(communicator(), communicator()) is None


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "malformed"),
        (b"[]", "invalid"),
        (b'{"nccl_version":"2.29.1"}', "invalid"),
        (b'{"nccl_version":"2.29.1","communicators":[{"hash":"0x1","size":0}]}', "invalid"),
        (
            b'{"nccl_version":"2.29.1","communicators":[{"hash":"0x1","size":1,"ranks":[{"rank":0},{"rank":0}]}]}',
            "invalid",
        ),
        (b'{"nccl_version":"2.29.1","communicators":[{"hash":"0x1","size":1,"ranks":[{"rank":-1}]}]}', "invalid"),
        (b'{"nccl_version":"2.29.1","communicators":' + b"[" * 100_000, "invalid"),
        (b'{"x":' + b"[" * 100_000, "malformed"),
        (b" " * (MAX_ANSWER + 1), "too_large"),
        (b"ERROR: unknown command", "malformed"),
    ],
)
def test_malformed_replies_are_rejected(data, reason):
    with pytest.raises(FormatError) as caught:
        parse_report(data)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("2.28.9", (2, 28, 9)),
        ("2.26.2+cuda12.4", (2, 26, 2)),
        ("22809", (2, 28, 9)),
        ("23102", (2, 31, 2)),
        ("2708", (2, 7, 8)),
        ("", None),
        ("two", None),
        ("2.28", None),
        ("9" * 50, None),
    ],
)
def test_versions(text, version):
    assert parse_version(text) == version


@pytest.mark.parametrize(
    ("version", "age", "since", "options", "refusal"),
    [
        ((2, 29, 7), 600, 30, {}, None),
        ((2, 28, 7), 600, None, {}, None),
        ((2, 29, 7), 600, 30, {"enabled": False}, "off"),
        ((2, 29, 7), 600, 30, {"enabled": False, "forced": True}, "off"),
        ((2, 28, 6), 600, 30, {}, "version_crashes"),
        ((2, 26, 2), 600, 30, {}, "version_crashes"),
        ((2, 26, 2), 600, 30, {"forced": True}, None),
        (None, 600, 30, {}, "version_unknown"),
        (None, 600, 30, {"forced": True}, None),
        ((2, 29, 7), 299.9, None, {}, "too_young"),
        ((2, 29, 7), 299.9, None, {"forced": True}, "too_young"),
        ((2, 29, 7), None, None, {}, "age_unknown"),
        ((2, 29, 7), 600, 14.9, {}, "too_soon"),
        ((2, 29, 7), 600, 14.9, {"forced": True}, "too_soon"),
        ((2, 29, 7), 600, 30, {"others": True}, "another_poller"),
        ((2, 29, 7), 600, 30, {"initialising": True}, "initialising"),
    ],
)
def test_conditions_for_polling(version, age, since, options, refusal):
    assert may_poll(version, age, since, **{"enabled": True, **options}) == refusal


def test_query_requests_the_status_only():
    query = StatusQuery()
    sent = [
        query.begin(),
        query.receive(b"SERVER PROT"),
        query.receive(b"OCOL 2\n"),
        query.receive(b'OK\n{"a"'),
        query.receive(b":1}"),
    ]
    assert sent == [
        QueryStep(b"CLIENT PROTOCOL 2\n"),
        QueryStep(),
        QueryStep(b"SET FORMAT json\n"),
        QueryStep(b"STATUS\n"),
        QueryStep(),
    ]
    assert query.closed() == QueryStep(answer=b'{"a":1}')
    everything = b"".join(step.send for step in sent)
    assert not any(word in everything for word in (b"VERBOSE", b"CONTROL", b"DIAGNOSTICS"))


@pytest.mark.parametrize(
    ("pieces", "reason"),
    [
        ([b"HTTP/1.1 400\n"], "refused"),
        ([b"SERVER PROTOCOL 2\n", b"ERROR: unknown\n"], "refused"),
        ([b"x" * 5000], "too_large"),
        ([b"SERVER PROTOCOL 2\n", b"OK\n", b"x" * (MAX_ANSWER + 1)], "too_large"),
    ],
)
def test_unexpected_replies_are_rejected(pieces, reason):
    query = StatusQuery()
    query.begin()
    with pytest.raises(FormatError) as caught:
        [query.receive(piece) for piece in pieces]
    assert caught.value.reason == reason


def test_lines_received_early_are_processed_one_at_a_time():
    query = StatusQuery()
    query.begin()
    assert query.receive(b"SERVER PROTOCOL 2\nOK\n").send == b"SET FORMAT json\n"
    assert query.receive(b"x").send == b"STATUS\n"
    assert query.closed().answer == b"x"


@pytest.mark.parametrize("pieces", [[], [b"SERVER PROTOCOL 2\n"], [b"SERVER PROTOCOL 2\n", b"OK\n", b" \n"]])
def test_connection_closed_without_reply_is_an_error(pieces):
    query = StatusQuery()
    query.begin()
    for piece in pieces:
        query.receive(piece)
    with pytest.raises(FormatError, match="closed without a reply") as caught:
        query.closed()
    assert caught.value.reason == "refused"
