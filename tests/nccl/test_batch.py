"""Encoding of batches: round trips, size on the wire, and rejection of hostile input."""

import json
import pickle
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.nccl.batch import (
    MAX_BATCH,
    MAX_OPERATIONS,
    MAX_PROGRESS,
    MAX_STREAMS,
    Batch,
    Operation,
    Progress,
    Stream,
)
from exporter.nccl.batch_codec import decode, encode
from exporter.nccl.decoding import FormatError


def stream(**other):
    values = {
        "job": "train-7",
        "communicator": "0x7f8c496ae9f661",
        "kind": "AllReduce",
        "rank": 2,
        "ranks": 8,
        "nodes": 1,
        "world_rank": 10,
        "host": "gpu-01",
        "pid": 1639453,
        "gpu": "GPU-5c0f8a5e",
        "ports": "mlx5_0:1=ens1f0np0=0000:17:00.0",
    }
    return Stream(**{**values, **other})


def operations(count, first=0, seed=1):
    chance = random.Random(seed)
    return [
        Operation(first + place, 2**27, round(chance.lognormvariate(9, 1), 1), timed=True) for place in range(count)
    ]


def batch(*streams, **other):
    return Batch("train-7", "gpu-01", list(streams), **{"sent": 1748030377.5, "epoch": "00c0ffee00c0ffee", **other})


def wire(**other):
    """Return an encoded batch of one operation; keyword arguments override its values."""
    values = {
        "version": 1,
        "job": "train-7",
        "host": "gpu-01",
        "epoch": "00c0ffee00c0ffee",
        "tick": 3,
        "sent": 1748030377.5,
        "dropped": 0,
        "communicators": [["0x7f8c496ae9f661", 8, 1]],
        "processes": [[1639453, 10, "GPU-5c0f8a5e", "mlx5_0:1=ens1f0np0=0000:17:00.0"]],
        "kinds": ["AllReduce"],
        "streams": [[0, 0, 0, 2, 1407, [], [17179869184], [], [619740], [0]]],
        "progress": [],
    }
    return msgspec.msgpack.encode(list({**values, **other}.values()))


def one_stream(**other):
    values = {
        "communicator": 0,
        "process": 0,
        "kind": 0,
        "rank": 2,
        "first": 5,
        "steps": [2, 1],
        "sizes": [8, 16],
        "size_indices": [0, 1, 0],
        "tenths": [10, 25, 30],
        "timed": [0, 1, 2],
    }
    return wire(streams=[list({**values, **other}.values())])


# --- valid batches


def test_decoding_of_a_known_message():
    read = decode(one_stream())
    ((key, found),) = read.streams
    assert (read.job, read.host, read.epoch, read.tick, read.sent) == (
        "train-7",
        "gpu-01",
        "00c0ffee00c0ffee",
        3,
        1748030377.5,
    )
    assert key == stream()
    assert found == [Operation(5, 8, 1.0, False), Operation(7, 16, 2.5, True), Operation(8, 8, 3.0, None)]
    assert found[0].microseconds == 1.0


def test_omitted_columns_stand_for_constant_values():
    read = decode(one_stream(steps=[], sizes=[64], size_indices=[], timed=[1]))
    assert read.streams[0][1] == [Operation(number, 64, time, True) for number, time in ((5, 1.0), (6, 2.5), (7, 3.0))]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**62),
            st.integers(0, 2**50),
            st.integers(0, 864_000_000_000).map(lambda tenths: tenths / 10),
            st.sampled_from([True, False, None]),
            st.none() | st.just(0.0) | st.integers(0, 864_000_000_000).map(lambda tenths: tenths / 10),
        ),
        min_size=1,
        max_size=40,
        unique_by=lambda one: one[0],
    )
)
@settings(deadline=None)
def test_encoding_round_trip_sorts_operations(values):
    found = [Operation(*one) for one in values]
    (data,) = encode(batch((stream(), found), dropped=5, tick=9))
    read = decode(data)
    assert read.streams == [(stream(), sorted(found, key=lambda one: one.sequence))]
    assert (read.dropped, read.tick) == (5, 9)


def test_streams_that_share_table_rows_are_kept_separate():
    all_of_them = [
        stream(),
        stream(kind="AllGather"),
        stream(communicator="a1", rank=0, ranks=2, nodes=None),
        stream(rank=3, pid=7, world_rank=None, gpu=""),
        stream(communicator="a1", rank=1, ranks=2, nodes=None, pid=7, world_rank=None, gpu=""),
    ]
    given_ones = [(key, operations(3, first=place)) for place, key in enumerate(all_of_them)]
    (data,) = encode(batch(*given_ones))
    assert decode(data).streams == given_ones


