"""Queueing disciplines: messages encoded by hand after kernel headers, and this machine's kernel, compared to tc."""

import errno
import json
import socket
import struct
import subprocess
import sys
from contextlib import closing, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.linux.netlink.messages import NetlinkError
from exporter.linux.netlink.queueing_disciplines import (
    QueueingDiscipline,
    QueueingDisciplineSocket,
    parse_htb_ceiling,
    parse_queueing_discipline,
)
from exporter.linux.nic_reader import KernelNic, ReplayNic
from tests.helpers.record_nics import record
from tests.linux.test_against_the_kernel import namespace  # noqa: F401  # a fixture

ROOT = 0xFFFFFFFF
INGRESS = 0xFFFFFFF1
KIND, OPTIONS, STATS2 = 1, 2, 7
WIDE = 50_000_000_000
FULL = 2**32 - 1
COUNTS = (8, 9, 10, 11, 12)


def nla(kind, payload=b""):
    return struct.pack("=HH", 4 + len(payload), kind) + payload + bytes(-len(payload) % 4)


def tc(*attributes, index=5, handle=0x10000, parent=ROOT):
    """Make struct tcmsg with attributes."""
    return struct.pack("=BxxxiIII", 0, index, handle, parent, 2) + b"".join(attributes)


def stats(qlen=0, backlog=0, drops=0, requeues=0, overlimits=0):
    """Make TCA_STATS2: struct gnet_stats_basic, then struct gnet_stats_queue."""
    basic = nla(1, struct.pack("=QIxxxx", 2**40, 7))
    return nla(STATS2, basic + nla(3, struct.pack("=5I", qlen, backlog, drops, requeues, overlimits)))


def ratespec(rate):
    """Make struct tc_ratespec, whose other numbers must not be parsed as the rate."""
    return struct.pack("=BBHhHI", 3, 1, 0xAAAA, -1, 0xBBBB, rate)


def tbf(rate, *more, peak=77):
    """Make struct tc_tbf_qopt: rate, peak, limit, buffer, mtu."""
    return nla(OPTIONS, nla(1, ratespec(rate) + ratespec(peak) + struct.pack("=3I", 1, 2, 3)) + b"".join(more))


def htb_class(rate, ceil, *more, parent=ROOT):
    """Make a class with struct tc_htb_opt: rate, ceil, buffer, cbuffer, quantum, level, prio."""
    options = nla(1, ratespec(rate) + ratespec(ceil) + struct.pack("=5I", *range(5))) + b"".join(more)
    return tc(nla(KIND, b"htb\0"), nla(OPTIONS, options), parent=parent)


# --- the form


def test_tbf_with_drops():
    body = tc(nla(KIND, b"tbf\0"), tbf(12_500_000), stats(*COUNTS), nla(12, b"\0"))
    assert parse_queueing_discipline(body, {5}) == (5, QueueingDiscipline("tbf", 0x10000, 10, 12, 11, 9, 12_500_000))


def test_counters_have_32_bits():
    assert parse_queueing_discipline(tc(nla(KIND, b"mq\0"), stats(*[FULL] * 5), handle=0), {5}) == (
        5,
        QueueingDiscipline("mq", 0, FULL, FULL, FULL, FULL),
    )


@pytest.mark.parametrize(
    ("narrow", "wide", "rate"),
    [(FULL, WIDE, WIDE), (FULL, None, FULL), (7, WIDE, 7), (0, None, None)],
)
def test_rate_over_32_bits_has_a_64_bit_attribute(narrow, wide, rate):
    def beside(kind):
        return [] if wide is None else [nla(kind, struct.pack("=Q", wide))]

    body = tc(nla(KIND, b"tbf\0"), tbf(narrow, *beside(4)))
    assert parse_queueing_discipline(body, {5})[1].rate_bytes_per_second == rate
    assert parse_htb_ceiling([htb_class(99, narrow, *beside(7))]) == rate


