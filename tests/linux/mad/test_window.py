"""The window of MAD requests in flight, with a scripted endpoint and a simulated clock."""

import errno
import struct
from collections import Counter, deque
from heapq import heappop, heappush
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.linux.mad import window as mad_window
from exporter.linux.mad.datagram import (
    Attribute,
    Problem,
    Request,
    Route,
    decode,
    encode,
)
from exporter.linux.mad.window import (
    MAX_BUSY_TRIES,
    MAX_TRANSACTION,
    RequestLimits,
    RequestWindow,
)
from tests.helpers.fabric_simulation import Clock

ROUTE = Route(1)
NO_RATE_LIMIT = 1e6
"""Requests per second where the rate limit is not tested."""


def answer(request, transaction, *, status=0, attribute=None):
    """Return the reply to a request."""
    datagram = bytearray(encode(request, transaction))
    datagram[3] = 0x81
    struct.pack_into(">H", datagram, 4, status)
    if attribute is not None:
        struct.pack_into(">H", datagram, 16, attribute)
    return bytes(datagram)


class FakeEndpoint:
    """An endpoint: `script` returns for each request and try the datagrams that arrive, with delays in seconds."""

    def __init__(self, script, clock):
        self.script, self.clock = script, clock
        self.sent, self.tries = [], Counter()
        self.keys, self.seconds = set(), set()
        self._coming = []

    def send(self, request, transaction, seconds, m_key=0):
        self.tries[request] += 1
        self.sent.append((self.clock.now, request))
        self.keys.add(m_key)
        self.seconds.add(seconds)
        for delay, datagram in self.script(request, self.tries[request], transaction):
            heappush(self._coming, (self.clock.now + delay, len(self.sent), datagram))

    def receive(self, seconds):
        assert seconds >= 0
        end = self.clock.now + seconds
        if self._coming and self._coming[0][0] <= end:
            at, _, datagram = heappop(self._coming)
            self.clock.now = max(self.clock.now, at)
            return decode(datagram)
        self.clock.sleep(seconds)
        return None

    def times(self, destination=None):
        return [at for at, request in self.sent if destination in (None, request.destination)]


class RequestRecorder:
    """Makes requests, and records the results that their handlers get."""

    def __init__(self):
        self.answers = []
        self.follow_ups = {}

    def request(self, destination="a", tag=None, attribute=Attribute.PORT_COUNTERS):
        return Request(destination, ROUTE, attribute, self._on_result, tag)

    def _on_result(self, tag, answer):
        self.answers.append((tag, answer if isinstance(answer, Problem) else "good"))
        return self.follow_ups.get(tag)


@pytest.fixture
def clock(monkeypatch):
    return clock_of(monkeypatch)


def clock_of(patch):
    made = Clock()
    patch.setattr(mad_window, "monotonic", made)
    patch.setattr(mad_window, "sleep", made.sleep)
    return made


def reply_soon(request, _tried, transaction):
    return [(1e-5, answer(request, transaction))]


def no_reply(_request, _tried, _transaction):
    return []


@pytest.fixture
def make_window(clock):
    """Return a function that makes a window and its endpoint."""

    def make(script, m_key=0, should_stop=lambda: False, **limits):
        endpoint = FakeEndpoint(script, clock)
        return RequestWindow(
            endpoint, RequestLimits(**{"per_second": NO_RATE_LIMIT, **limits}), m_key, should_stop
        ), endpoint

    return make


# --- requests in flight


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 8),
    st.integers(1, 3),
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from([1e-4, 3e-3, 0.2])), min_size=1, max_size=60),
)
def test_requests_in_flight_stay_within_the_limits_of_window_and_destination(most, each, questions):
    with pytest.MonkeyPatch.context() as patch:
        clock, recorder = clock_of(patch), RequestRecorder()
        out, peak = {}, Counter()

        def script(request, _tried, transaction):
            out[transaction] = request.destination
            peak["all"] = max(peak["all"], len(out))
            peak["one"] = max(peak["one"], *Counter(out.values()).values())
            return [(request.tag[1], answer(request, transaction))]

        endpoint = FakeEndpoint(script, clock)
        receive = endpoint.receive

        def received(seconds):
            reply = receive(seconds)
            if reply is not None:
                del out[reply.transaction]
            return reply

        endpoint.receive = received
        window = RequestWindow(endpoint, RequestLimits(most, each, NO_RATE_LIMIT))
        window.run([recorder.request(key, (number, delay)) for number, (key, delay) in enumerate(questions)])
    assert sorted(tag[0] for tag, result in recorder.answers if result == "good") == list(range(len(questions)))
    assert peak["all"] <= most
    assert peak["one"] <= each
    assert peak["all"] == min(most, sum(min(each, count) for count in Counter(key for key, _ in questions).values()))
    assert (window.counts.sent, window.counts.received, window.counts.timeouts, window.counts.retries) == (
        len(questions),
    ) * 2 + (
        0,
        0,
    )