def test_duplicate_operations_and_empty_streams_are_dropped():
    twice = [Operation(4, 8, 2.0, None), Operation(3, 8, 1.0, None), Operation(4, 8, 9.0, None)]
    (data,) = encode(batch((stream(), twice), (stream(kind="Reduce"), [])))
    assert decode(data).streams == [(stream(), [twice[1], twice[0]])]
    assert encode(batch((stream(), []))) == []


def test_progress_is_encoded_with_and_without_operations():
    read = decode(wire(progress=[[0, 0, 0, 2, 1409, 1408]]))
    assert read.progress == [Progress(stream(), 1409, 1408)]
    found = [Progress(stream(kind="Barrier"), 5, 4), Progress(stream(), 9, 9)]
    for streams in ([], [(stream(), operations(3))]):
        (data,) = encode(batch(*streams, progress=found))
        assert (decode(data).progress, decode(data).streams) == (found, streams)


def test_progress_of_many_ranks_is_split():
    found = [Progress(stream(communicator=f"{place:064x}", gpu="g" * 64), place, 0) for place in range(2500)]
    parts = encode(batch((stream(), operations(3)), progress=found))
    assert len(parts) == 3
    assert max(map(len, parts)) <= MAX_BATCH
    assert [one for part in parts for one in decode(part).progress] == found
    assert [len(decode(part).streams) for part in parts] == [1, 0, 0]


def test_operation_takes_at_most_twelve_bytes():
    """A tick of one host: eight ranks, three kinds, ten operations each."""
    given_ones = [
        (
            stream(rank=64 + rank, ranks=256, pid=4000 + rank, kind=kind, gpu=f"GPU-5c0f8a5e-{rank:027}"),
            operations(10, 10**6, seed=rank),
        )
        for rank in range(8)
        for kind in ("AllReduce", "ReduceScatter", "AllGather")
    ]
    (data,) = encode(batch(*given_ones))
    assert len(data) / 240 <= 12


def test_oversized_batch_is_split_into_consecutive_ticks():
    chance = random.Random(2)
    given_ones = [
        (
            stream(rank=rank, ranks=64),
            [Operation(n * 1000, chance.randrange(2**40), 1e6 + n, timed=False) for n in range(2000)],
        )
        for rank in range(64)
    ]
    parts = encode(batch(*given_ones, tick=100))
    assert len(parts) > 2
    assert max(map(len, parts)) <= MAX_BATCH
    read = [decode(part) for part in parts]
    assert [one.tick for one in read] == list(range(100, 100 + len(parts)))
    together = {}
    for one in read:
        assert one.operations() <= MAX_OPERATIONS
        for key, found in one.streams:
            together.setdefault(key, []).extend(found)
    assert together == dict(given_ones)


# --- how long operations were queued

WITH_QUEUED = ["AllReduce", "AllReduce_queued"]


def queued_column(**other):
    """Return an encoded batch of three operations, of which the first and the last have a time in the queue."""
    values = {
        "communicator": 0,
        "process": 0,
        "kind": 1,
        "rank": 2,
        "first": 5,
        "steps": [3],
        "sizes": [0],
        "size_indices": [],
        "tenths": [0, 12_005],
        "timed": [2],
    }
    own = [0, 0, 0, 2, 5, [2, 1], [8], [], [10, 25, 30], [1]]
    return wire(kinds=WITH_QUEUED, streams=[list({**values, **other}.values()), own])


def test_times_in_the_queue_are_those_of_the_stream_whose_kind_has_the_ending():
    ((key, found),) = decode(queued_column()).streams
    assert key == stream()
    assert [(one.sequence, one.queued) for one in found] == [(5, 0.0), (7, None), (8, 1200.5)]


@pytest.mark.parametrize("of_another", [{"rank": 3}, {"kind": 2}, {"communicator": 1}, {"process": 1}])
def test_times_in_the_queue_of_another_stream_are_not_those_of_this_one(of_another):
    tables = {
        "communicators": [["0x7f8c496ae9f661", 8, 1], ["c2", 8, 1]],
        "processes": [[1639453, 10, "", ""], [7, 11, "", ""]],
        "kinds": [*WITH_QUEUED, "AllGather_queued"],
    }
    place = dict(zip(("communicator", "process", "kind", "rank"), (0, 0, 1, 2), strict=True)) | of_another
    streams = [[*place.values(), 5, [], [0], [], [7], [2]], [0, 0, 0, 2, 5, [], [8], [], [10], [1]]]
    ((_, found),) = decode(wire(**tables, streams=streams)).streams
    assert found == [Operation(5, 8, 1.0, True)]


