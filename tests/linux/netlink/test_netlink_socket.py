"""Netlink messages, attributes and request sockets: hand-encoded bytes, a scripted socket, and the kernel."""

import errno
import os
import socket
import struct
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.linux.netlink import messages, netlink_socket
from exporter.linux.netlink.generic_netlink import GenericNetlinkFamily, parse_family_id
from exporter.linux.netlink.messages import DumpInterrupted, NetlinkError
from exporter.linux.netlink.netlink_socket import NetlinkSocket, SharedNetlinkSockets

little_endian = pytest.mark.skipif(sys.byteorder != "little", reason="needs a machine with the low byte first")

ERROR, DONE, OVERRUN = 2, 3, 4
DUMP_FLAGS = 0x301  # REQUEST, ROOT, MATCH


def answer(sequence, body=b"", *, kind=100, flags=0):
    return struct.pack("=IHHII", 16 + len(body), kind, flags, sequence, 7) + body + bytes(-len(body) % 4)


def error(sequence, number):
    return answer(sequence, struct.pack("=i", -number) + bytes(16), kind=ERROR)


class ScriptedSocket:
    """A socket whose kernel answers each request with the next list of datagrams, numbered from 1."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.queue = []
        self.sent = []
        self.closed = False

    def send(self, data):
        self.sent.append(data)
        self.queue += self.answers.pop(0) if self.answers else []

    def recvfrom(self, size):
        if not self.queue:
            raise BlockingIOError(errno.EAGAIN, "nothing came in time")
        found = self.queue.pop(0)
        return found if isinstance(found, tuple) else (found, (0, 0))

    def recv(self, size, flags):
        assert flags == socket.MSG_DONTWAIT
        return self.recvfrom(size)[0]

    def close(self):
        self.closed = True


@pytest.fixture
def scripted():
    opened = []

    def make(*answers):
        requests = NetlinkSocket(socket.NETLINK_ROUTE)
        opened.append(requests._socket)
        requests._socket = ScriptedSocket(*answers)
        return requests

    yield make
    for one in opened:
        one.close()


# --- bytes


@little_endian
def test_message_and_attribute_bytes():
    body = messages.attribute(3, b"eth0\0") + messages.attribute_u32(29, 9) + messages.attribute_text(1, "a")
    assert body.hex(" ") == "09 00 03 00 65 74 68 30 00 00 00 00 08 00 1d 00 09 00 00 00 06 00 01 00 61 00 00 00"
    made = messages.message(18, 0x301, 5, body)
    assert made[:16].hex(" ") == "2c 00 00 00 12 00 01 03 05 00 00 00 00 00 00 00"
    assert made[16:] == body
    assert [*messages.messages(made)] == [(18, 0x301, 5, body)]
    assert [*messages.attributes(body)] == [(3, b"eth0\0"), (29, b"\t\0\0\0"), (1, b"a\0")]


@little_endian
def test_nested_flag_is_ignored():
    inner = bytes.fromhex("06000200aabb0000")
    for kind in ("0180", "0100", "0140"):  # nested, not marked as in older kernels, in network byte order
        outer = bytes.fromhex("0c00" + kind) + inner
        assert [*messages.attributes(outer)] == [(1, inner)]
    assert [*messages.attributes(inner)] == [(2, b"\xaa\xbb")]


def test_several_messages_in_one_datagram():
    data = answer(1, b"abcde") + answer(2, b"") + answer(3, b"f")
    assert [(one.sequence, one.body) for one in messages.messages(data)] == [(1, b"abcde"), (2, b""), (3, b"f")]


@little_endian
@pytest.mark.parametrize(
    ("cut", "found"),
    [
        ("", []),
        ("0400", []),  # half a header
        ("04000100", [(1, b"")]),
        ("03000100", []),  # shorter than its own header, which would never end
        ("00000000", []),
        ("0500010061", [(1, b"a")]),  # the padding of the last one may be missing
        ("0600010061", []),  # longer than what is there
        ("0500010061000000ffff0200", [(1, b"a")]),
        ("050001006100000008", [(1, b"a")]),
    ],
)
def test_truncated_or_malformed_attribute_ends_the_list(cut, found):
    assert [*messages.attributes(bytes.fromhex(cut))] == found


@pytest.mark.parametrize("length", [0, 15, 17, 2**32 - 1])
def test_message_with_an_invalid_length_ends_the_datagram(length):
    good = answer(1, b"good")
    assert [one.body for one in messages.messages(good + struct.pack("=IHHII", length, 1, 0, 1, 0))] == [b"good"]


def test_numbers_and_strings():
    for size in (1, 2, 4, 8):
        assert messages.number((2 ** (8 * size) - 2).to_bytes(size, sys.byteorder)) == 2 ** (8 * size) - 2
    assert [messages.number(one) for one in (None, b"", b"abc", bytes(16))] == [None] * 4
    assert [messages.text(one) for one in (None, b"", b"eth0\0rest", b"eth0")] == [None, "", "eth0", "eth0"]
    assert messages.text(b"a\xff\0") == "a\\xff"


@given(st.binary(max_size=300))
def test_arbitrary_bytes_raise_no_error(data):
    assert sum(len(one.body) + 16 for one in messages.messages(data)) <= len(data)
    assert sum(len(payload) + 4 for _, payload in messages.attributes(data)) <= len(data)
    assert parse_family_id(data) is None or parse_family_id(data) >= 0


@pytest.mark.parametrize("name", ["", "x" * 16, "a\0b"])
def test_invalid_device_name_is_not_requested(name):
    with pytest.raises(OSError) as caught:
        messages.attribute_device(2, name)
    assert (caught.value.errno, caught.value.filename) == (errno.ENODEV, name)


# --- a request and its answer


def test_answer_is_matched_by_sequence_number(scripted):
    requests = scripted(
        [answer(9, b"of another request") + answer(1, b"first")],
        [answer(1, b"late"), (answer(2, b"forged"), (4711, 0)), b"\x01broken", answer(2, b"second")],
    )
    assert requests.request(18, b"body") == b"first"
    assert requests.request(18, b"body") == b"second"
    assert requests._socket.sent == [messages.message(18, 1, number, b"body") for number in (1, 2)]


def test_acknowledgement_is_not_the_answer(scripted):
    assert scripted([error(1, 0) + answer(1, b"answer")]).request(18, b"") == b"answer"


def test_error_answer_raises_with_its_errno(scripted):
    with pytest.raises(NetlinkError) as caught:
        scripted([error(1, errno.ENODEV)]).request(18, b"")
    assert (caught.value.errno, caught.value.strerror) == (errno.ENODEV, os.strerror(errno.ENODEV))


def test_truncated_error_is_ignored(scripted):
    with pytest.raises(TimeoutError, match="did not answer in time"):
        scripted([answer(1, b"\x01", kind=ERROR)]).request(18, b"")


def test_sequence_number_is_never_zero(scripted):
    requests = scripted([answer(2**32 - 1, b"last")], [answer(1, b"first")])
    requests._sequence = 2**32 - 2
    assert requests.request(18, b"") == b"last"
    assert requests.request(18, b"") == b"first", "0 is what the kernel puts on events"


def test_dump_returns_all_messages_up_to_done(scripted):
    parts = [answer(1, b"a") + answer(1, b"b"), answer(7, b"x") + answer(1, b"c"), answer(1, bytes(4), kind=DONE)]
    requests = scripted(parts)
    assert requests.dump(18, b"body") == [b"a", b"b", b"c"]
    assert requests._socket.sent == [messages.message(18, DUMP_FLAGS, 1, b"body")]


def test_interrupted_dump_is_retried(scripted):
    interrupted = [answer(1, b"a", flags=0x12), answer(1, bytes(4), kind=DONE)]
    requests = scripted(interrupted, [answer(2, b"b"), answer(2, bytes(4), kind=DONE)])
    assert requests.dump(18) == [b"b"]
    at_the_end = [answer(3, b"a"), answer(3, bytes(4), kind=DONE, flags=0x12)]
    requests._socket.answers = [at_the_end, [answer(4, bytes(4), kind=DONE)]]
    assert requests.dump(18) == []


def test_dump_attempts_are_limited(scripted):
    requests = scripted(*([answer(number, b"a", flags=0x10)] for number in range(1, 10)))
    with pytest.raises(DumpInterrupted, match="read it again") as caught:
        requests.dump(18)
    assert caught.value.errno == errno.EINTR
    assert len(requests._socket.sent) == netlink_socket.MAX_DUMP_ATTEMPTS


def test_dump_may_end_with_an_error(scripted):
    requests = scripted(
        [answer(1, b"a"), answer(1, struct.pack("=i", -errno.ENOMEM), kind=DONE)], [error(2, errno.EPERM)]
    )
    for number in (errno.ENOMEM, errno.EPERM):
        with pytest.raises(NetlinkError) as caught:
            requests.dump(18)
        assert caught.value.errno == number


def test_endless_dump_is_limited(scripted, monkeypatch):
    monkeypatch.setattr(netlink_socket, "MAX_DUMP_MESSAGES", 5)
    requests = scripted([answer(1, b"a") * 3] * 3, [answer(2, b"b") * 5, answer(2, bytes(4), kind=DONE)])
    with pytest.raises(NetlinkError, match="more than 5 entries") as caught:
        requests.dump(18)
    assert caught.value.errno == errno.EOVERFLOW
    assert len(requests.dump(18)) == 5, "what was left unread is read to its end first"


@pytest.mark.parametrize(
    "datagram",
    [answer(99, b"x"), (answer(1, b"x"), (4711, 0)), b"", b"\x00" * 16, struct.pack("=IHHII", 2**31, 100, 0, 1, 7)],
    ids=["another request", "another process", "empty", "zeros", "longer than the datagram"],
)
@pytest.mark.parametrize("ask", [lambda one: one.request(18, b""), lambda one: one.dump(18)], ids=["request", "dump"])
def test_endless_datagrams_without_an_answer_end_the_request(scripted, monkeypatch, datagram, ask):
    """Each of them came in time, so that the time limit of a datagram never ended it."""
    monkeypatch.setattr(netlink_socket, "MAX_UNRELATED_DATAGRAMS", 50)
    requests = scripted([datagram] * 200)
    with pytest.raises(TimeoutError, match="answer no request of ours"):
        ask(requests)
    assert len(requests._socket.queue) == 149


def test_unrelated_datagrams_are_counted_for_each_request(scripted, monkeypatch):
    monkeypatch.setattr(netlink_socket, "MAX_UNRELATED_DATAGRAMS", 3)
    requests = scripted(*([b""] * 3 + [answer(number, b"yes!")] for number in range(1, 6)))
    assert [requests.request(18, b"") for _ in range(5)] == [b"yes!"] * 5


@pytest.mark.parametrize("code", [-(2**31), -4096, -100_000])
def test_an_error_code_that_is_no_errno(scripted, code):
    """The kernel's largest is MAX_ERRNO, 4095 (include/linux/err.h)."""
    requests = scripted([answer(1, struct.pack("=i", code) + bytes(16), kind=ERROR)])
    with pytest.raises(NetlinkError, match=f"error {-code}") as caught:
        requests.request(18, b"")
    assert caught.value.errno == errno.EPROTO


