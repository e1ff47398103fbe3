"""Codecs on hostile input: values within bounds or the declared error, in bounded time."""

import json
import math
import pickle
from collections import Counter
from contextlib import suppress
from time import process_time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.core import collectives
from exporter.core.printable import printable
from exporter.nccl import (
    comma,
    flight_recorder,
    inspector,
    inspector_textfile,
    nccl_tests,
    perftest,
    ras,
    xpu_timer,
)
from exporter.nccl.debug_log import MAX_LINE, ScanStats, scan
from exporter.nccl.decoding import FormatError
from exporter.nccl.prometheus_text import LineErrors
from exporter.nccl.ras_protocol import StatusQuery, parse_version
from tests.helpers.benchmark_outputs import latency_table
from tests.helpers.paths import FIXTURES

FOLDER = FIXTURES / "nccl-formats"
SEEDS = [path.read_bytes() for path in sorted(FOLDER.iterdir()) if path.suffix != ".md"]
LOG = (
    b"[1,2]<stdout>:h:1:2 [0] x.cc:1 NCCL WARN NET/IB : mlx5_0:1 Got async event : port error\n"
    b"h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0(3)/GDRDMA\n"
    b"h:1:2 [0] NCCL INFO NET/IB : Using [0]={[0] mlx5_0:1/IB, [1] mlx5_1:1/IB} [RO]; OOB e:1<0>\n"
    b"h:1:2 [0] NCCL WARN Got completion from peer 1.2.3.4<5> with status=12 vendor err 129 (Recv) hca mlx5_1\n"
    b"h:1:2 [0] NCCL INFO comm 0x1 rank 1 nranks 2 cudaDev 0 busId c8000 commId 0x2 - Init COMPLETE\n"
    b"NCCL version 2.29.7+cuda13.0\n"
)
TABLE = latency_table(("192.0.2.1", "192.0.2.2"), 2.5, link="Ethernet").encode()


def lines(data):
    for line in data.split(b"\n"):
        try:
            inspector.parse_line(line)
        except FormatError:
            continue


CODECS = {
    "inspector": lines,
    "inspector_textfile": lambda data: list(inspector_textfile.parse_textfile(data, LineErrors())),
    "xpu_timer": lambda data: list(xpu_timer.parse_timings(data, LineErrors())),
    "comma": lambda data: list(comma.parse_events(data, Counter())),
    "flight_recorder": flight_recorder.parse_dump,
    "ras": ras.parse_report,
    "status": lambda data: StatusQuery().receive(data),
    "nccl_tests": nccl_tests.parse_text,
    "nccl_tests_json": nccl_tests.parse_json,
    "perftest": perftest.parse_perftest,
    "debug_log": lambda data: list(scan(data, ScanStats())),
}
"""All codecs; each may raise FormatError only."""

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(1 << 70), max_value=1 << 70)
    | st.floats()
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=10,
)


@st.composite
def mutated(draw):
    """Cut, duplicate, overwrite or exchange parts of a well-formed file."""
    data = bytearray(draw(st.sampled_from([*SEEDS, LOG, TABLE])))
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, len(data)))
        end = min(len(data), at + draw(st.integers(0, 40)))
        data[at:end] = draw(
            st.binary(max_size=8)
            | st.sampled_from(
                [
                    b"\0",
                    b"\xff",
                    b'"',
                    b"{",
                    b"]",
                    b"-1",
                    b"1e999",
                    b"NaN",
                    b"9" * 400,
                    b"\\",
                    b"\n",
                    b"null",
                    b"\x80\x04",
                ]
            )
        )
    return bytes(data)


@pytest.mark.parametrize("name", CODECS)
@given(data=mutated() | st.binary(max_size=300))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_codecs_raise_the_declared_error_only(name, data):
    try:
        CODECS[name](data)
        text = ""
    except FormatError as error:
        text = str(error)
    assert len(text) <= 200
    assert text == "" or text.isprintable()