@pytest.mark.parametrize("tenths", [-1, 864_000_000_001, 1.5, "3", None])
def test_times_in_the_queue_are_validated(tenths):
    with pytest.raises(FormatError) as raised:
        decode(queued_column(tenths=[0, tenths]))
    assert raised.value.reason == "invalid"


@pytest.mark.parametrize("queued", [-1.0, float("nan"), float("inf"), 86_400_000_001.0])
def test_encoder_rejects_impossible_times_in_the_queue(queued):
    with pytest.raises(FormatError) as raised:
        encode(batch((stream(), [Operation(0, 8, 1.0, True, queued)])))
    assert raised.value.reason == "invalid"


def test_times_in_the_queue_count_as_operations_of_the_message():
    """They take as much room: a batch that would exceed the limits of readers with them is split."""
    many = [Operation(number, 8, 5.0, True, 0.0) for number in range(MAX_OPERATIONS)]
    parts = encode(batch((stream(), many), tick=4))
    read = [decode(part) for part in parts]
    assert [one.tick for one in read] == [4, 5]
    assert [one for part in read for _, found in part.streams for one in found] == many
    short = [(stream(communicator=f"{place:x}"), [Operation(0, 8, 5.0, True, 1.5)]) for place in range(MAX_STREAMS)]
    read = [decode(part) for part in encode(batch(*short))]
    assert [one for part in read for one in part.streams] == short


def test_times_in_the_queue_that_are_mostly_nothing_take_a_byte():
    def size(queued):
        (data,) = encode(batch((stream(), [one._replace(queued=queued) for one in operations(1000)])))
        return len(data)

    assert 0 < size(0.0) - size(None) < 1100


def test_many_streams_that_refer_to_one_column_expand_it_once():
    own = [0, 0, 0, 2, 5, [], [8], [], [10], [1]]
    column = [0, 0, 1, 2, 5, [], [0], [], [7] * 50_000, [2]]
    read = decode(wire(kinds=WITH_QUEUED, streams=[column] + [own] * 3)).streams
    assert [found[0].queued for _, found in read] == [0.7, None, None]


# --- what the encoder rejects


@pytest.mark.parametrize(
    "given_ones",
    [
        pytest.param([(stream(job="train-8"), operations(1))], id="of another job"),
        pytest.param([(stream(host="gpu-02"), operations(1))], id="of another host"),
        pytest.param([(stream(kind='All"Reduce'), operations(1))], id="a kind with a quote"),
        pytest.param([(stream(rank=8), operations(1))], id="a rank beyond the ranks"),
        pytest.param([(stream(), [Operation(0, 8, float("nan"), None)])], id="no number"),
        pytest.param([(stream(), [Operation(0, 8, float("inf"), None)])], id="without end"),
        pytest.param([(stream(), [Operation(0, 8, -1.0, None)])], id="a negative time"),
        pytest.param([(stream(), [Operation(1 << 64, 8, 1.0, None)])], id="a number of 65 bits"),
        pytest.param([(stream(), [Operation(0, 8, 1.0, "yes")])], id="a timing that is none"),
    ],
)
def test_encoder_rejects_what_the_decoder_would(given_ones):
    with pytest.raises(FormatError) as raised:
        encode(batch(*given_ones))
    assert raised.value.reason == "invalid"


def test_huge_names_are_rejected():
    with pytest.raises(FormatError) as raised:
        encode(batch((stream(gpu="x" * MAX_BATCH), operations(3))))
    assert raised.value.reason == "too_large"


# --- hostile input