def test_missing_answer_times_out():
    with NetlinkSocket(socket.NETLINK_ROUTE, timeout=0.01) as requests, pytest.raises(TimeoutError) as caught:
        requests.request(1, b"")  # "no operation"
    assert caught.value.errno == errno.ETIMEDOUT


def test_missing_netlink_family():
    with pytest.raises(OSError) as caught:
        NetlinkSocket(31)
    assert caught.value.errno == errno.EPROTONOSUPPORT
    shared = SharedNetlinkSockets(31)
    with pytest.raises(OSError) as caught:
        shared.request(16, b"")
    assert caught.value.errno == errno.EOPNOTSUPP
    shared.close()


# --- notifications


@pytest.fixture
def notified():
    """Make a socket for notifications whose kernel has sent these datagrams; an exception is raised in its place."""
    opened = []

    def make(*datagrams):
        requests = NetlinkSocket(socket.NETLINK_ROUTE, groups=1)
        opened.append(requests._socket)
        requests._socket = Received(datagrams)
        return requests

    yield make
    for one in opened:
        one.close()


class Received(ScriptedSocket):
    def __init__(self, datagrams):
        super().__init__()
        self.queue += datagrams

    def recvfrom(self, size):
        if self.queue and isinstance(self.queue[0], OSError):
            raise self.queue.pop(0)
        return super().recvfrom(size)