def test_rate64_of_unexpected_size_is_ignored():
    assert (
        parse_queueing_discipline(tc(nla(KIND, b"tbf\0"), tbf(FULL, nla(4, b"\1\2\3"))), {5})[1].rate_bytes_per_second
        == FULL
    )


def test_only_tbf_has_a_rate_in_its_options():
    assert parse_queueing_discipline(tc(nla(KIND, b"netem\0"), tbf(5)), {5})[1].rate_bytes_per_second is None


@pytest.mark.parametrize(
    "body",
    [
        tc(nla(KIND, b"pfifo\0"), stats(*COUNTS), parent=0x10001),
        tc(nla(KIND, b"ingress\0"), stats(*COUNTS), parent=INGRESS),
        tc(nla(KIND, b"fq\0"), stats(*COUNTS), index=6),
        tc(stats(*COUNTS)),
        tc(nla(KIND, b"\0")),
        tc()[:-1],
        b"",
    ],
    ids=["below another", "ingress", "another device", "no kind", "empty kind", "cut", "empty"],
)
def test_only_root_qdiscs_of_selected_devices_are_parsed(body):
    assert parse_queueing_discipline(body, {5}) is None


def test_missing_statistics_are_none_and_noqueue_has_none():
    assert parse_queueing_discipline(tc(nla(KIND, b"fq\0")), {5}) == (5, QueueingDiscipline("fq", 0x10000))
    assert parse_queueing_discipline(tc(nla(KIND, b"fq\0"), nla(STATS2, nla(3, bytes(19)))), {5}) == (
        5,
        QueueingDiscipline("fq", 0x10000),
    )
    assert parse_queueing_discipline(tc(nla(KIND, b"noqueue\0"), stats(*COUNTS), handle=0), {5}) == (
        5,
        QueueingDiscipline("noqueue"),
    )


def test_htb_ceiling_is_that_of_the_only_root_class():
    below = htb_class(1, 2, parent=0x10001)
    assert parse_htb_ceiling([below, htb_class(6, 7), below]) == 7
    wide_ceiling = nla(7, struct.pack("=Q", WIDE))
    assert parse_htb_ceiling([htb_class(6, FULL, nla(6, struct.pack("=Q", 5)), wide_ceiling)]) == WIDE
    assert parse_htb_ceiling([htb_class(6, 7), htb_class(6, 7)]) is None
    assert parse_htb_ceiling([below]) is None
    assert parse_htb_ceiling([]) is None
    assert parse_htb_ceiling([htb_class(6, 7)[:30], b"\0"]) is None


PIECES = st.lists(
    st.tuples(st.sampled_from([0, 1, 2, 3, 4, 7, 0x8007]), st.binary(max_size=60), st.integers(-5, 5)), max_size=5
).map(lambda parts: b"".join(struct.pack("=HH", max(0, 4 + len(v) + off), k) + v for k, v, off in parts))


@given(
    st.binary(max_size=120)
    | st.builds(
        lambda kind, inner, options: tc(nla(KIND, kind), nla(STATS2, inner), nla(OPTIONS, options)),
        st.sampled_from([b"tbf\0", b"htb\0", b"mq\0", b"\xff", b""]),
        PIECES,
        PIECES,
    )
    | PIECES.map(tc)
)
def test_arbitrary_messages_raise_no_error(body):
    parse_htb_ceiling([body, body])
    found = parse_queueing_discipline(body, {5})
    if found is not None:
        _, queueing = found
        numbers = (queueing.drops, queueing.overlimits, queueing.requeues, queueing.backlog_bytes)
        assert all(one is None or 0 <= one <= FULL for one in numbers)
        assert queueing.kind


# --- requests


class Kernel:
    """Records requests, and answers them."""

    def __init__(self, disciplines, classes):
        self.asked, self._answers = [], {38: disciplines, 42: classes}

    def dump(self, kind, body):
        self.asked.append((kind, body.hex(" ", 4)))
        found = self._answers[kind]
        if isinstance(found, Exception):
            raise found
        return found

    def close(self):
        pass