def test_requests_to_one_destination_keep_their_order(make_window):
    recorder = RequestRecorder()
    window, _ = make_window(reply_soon)
    window.run([recorder.request("a", number) for number in range(20)])
    assert [tag for tag, _ in recorder.answers] == list(range(20))


@pytest.mark.parametrize(("window_size", "per_second"), [(64, 1000.0), (64, 100.0), (4, 2500.0), (1, 10.0)])
def test_the_rate_limit_holds_in_every_second_with_a_burst_of_one_window(make_window, window_size, per_second):
    recorder = RequestRecorder()
    window, endpoint = make_window(reply_soon, window=window_size, per_second=per_second)
    count = int(per_second * 4)
    window.run([recorder.request(number % 50, number) for number in range(count)])
    times = endpoint.times()
    assert len(times) == count
    for first in range(0, count, max(1, count // 200)):
        second = sum(times[first] <= at < times[first] + 1 for at in times[first : first + int(per_second) * 3])
        assert second <= per_second + window_size + 1
    assert times[-1] - times[0] >= (count - 1 - window_size) / per_second - 1e-6
    assert times[-1] - times[0] <= count / per_second + 0.01  # and the limit is used


def test_the_rate_limit_holds_over_several_runs(make_window):
    recorder = RequestRecorder()
    window, endpoint = make_window(reply_soon, window=10, per_second=100.0)
    for _ in range(20):
        window.run([recorder.request(number, number) for number in range(10)])
    times = endpoint.times()
    assert times[-1] - times[0] >= (200 - 1 - 10) / 100


# --- unresponsive destinations


def test_retries_have_an_exponential_backoff(make_window):
    recorder = RequestRecorder()
    window, endpoint = make_window(no_reply, timeout=1.0, tries=4)
    window.run([recorder.request("a", 1)])
    times = endpoint.times()
    rests = [round(later - earlier - 1.0, 3) for earlier, later in pairwise(times)]
    assert rests == [0.1, 0.2, 0.4]
    assert recorder.answers == [(1, Problem.TIMEOUT)]
    assert (window.counts.sent, window.counts.retries, window.counts.timeouts, window.counts.received) == (4, 3, 1, 0)


def test_a_lost_reply_costs_one_retry(make_window):
    recorder = RequestRecorder()
    window, _ = make_window(lambda request, tried, number: reply_soon(request, tried, number) if tried == 2 else [])
    window.run([recorder.request("a", 1), recorder.request("a", 2)])
    assert recorder.answers == [(1, "good"), (2, "good")]
    assert window.counts.timeouts == 0
    assert not window.unresponsive


def test_requests_to_an_unresponsive_destination_are_skipped_and_later_ones_get_one_try(make_window):
    recorder = RequestRecorder()
    dead = {"a"}
    script = lambda request, tried, number: [] if request.destination in dead else reply_soon(request, tried, number)  # noqa: E731
    window, endpoint = make_window(script, tries=3)
    window.run([recorder.request("a", number) for number in range(100)])
    assert dict(recorder.answers) == {0: Problem.TIMEOUT, **dict.fromkeys(range(1, 100), Problem.UNRESPONSIVE)}
    assert len(endpoint.sent) == 3
    assert window.unresponsive == {"a"}
    window.run([recorder.request("a", "later")])
    assert len(endpoint.sent) == 4
    dead.clear()
    window.run([recorder.request("a", "alive")])
    assert recorder.answers[-1] == ("alive", "good")
    assert not window.unresponsive
    dead.add("a")  # it responded, so it gets all tries again
    window.run([recorder.request("a", "again")])
    assert len(endpoint.sent) == 5 + 3


def test_a_responsive_destination_may_miss_one_request_and_is_unresponsive_at_the_second(make_window):
    recorder = RequestRecorder()
    unanswered = {2, 4, 5}
    script = lambda request, tried, number: [] if request.tag in unanswered else reply_soon(request, tried, number)  # noqa: E731
    window, endpoint = make_window(script, tries=3)
    window.run([recorder.request("a", number) for number in range(8)])
    results = dict(recorder.answers)
    assert [results[number] for number in (0, 1, 3)] == ["good"] * 3
    assert [results[number] for number in (2, 4, 5)] == [Problem.TIMEOUT] * 3
    assert [results[number] for number in (6, 7)] == [Problem.UNRESPONSIVE] * 2
    tries = Counter(request.tag for _, request in endpoint.sent)
    assert (tries[2], tries[4], tries[5]) == (3, 3, 1)  # after one miss the next request gets one try


def test_an_unresponsive_destination_delays_no_other(make_window, clock):
    recorder = RequestRecorder()
    script = lambda request, tried, number: [] if request.destination == "dead" else reply_soon(request, tried, number)  # noqa: E731
    window, endpoint = make_window(script, window=2)
    others = [recorder.request(number % 7, number) for number in range(200)]
    window.run([recorder.request("dead", "x"), *others])
    rest = [at for at, request in endpoint.sent if request.destination != "dead"]
    assert len(rest) == 200
    assert rest[-1] - rest[0] < 0.1
    assert ("x", Problem.TIMEOUT) in recorder.answers


@settings(max_examples=150, deadline=None)
@given(
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(1, 3),
    st.lists(
        st.tuples(st.integers(0, 3), st.lists(st.sampled_from(["answer", "busy", "lose", "late"])).map(tuple)),
        max_size=30,
    ),
)
def test_every_request_gets_one_result_whatever_happens_to_datagrams(most, each, tries, questions):
    with pytest.MonkeyPatch.context() as patch:
        clock, recorder = clock_of(patch), RequestRecorder()

        def script(request, tried, number):
            fates = request.tag[1]
            fate = fates[tried - 1] if tried <= len(fates) else "lose"
            late = {"late": 0.6}.get(fate, 1e-5)
            return [] if fate == "lose" else [(late, answer(request, number, status=int(fate == "busy")))]

        window = RequestWindow(FakeEndpoint(script, clock), RequestLimits(most, each, NO_RATE_LIMIT, tries=tries))
        for _ in range(2):
            window.run([recorder.request(key, (number, fates)) for number, (key, fates) in enumerate(questions)])
    assert sorted(tag[0] for tag, _ in recorder.answers) == sorted(2 * list(range(len(questions))))


def test_no_request_in_flight_to_an_unresponsive_destination_is_lost(make_window):
    recorder = RequestRecorder()
    window, _ = make_window(no_reply, window=2, per_destination=3, tries=1)
    window.run([recorder.request("a", number) for number in range(6)])
    assert sorted(tag for tag, _ in recorder.answers) == list(range(6))


def test_the_first_missed_request_is_the_timeout_and_later_ones_are_skipped(make_window):
    recorder = RequestRecorder()
    window, _ = make_window(no_reply, tries=1)
    window.run([recorder.request("a", number) for number in range(3)])
    assert recorder.answers == [(0, Problem.TIMEOUT), (1, Problem.UNRESPONSIVE), (2, Problem.UNRESPONSIVE)]


# --- other replies


def test_busy_replies_are_retried_with_backoff(make_window):
    recorder = RequestRecorder()
    window, endpoint = make_window(
        lambda request, tried, number: [(1e-5, answer(request, number, status=int(tried < 4)))]
    )
    window.run([recorder.request("a", 1)])
    assert recorder.answers == [(1, "good")]
    assert len(endpoint.sent) == 4
    assert window.counts.retries == 3
    rests = [round(after - before, 2) for before, after in pairwise(endpoint.times())]
    assert rests == [0.05, 0.1, 0.2]  # shares 0.1, 0.2 and 0.4 of the timeout


def test_retries_of_busy_replies_are_limited(make_window):
    recorder = RequestRecorder()
    window, endpoint = make_window(lambda request, _tried, number: [(1e-5, answer(request, number, status=1))])
    window.run([recorder.request("a", 1), recorder.request("b", 2)])
    assert recorder.answers == [(1, Problem.BUSY), (2, Problem.BUSY)]
    assert len(endpoint.sent) == 2 * MAX_BUSY_TRIES
    assert not window.unresponsive


def test_a_late_reply_is_unmatched(make_window):
    recorder = RequestRecorder()
    window, _ = make_window(
        lambda request, tried, number: [(0.7 if tried == 1 else 0.2, answer(request, number))], timeout=0.5, tries=2
    )
    window.run([recorder.request("a", 1)])
    assert recorder.answers == [(1, "good")]
    assert (window.counts.unmatched, window.counts.received, window.counts.retries) == (1, 1, 1)


def test_a_duplicate_reply_counts_once(make_window):
    recorder = RequestRecorder()
    window, _ = make_window(lambda request, tried, number: 2 * reply_soon(request, tried, number))
    window.run([recorder.request("a", 1), recorder.request("a", 2)])
    assert recorder.answers == [(1, "good"), (2, "good")]
    assert window.counts.unmatched == 1  # the second one arrives after the run


def test_an_unsolicited_reply_is_unmatched(make_window):
    recorder = RequestRecorder()
    window, _ = make_window(
        lambda request, tried, number: [(0.0, answer(request, number ^ 0x10000)), *reply_soon(request, tried, number)]
    )
    window.run([recorder.request("a", 1)])
    assert recorder.answers == [(1, "good")]
    assert window.counts.unmatched == 1


def test_a_reply_with_another_attribute_is_malformed_and_not_retried(make_window, clock):
    recorder, begun = RequestRecorder(), clock.now
    window, _ = make_window(lambda request, _tried, number: [(1e-5, answer(request, number, attribute=0x15))])
    window.run([recorder.request("a", 1), recorder.request("b", 2)])
    assert recorder.answers == [(1, Problem.MALFORMED), (2, Problem.MALFORMED)]
    assert window.counts.malformed == 2
    assert clock.now - begun < 0.1


@pytest.mark.parametrize("garbage", [b"", b"\1", b"\xff" * 256, b"\1" * 255])
def test_garbage_is_ignored(make_window, garbage):
    recorder = RequestRecorder()
    window, _ = make_window(lambda request, tried, number: [(0.0, garbage), *reply_soon(request, tried, number)])
    window.run([recorder.request("a", 1)])
    assert recorder.answers == [(1, "good")]


def test_transient_send_errors_are_results_and_other_requests_continue(make_window):
    recorder = RequestRecorder()

    def script(request, tried, number):
        if request.destination == "a":
            raise OSError(errno.ENOBUFS, "no")
        return reply_soon(request, tried, number)

    window, _ = make_window(script)
    window.run([recorder.request("a", 1), recorder.request("a", 2), recorder.request("b", 3)])
    assert sorted(recorder.answers) == [(1, Problem.SEND_FAILED), (2, Problem.SEND_FAILED), (3, "good")]
    assert window.counts.sent == 1


def test_an_error_of_the_port_ends_the_run_and_the_next_run_works(make_window):
    recorder = RequestRecorder()
    window, endpoint = make_window(reply_soon)
    good = endpoint.receive

    def gone(_seconds):
        raise OSError(errno.ENODEV, "gone")

    endpoint.receive = gone
    with pytest.raises(OSError, match="gone"):
        window.run([recorder.request("a", 1), recorder.request("b", 2)])
    endpoint.receive = good
    window.run([recorder.request("a", 3)])
    assert recorder.answers == [(3, "good")]


# --- follow-up requests, stop


def test_handlers_return_follow_up_requests(make_window):
    recorder = RequestRecorder()
    recorder.follow_ups = {number: deque([recorder.request(number % 3, number + 1)]) for number in range(50)}
    window, _ = make_window(reply_soon)
    window.run([recorder.request(0, 0)])
    assert [tag for tag, _ in recorder.answers] == list(range(51))


def test_when_stopped_all_remaining_requests_get_a_result_and_none_is_sent(make_window, clock):
    recorder, begun = RequestRecorder(), clock.now
    recorder.follow_ups = {1: [recorder.request("c", "more")]}
    window, endpoint = make_window(no_reply, window=2, should_stop=lambda: clock.now > begun + 1, timeout=10.0)
    window.run([recorder.request("a", 1), recorder.request("a", 2), recorder.request("b", 3), recorder.request("d", 4)])
    assert sorted(recorder.answers) == [(number, Problem.STOPPED) for number in (1, 2, 3, 4)]
    assert clock.now <= begun + 1 + mad_window.MAX_WAIT_SECONDS + 0.01
    assert len(endpoint.sent) == 2


def test_transaction_ids_differ_and_are_never_zero(make_window):
    recorder = RequestRecorder()
    numbers = []

    def script(request, tried, number):
        numbers.append(number)
        return reply_soon(request, tried, number)

    window, _ = make_window(script)
    window._transaction = MAX_TRANSACTION - 5
    window.run([recorder.request("a", number) for number in range(20)])
    assert len(set(numbers)) == 20
    assert all(0 < number <= MAX_TRANSACTION for number in numbers)


def test_m_key_and_timeout_are_passed_to_the_endpoint(make_window):
    recorder = RequestRecorder()
    window, endpoint = make_window(reply_soon, m_key=0xABC, timeout=0.25)
    window.run([recorder.request("a", 1)])
    assert (endpoint.keys, endpoint.seconds) == ({0xABC}, {0.25})