def bodies(found):
    return [None if one is None else one.body for one in found]


def test_notifications_are_read_in_order_without_waiting(notified):
    socket = notified(answer(0, b"a") + answer(0, b"b"), answer(0, b"c"))
    assert bodies(socket.notifications()) == [b"a", b"b", b"c"]
    assert socket.notifications() == []


def test_dropped_notifications_have_their_place(notified):
    overrun = OSError(errno.ENOBUFS, "no buffer space")
    assert bodies(notified(answer(0, b"a"), overrun, answer(0, b"b")).notifications()) == [b"a", None, b"b"]


def test_other_errors_of_notifications_are_raised(notified):
    with pytest.raises(OSError, match="broken") as caught:
        notified(answer(0, b"a"), OSError(errno.EIO, "broken")).notifications()
    assert caught.value.errno == errno.EIO


def test_notifications_of_processes_and_truncated_ones_are_ignored(notified):
    forged, cut = (answer(0, b"forged"), (4711, 0)), answer(0, b"cut")[:-4]
    assert bodies(notified(forged, cut, answer(0, b"good") + cut).notifications()) == [b"good"]


def test_a_call_reads_a_limited_number_of_datagrams(notified):
    limit = netlink_socket.MAX_NOTIFICATION_DATAGRAMS
    socket = notified(*[answer(0, b"a")] * (limit + 1))
    assert [len(socket.notifications()) for _ in range(3)] == [limit, 1, 0]