def fake_kernel(monkeypatch, disciplines, classes=()):
    kernel = Kernel(disciplines, classes)
    monkeypatch.setattr("exporter.linux.netlink.queueing_disciplines.NetlinkSocket", lambda _: kernel)
    return kernel, QueueingDisciplineSocket()


HTB = tc(nla(KIND, b"htb\0"), stats(*COUNTS), index=6)
ALL = "00000000 00000000 00000000 00000000 00000000"
ONE = "00000000 06000000 00000000 00000000 00000000"


def test_one_dump_of_all_qdiscs_and_one_of_classes_per_selected_htb(monkeypatch):
    other = tc(nla(KIND, b"htb\0"), index=7)
    kernel, reader = fake_kernel(monkeypatch, [tc(nla(KIND, b"fq\0"), stats(*COUNTS)), HTB, other], [htb_class(6, 7)])
    assert reader.read({5, 6, 8}) == {
        5: QueueingDiscipline("fq", 0x10000, 10, 12, 11, 9),
        6: QueueingDiscipline("htb", 0x10000, 10, 12, 11, 9, 7),
    }
    assert kernel.asked == [(38, ALL), (42, ONE)], "written for a little-endian machine"


def test_device_removed_before_its_classes_are_read_affects_no_other(monkeypatch):
    _, reader = fake_kernel(monkeypatch, [HTB, tc(nla(KIND, b"fq\0"))], NetlinkError(errno.ENODEV, "No such device"))
    found = reader.read({5, 6})
    assert found[5] == QueueingDiscipline("fq", 0x10000)
    assert found[6].errno == errno.ENODEV


def test_kernel_without_qdiscs_is_an_error(monkeypatch):
    _, reader = fake_kernel(monkeypatch, NetlinkError(errno.EOPNOTSUPP, "Operation not supported"))
    with pytest.raises(OSError, match="queueing disciplines: Operation not supported") as caught:
        reader.read({5})
    assert caught.value.errno == errno.EOPNOTSUPP


# --- this machine's kernel


def read_by_tc(namespace, tc, device):  # noqa: F811
    (root,) = [
        one for one in json.loads(namespace.run(tc, "-s", "-j", "qdisc", "show", "dev", device)) if "root" in one
    ]
    return root


def read_qdiscs(namespace, *devices):  # noqa: F811
    indexes = {name: namespace.within(socket.if_nametoindex, name) for name in devices}
    with namespace.within(QueueingDisciplineSocket) as reader:
        found = reader.read(set(indexes.values()))
    return [found.get(index) for index in indexes.values()]