INVALID = {
    "a job with a line end": wire(job="a\nfabric_up 1"),
    "a job with a line end at its end": wire(job="a\n"),
    "a job without name": wire(job=""),
    "a job of 129 characters": wire(job="a" * 129),
    "a job in other writing": wire(job="jоb"),  # noqa: RUF001  # the Cyrillic letter is the point
    "a host with a space": wire(host="gpu 01"),
    "an epoch in capitals": wire(epoch="00C0FFEE00C0FFEE"),
    "a negative tick": wire(tick=-1),
    "a tick of text": wire(tick="3"),
    "a time that is no number": wire(sent=float("nan")),
    "losses of 64 bits": wire(dropped=1 << 63),
    "a kind with a label in it": wire(kinds=['AllReduce",rank="7']),
    "a communicator with a line end": wire(communicators=[["ab\n", 8, 1]]),
    "no rank in a communicator": wire(communicators=[["ab", 0, 1]]),
    "more ranks than there are": wire(communicators=[["ab", (1 << 20) + 1, 1]]),
    "a table of too many": wire(kinds=["AllReduce"] * (MAX_STREAMS + 1)),
    "streams of too many": wire(streams=[[0, 0, 0, 2, 0, [], [1], [], [1], [0]]] * (MAX_STREAMS + 1)),
    "a mapping": msgspec.msgpack.encode({"version": 1}),
    "a stream that is a mapping": wire(streams=[{"rank": 2}]),
    "a stream of more columns": wire(streams=[[0, 0, 0, 2, 0, [], [1], [], [1], [0], 7]]),
    "a communicator of no table": one_stream(communicator=1),
    "a process of no table": one_stream(process=1),
    "a kind of no table": one_stream(kind=1),
    "a size of no table": one_stream(size_indices=[0, 2, 0]),
    "a negative place": one_stream(kind=-1),
    "a rank beyond the ranks": one_stream(rank=8),
    "no operation": one_stream(steps=[], size_indices=[], sizes=[1], tenths=[], timed=[0]),
    "steps of another count": one_stream(steps=[1]),
    "a step of nothing": one_stream(steps=[0, 1]),
    "a step back": one_stream(steps=[-1, 1]),
    "numbers beyond 63 bits": one_stream(first=(1 << 63) - 2),
    "numbers beyond 63 bits by steps": one_stream(first=1, steps=[(1 << 63) - 1, 1]),
    "sizes of another count": one_stream(size_indices=[0, 1]),
    "two sizes, and not which": one_stream(size_indices=[]),
    "a size beyond belief": one_stream(sizes=[8, (1 << 50) + 1]),
    "a time beyond a day": one_stream(tenths=[1, 2, 864_000_000_001]),
    "a time with a fraction": one_stream(tenths=[1, 2, 3.5]),
    "a time of text": one_stream(tenths=[1, 2, "3"]),
    "a timing that is none": one_stream(timed=[0, 1, 3]),
    "timings of another count": one_stream(timed=[0, 1]),
    "a process whose ports have a line end": wire(processes=[[1, 10, "", "mlx5_0:1\n"]]),
    "a process of too many ports": wire(processes=[[1, 10, "", "mlx5_0:1," * 200]]),
    "progress in no communicator": wire(progress=[[1, 0, 0, 2, 8, 7]]),
    "progress of no process": wire(progress=[[0, 1, 0, 2, 8, 7]]),
    "progress of no kind": wire(progress=[[0, 0, 1, 2, 8, 7]]),
    "progress of a rank beyond the ranks": wire(progress=[[0, 0, 0, 8, 8, 7]]),
    "progress of more than there is": wire(progress=[[0, 0, 0, 2, 1 << 63, 7]]),
    "progress without end": wire(progress=[[0, 0, 0, 2, 8]]),
    "progress of too many": wire(progress=[[0, 0, 0, 2, 8, 7]] * (MAX_PROGRESS + 1)),
}


@pytest.mark.parametrize("data", INVALID.values(), ids=INVALID.keys())
def test_invalid_messages_are_rejected(data):
    with pytest.raises(FormatError) as raised:
        decode(data)
    assert raised.value.reason == "invalid"
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) <= 200


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"", "malformed", id="nothing"),
        pytest.param(wire()[:-1], "malformed", id="cut off"),
        pytest.param(wire() + b"\x00", "malformed", id="with a tail"),
        pytest.param(b"\x91" * 100_000, "invalid", id="nested deeply"),
        pytest.param(pickle.dumps({"version": 1}), "invalid", id="a pickle"),
        pytest.param(json.dumps({"version": 1}).encode(), "invalid", id="JSON"),
        pytest.param(wire(version=2), "unsupported_version", id="a newer version"),
        pytest.param(
            msgspec.msgpack.encode([2, {"all": "new"}]), "unsupported_version", id="a newer version of another form"
        ),
        pytest.param(b"\x00" * (MAX_BATCH + 1), "too_large", id="too many bytes"),
        pytest.param(b"\xdd\xff\xff\xff\xff", "malformed", id="a length without content"),
    ],
)
def test_other_data_is_rejected_with_its_reason(data, reason):
    with pytest.raises(FormatError) as raised:
        decode(data)
    assert raised.value.reason == reason


def test_number_of_operations_is_bounded():
    many = [[0, 0, 0, 2, 0, [], [1], [], [1] * 60_000, [0]]] * 2
    data = wire(streams=many)
    assert len(data) < MAX_BATCH
    with pytest.raises(FormatError) as raised:
        decode(data)
    assert raised.value.reason == "too_large"


@given(st.binary(max_size=300))
def test_random_bytes_are_rejected(data):
    with pytest.raises(FormatError):
        decode(data)


@given(st.integers(0, len(one_stream()) - 1), st.integers(0, 255))
def test_corrupted_byte_is_harmless(place, value):
    data = bytearray(one_stream())
    data[place] = value
    try:
        read = decode(bytes(data))
    except FormatError:
        return
    assert all(isinstance(one, Operation) for _, found in read.streams for one in found)