# --- sockets that threads share


@pytest.mark.parametrize(("refusal", "at_start"), [(errno.EMFILE, True), (errno.ENOBUFS, True), (errno.EACCES, False)])
def test_only_resource_errors_are_raised_by_the_constructor(monkeypatch, refusal, at_start):
    opened = []

    class One:
        def __init__(self, family):
            if opened:
                raise OSError(refusal, os.strerror(refusal))
            opened.append(self)
            self.closed = False

        def close(self):
            self.closed = True

    monkeypatch.setattr(netlink_socket, "NetlinkSocket", One)
    with pytest.raises(OSError) as caught:  # noqa: PT012 - either may be what fails
        shared = SharedNetlinkSockets(16)
        assert not at_start
        shared.request(16, b"")
    assert caught.value.errno == refusal
    assert [one.closed for one in opened] == [True], "nothing stays open"


class HangingSockets:
    """Sockets whose requests return when the test releases them."""

    def __init__(self):
        self.started = threading.Semaphore(0)
        self.released = threading.Event()
        self.opened = []

    def __call__(self, family):
        stuck = self

        class One:
            closed = False

            def request(self, kind, body):
                if body == b"hang":
                    stuck.started.release()
                    assert stuck.released.wait(30)
                return body

            def close(self):
                self.closed = True

        self.opened.append(One())
        return self.opened[-1]


def test_hanging_request_does_not_block_others(monkeypatch):
    stuck = HangingSockets()
    monkeypatch.setattr(netlink_socket, "NetlinkSocket", stuck)
    shared = SharedNetlinkSockets(16)
    threads = [threading.Thread(target=shared.request, args=(1, b"hang")) for _ in range(netlink_socket.SHARED_SOCKETS)]
    threads[0].start()
    assert stuck.started.acquire(timeout=30)
    assert shared.request(1, b"a") == b"a"
    assert shared.request(1, b"b") == b"b"
    for thread in threads[1:]:
        thread.start()
        assert stuck.started.acquire(timeout=30)
    with pytest.raises(OSError, match="have not returned") as caught:
        shared.request(1, b"c")
    assert caught.value.errno == errno.EBUSY
    shared.close()
    assert not any(one.closed for one in stuck.opened), "they are in use"
    stuck.released.set()
    for thread in threads:
        thread.join(30)
    assert all(one.closed for one in stuck.opened)
    with pytest.raises(OSError) as caught:
        shared.request(1, b"d")
    assert caught.value.errno == errno.EBADF
    shared.close()


def test_socket_is_returned_to_the_pool_after_an_error():
    shared = SharedNetlinkSockets(socket.NETLINK_ROUTE)
    for _ in range(2 * netlink_socket.SHARED_SOCKETS):
        with pytest.raises(NetlinkError) as caught:
            shared.request(4095, b"")
        assert caught.value.errno == errno.EOPNOTSUPP
    shared.close()


# --- generic netlink


def test_family_id_is_requested_by_name():
    with GenericNetlinkFamily("nlctrl") as family:
        body = messages.attribute_text(2, "nlctrl")
        found = dict(messages.attributes(family.request(3, body)))
        assert messages.number(found[1]) == 16
        assert messages.text(found[2]) == "nlctrl"
        assert family._family_id == 16


def test_unknown_generic_family_is_not_supported():
    with (
        GenericNetlinkFamily("fabric-none") as family,
        pytest.raises(OSError, match="no netlink family 'fabric-none'") as caught,
    ):
        family.request(1, b"")
    assert caught.value.errno == errno.EOPNOTSUPP


def test_answer_without_family_id_is_a_protocol_error(monkeypatch):
    with GenericNetlinkFamily("malformed") as family:
        monkeypatch.setattr(family._sockets, "request", lambda kind, body: bytes(4))
        with pytest.raises(OSError) as caught:
            family.request(1, b"")
    assert caught.value.errno == errno.EPROTO


@little_endian
def test_request_has_command_and_version(monkeypatch):
    sent = []
    with GenericNetlinkFamily("seen", version=2) as family:

        def request(kind, body):
            sent.append((kind, body.hex(" ")))
            return bytes.fromhex("01020000 06000100 15000000") if kind == 16 else b"\x01\x02\0\0rest"

        monkeypatch.setattr(family._sockets, "request", request)
        assert [family.request(9, b"ab"), family.request(9, b"cd")] == [b"rest", b"rest"]
    getfamily = "03 01 00 00 09 00 02 00 73 65 65 6e 00 00 00 00"
    assert sent == [(16, getfamily), (0x15, "09 02 00 00 61 62"), (0x15, "09 02 00 00 63 64")]