def flood(device, packets=400):
    """Send faster than the limit: most of it is held back, and dropped where the queue is full."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
        sock.bind((device, 0))
        for _ in range(packets):
            with suppress(OSError):  # ENOBUFS: the packet was dropped
                sock.send(bytes(12) + b"\x08\x00" + bytes(1000))


def set_root_qdisc(namespace, tc, device, *discipline):  # noqa: F811
    namespace.run(tc, "qdisc", "replace", "dev", device, "root", *discipline)


@pytest.fixture
def tc_program(namespace, program):  # noqa: F811
    found = program("tc")
    try:
        set_root_qdisc(namespace, found, "left", "tbf", "rate", "100mbit", "burst", "64kb", "latency", "20ms")
    except subprocess.CalledProcessError:
        pytest.skip("needs sch_tbf")
    return found


def assert_same(found, theirs):
    assert (found.kind, f"{found.handle >> 16:x}:") == (theirs["kind"], theirs["handle"])
    assert [found.drops, found.overlimits, found.requeues, found.backlog_bytes] == [
        theirs[name] for name in ("drops", "overlimits", "requeues", "backlog")
    ]


def test_tc_reads_the_same_of_a_rate_limited_port(namespace, tc_program):  # noqa: F811
    set_root_qdisc(namespace, tc_program, "left", "tbf", "rate", "1mbit", "burst", "2kb", "limit", "20kb")
    namespace.within(flood, "left")
    namespace.ip("link", "set", "left", "down")  # nothing moves while the two are compared
    found, none = read_qdiscs(namespace, "left", "right")
    theirs = read_by_tc(namespace, tc_program, "left")
    assert_same(found, theirs)
    assert found.rate_bytes_per_second == theirs["options"]["rate"] == 125_000
    assert found.drops > 300
    assert found.overlimits > 0
    assert none == QueueingDiscipline("noqueue")


def test_rate_over_32_bits_and_htb_ceiling_of_the_kernel(namespace, tc_program):  # noqa: F811
    set_root_qdisc(namespace, tc_program, "left", "tbf", "rate", "400gbit", "burst", "64mb", "latency", "20ms")
    assert read_qdiscs(namespace, "left")[0].rate_bytes_per_second == 50_000_000_000
    namespace.run(tc_program, "qdisc", "add", "dev", "right", "root", "handle", "1:", "htb", "default", "10")
    assert read_qdiscs(namespace, "right")[0].rate_bytes_per_second is None
    rates = ("htb", "rate", "1gbit", "ceil", "80gbit", "quantum", "60000")
    namespace.run(tc_program, "class", "add", "dev", "right", "parent", "1:", "classid", "1:1", *rates)
    namespace.run(tc_program, "class", "add", "dev", "right", "parent", "1:1", "classid", "1:10", *rates)
    assert read_qdiscs(namespace, "right")[0].rate_bytes_per_second == 10_000_000_000


def test_kernel_adds_up_the_queues_below_mq(namespace, tc_program):  # noqa: F811
    namespace.ip("link", "add", "many", "numtxqueues", "4", "type", "veth", "peer", "name", "one")
    namespace.ip("link", "set", "many", "up")
    namespace.ip("link", "set", "one", "up")
    set_root_qdisc(namespace, tc_program, "many", "handle", "9:", "mq")
    slow = ("tbf", "rate", "1mbit", "burst", "2kb", "limit", "20kb")
    for queue in range(1, 5):
        namespace.run(tc_program, "qdisc", "add", "dev", "many", "parent", f"9:{queue}", *slow)
    namespace.within(flood, "many")
    namespace.ip("link", "set", "many", "down")
    listed = json.loads(namespace.run(tc_program, "-s", "-j", "qdisc", "show", "dev", "many"))
    found = read_qdiscs(namespace, "many")[0]
    assert (found.kind, found.rate_bytes_per_second) == ("mq", None)
    below = [one for one in listed if one["kind"] == "tbf"]
    assert len(below) == 4
    assert (found.drops, found.overlimits) == tuple(sum(one[name] for one in below) for name in ("drops", "overlimits"))
    assert found.drops > 0


UNPRIVILEGED = """
import os, socket
from exporter.linux.netlink.queueing_disciplines import QueueingDisciplineSocket
os.setuid(65534)
with QueueingDisciplineSocket() as reader:
    print(len(reader.read({socket.if_nametoindex(name) for name in ("left", "right")})))
"""


def test_qdiscs_need_no_privileges(namespace, tc_program):  # noqa: F811
    assert namespace.run(sys.executable, "-c", UNPRIVILEGED).strip() == "2"


def test_recording_replays_the_same(namespace, tc_program, tmp_path):  # noqa: F811
    with closing(namespace.within(KernelNic)) as nic:
        record(nic, tmp_path)
        links = nic.links()
        found = ReplayNic(tmp_path).queueing_disciplines(links)
        assert found == nic.queueing_disciplines(links)
    assert {one.kind for one in found.values()} == {"tbf", "noqueue"}
    assert "queueing" not in json.loads((tmp_path / "lo.json").read_text()), "it has none"