@given(
    part=st.sampled_from(["header", "coll_perf", "p2p_perf", "metadata", "dump_stats"]),
    key=st.integers(0, 7),
    value=values,
)
@settings(max_examples=300, deadline=None)
def test_fields_of_any_type_are_validated(part, key, value):
    document = {
        "header": {"id": "0xab", "rank": 1, "n_ranks": 4, "nnodes": 2},
        "metadata": {"hostname": "h", "pid": 1, "dump_timestamp_us": 1},
        "coll_perf": {"coll": "AllReduce", "coll_sn": 7, "coll_msg_size_bytes": 1024, "coll_exec_time_us": 100},
        "p2p_perf": {"p2p": "Send", "p2p_sn": 7, "p2p_peer": 2, "p2p_msg_size_bytes": 1, "p2p_exec_time_us": 1},
        "dump_stats": {"coll_records": 1, "p2p_records": 1},
    }
    names = sorted(document[part])
    document[part][names[key % len(names)]] = value
    try:
        line = inspector.parse_line(json.dumps(document).encode("utf-8", "surrogatepass"))
    except FormatError:
        return
    assert 0 <= line.header.rank < line.header.n_ranks <= 1 << 20
    assert 0 < line.collective.microseconds <= 86_400_000_000
    assert 0 <= line.collective.message_bytes <= 1 << 50
    assert len(line.header.id) <= 64


@given(st.text())
def test_names_and_versions_of_any_text(text):
    assert collectives.known_kind(text) in {*collectives.KINDS, collectives.OTHER}
    parse_version(text)
    inspector_textfile.message_bounds(text)
    inspector_textfile.gpu_of_file(text)
    assert printable(text).isprintable()


@given(data=mutated())
@settings(max_examples=150, deadline=None)
def test_parsed_metrics_are_finite_and_printable(data):
    for one in inspector_textfile.parse_textfile(data, LineErrors()):
        assert math.isfinite(one.value)
        assert one.value >= 0
        assert (one.node + one.gpu + one.comm_name + one.job).isprintable()


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize(
    "hostile",
    [
        b"[" * 2_000_000,
        b'{"a":' * 500_000,
        b'{"entries":' + b"[" * 1_000_000,
        b"1" * 2_000_000,
        b'{"version":' + b"9" * 1_000_000 + b"}",
        b"\0" * 2_000_000,
        b'"' * 1_000_000,
        b"NCCL INFO " * 200_000,
        b'nccl_bus_bandwidth_gbs{a="' + b'",' * 4000 + b'"} 1\n',
        b"x{" + b'a="b",' * 1300 + b"} 1\n" * 50,
        b" \n" * 1_000_000,
        b"# Rank " * 300_000,
        b"\n".join([b"h:1:2 [0] NCCL INFO " + b"GPU/8F000 :" * 1400] * 20),
        b"\n".join([b"h:1:2 [0] NCCL INFO " + b"Got async Got async event " * 500] * 20),
        b"\n".join([b"NCCL last enqueued [PG ID 0 PG GUID 0(" + b"(" * 8000] * 20),
        b"\n".join([(b"NCCL INFO NET/IB : Using " + b"[0]={[0] mlx5_0:1/IB, " * 700)[:16000]] * 20),
        b'"nvml_dev": 1' + b"\n" * 1_000_000 + b'"status":',
        b'{"nvml_dev": 1\n "status":' * 100_000,
        b"#0-0 (00) MISMATCH\n" * 100_000,
        b"    0         1         2         2         4         4   RUNNING  MISMATCH" * 20_000,
    ],
    ids=range(20),
)
def test_hostile_files_take_bounded_time(name, hostile):
    begun = process_time()
    with suppress(FormatError):
        CODECS[name](hostile)
    # linear ones take up to half a second; what is quadratic in 2 MB takes hours
    assert process_time() - begun < 20


def test_no_codec_loads_a_pickle(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "loaded"), "w"))

    for codec in CODECS.values():
        try:
            codec(pickle.dumps(Trap()))
        except FormatError:
            continue
    assert not (tmp_path / "loaded").exists()


def test_oversized_log_line_is_counted():
    scanned = ScanStats()
    assert len(list(scan(b"NCCL " * MAX_LINE + b"\n" + LOG, scanned))) == 6
    assert scanned.too_long == 1
