"""The window of datagrams in flight, with an endpoint that is told what to answer and a clock that stands still."""

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
SLOW = 1e6
"""Datagrams a second where the ceiling is not what is looked at."""


def answer(request, transaction, *, status=0, attribute=None):
    """Give the datagram that answers a request."""
    datagram = bytearray(encode(request, transaction))
    datagram[3] = 0x81
    struct.pack_into(">H", datagram, 4, status)
    if attribute is not None:
        struct.pack_into(">H", datagram, 16, attribute)
    return bytes(datagram)


class Fake:
    """An endpoint: `script` gives for each request, by its try, the datagrams that come and after how many seconds."""

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
        told = self.script(request, self.tries[request], transaction)
        for delay, datagram in told:
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


class Asked:
    """Requests, what became of each, and what its answer leads to."""

    def __init__(self):
        self.answers = []
        self.then = {}

    def request(self, destination="a", tag=None, attribute=Attribute.PORT_COUNTERS):
        return Request(destination, ROUTE, attribute, self._take, tag)

    def _take(self, tag, answer):
        self.answers.append((tag, answer if isinstance(answer, Problem) else "good"))
        return self.then.get(tag)


@pytest.fixture
def clock(monkeypatch):
    return clock_of(monkeypatch)


def clock_of(patch):
    made = Clock()
    patch.setattr(mad_window, "monotonic", made)
    patch.setattr(mad_window, "sleep", made.sleep)
    return made


def soon(request, _tried, transaction):
    return [(1e-5, answer(request, transaction))]


def never(_request, _tried, _transaction):
    return []


@pytest.fixture
def window(clock):
    """Give a function that makes a window and its endpoint."""

    def make(script, m_key=0, should_stop=lambda: False, **limits):
        endpoint = Fake(script, clock)
        return RequestWindow(endpoint, RequestLimits(**{"per_second": SLOW, **limits}), m_key, should_stop), endpoint

    return make


# What is in flight.


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 8),
    st.integers(1, 3),
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from([1e-4, 3e-3, 0.2])), min_size=1, max_size=60),
)
def test_neither_the_window_nor_a_destination_has_more_in_flight_than_it_may(most, each, questions):
    with pytest.MonkeyPatch.context() as patch:
        clock, asked = clock_of(patch), Asked()
        out, peak = {}, Counter()

        def script(request, _tried, transaction):
            out[transaction] = request.destination
            peak["all"] = max(peak["all"], len(out))
            peak["one"] = max(peak["one"], *Counter(out.values()).values())
            return [(request.tag[1], answer(request, transaction))]

        endpoint = Fake(script, clock)
        receive = endpoint.receive

        def received(seconds):
            reply = receive(seconds)
            if reply is not None:
                del out[reply.transaction]
            return reply

        endpoint.receive = received
        one = RequestWindow(endpoint, RequestLimits(most, each, SLOW))
        one.run([asked.request(key, (number, delay)) for number, (key, delay) in enumerate(questions)])
    assert sorted(tag[0] for tag, told in asked.answers if told == "good") == list(range(len(questions)))
    assert peak["all"] <= most
    assert peak["one"] <= each
    assert peak["all"] == min(most, sum(min(each, count) for count in Counter(key for key, _ in questions).values()))
    assert (one.counts.sent, one.counts.received, one.counts.timeouts, one.counts.retries) == (len(questions),) * 2 + (
        0,
        0,
    )


def test_what_goes_to_one_destination_keeps_its_order(window):
    asked = Asked()
    one, _ = window(soon)
    one.run([asked.request("a", number) for number in range(20)])
    assert [tag for tag, _ in asked.answers] == list(range(20))


@pytest.mark.parametrize(("window_size", "per_second"), [(64, 1000.0), (64, 100.0), (4, 2500.0), (1, 10.0)])
def test_the_ceiling_is_kept_in_every_second_with_as_much_slack_as_the_window(window, window_size, per_second):
    asked = Asked()
    one, endpoint = window(soon, window=window_size, per_second=per_second)
    count = int(per_second * 4)
    one.run([asked.request(number % 50, number) for number in range(count)])
    times = endpoint.times()
    assert len(times) == count
    for first in range(0, count, max(1, count // 200)):
        second = sum(times[first] <= at < times[first] + 1 for at in times[first : first + int(per_second) * 3])
        assert second <= per_second + window_size + 1
    assert times[-1] - times[0] >= (count - 1 - window_size) / per_second - 1e-6
    assert times[-1] - times[0] <= count / per_second + 0.01  # and it is used


def test_the_ceiling_counts_over_several_runs(window):
    asked = Asked()
    one, endpoint = window(soon, window=10, per_second=100.0)
    for _ in range(20):
        one.run([asked.request(number, number) for number in range(10)])
    times = endpoint.times()
    assert times[-1] - times[0] >= (200 - 1 - 10) / 100


# Who does not answer.


def test_one_that_does_not_answer_is_asked_again_after_rests_that_double(window):
    asked = Asked()
    one, endpoint = window(never, timeout=1.0, tries=4)
    one.run([asked.request("a", 1)])
    times = endpoint.times()
    rests = [round(later - earlier - 1.0, 3) for earlier, later in pairwise(times)]
    assert rests == [0.1, 0.2, 0.4]
    assert asked.answers == [(1, Problem.TIMEOUT)]
    assert (one.counts.sent, one.counts.retries, one.counts.timeouts, one.counts.received) == (4, 3, 1, 0)


def test_a_lost_answer_costs_a_retry_and_nothing_else(window):
    asked = Asked()
    one, _ = window(lambda request, tried, number: soon(request, tried, number) if tried == 2 else [])
    one.run([asked.request("a", 1), asked.request("a", 2)])
    assert asked.answers == [(1, "good"), (2, "good")]
    assert one.counts.timeouts == 0
    assert not one.unresponsive


def test_a_silent_destination_gives_up_its_queue_and_costs_one_try_from_then_on(window):
    asked = Asked()
    dead = {"a"}
    script = lambda request, tried, number: [] if request.destination in dead else soon(request, tried, number)  # noqa: E731
    one, endpoint = window(script, tries=3)
    one.run([asked.request("a", number) for number in range(100)])
    assert dict(asked.answers) == {0: Problem.TIMEOUT, **dict.fromkeys(range(1, 100), Problem.UNRESPONSIVE)}
    assert len(endpoint.sent) == 3
    assert one.unresponsive == {"a"}
    one.run([asked.request("a", "later")])
    assert len(endpoint.sent) == 4
    dead.clear()
    one.run([asked.request("a", "alive")])
    assert asked.answers[-1] == ("alive", "good")
    assert not one.unresponsive
    dead.add("a")  # it answered, so it is trusted again
    one.run([asked.request("a", "again")])
    assert len(endpoint.sent) == 5 + 3


def test_one_that_answers_some_things_may_leave_one_question_unanswered_and_is_silent_at_the_second(window):
    asked = Asked()
    deaf = {2, 4, 5}
    script = lambda request, tried, number: [] if request.tag in deaf else soon(request, tried, number)  # noqa: E731
    one, endpoint = window(script, tries=3)
    one.run([asked.request("a", number) for number in range(8)])
    told = dict(asked.answers)
    assert [told[number] for number in (0, 1, 3)] == ["good"] * 3
    assert [told[number] for number in (2, 4, 5)] == [Problem.TIMEOUT] * 3
    assert [told[number] for number in (6, 7)] == [Problem.UNRESPONSIVE] * 2
    tries = Counter(request.tag for _, request in endpoint.sent)
    assert (tries[2], tries[4], tries[5]) == (3, 3, 1)  # one that missed one is not believed at the next


def test_a_silent_destination_holds_up_no_other(window, clock):
    asked = Asked()
    script = lambda request, tried, number: [] if request.destination == "dead" else soon(request, tried, number)  # noqa: E731
    one, endpoint = window(script, window=2)
    others = [asked.request(number % 7, number) for number in range(200)]
    one.run([asked.request("dead", "x"), *others])
    rest = [at for at, request in endpoint.sent if request.destination != "dead"]
    assert len(rest) == 200
    assert rest[-1] - rest[0] < 0.1
    assert ("x", Problem.TIMEOUT) in asked.answers


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
def test_whatever_becomes_of_datagrams_every_question_is_answered_once(most, each, tries, questions):
    with pytest.MonkeyPatch.context() as patch:
        clock, asked = clock_of(patch), Asked()

        def script(request, tried, number):
            fates = request.tag[1]
            fate = fates[tried - 1] if tried <= len(fates) else "lose"
            late = {"late": 0.6}.get(fate, 1e-5)
            return [] if fate == "lose" else [(late, answer(request, number, status=int(fate == "busy")))]

        one = RequestWindow(Fake(script, clock), RequestLimits(most, each, SLOW, tries=tries))
        for _ in range(2):
            one.run([asked.request(key, (number, fates)) for number, (key, fates) in enumerate(questions)])
    assert sorted(tag[0] for tag, _ in asked.answers) == sorted(2 * list(range(len(questions))))


def test_of_several_questions_in_flight_to_one_that_falls_silent_none_is_lost(window):
    asked = Asked()
    one, _ = window(never, window=2, per_destination=3, tries=1)
    one.run([asked.request("a", number) for number in range(6)])
    assert sorted(tag for tag, _ in asked.answers) == list(range(6))


def test_one_that_falls_silent_is_told_by_the_question_that_it_did_not_answer_first(window):
    asked = Asked()
    one, _ = window(never, tries=1)
    one.run([asked.request("a", number) for number in range(3)])
    assert asked.answers == [(0, Problem.TIMEOUT), (1, Problem.UNRESPONSIVE), (2, Problem.UNRESPONSIVE)]


# What answers otherwise than it should.


def test_one_that_is_busy_is_asked_again_and_told_in_the_end(window):
    asked = Asked()
    one, endpoint = window(lambda request, tried, number: [(1e-5, answer(request, number, status=int(tried < 4)))])
    one.run([asked.request("a", 1)])
    assert asked.answers == [(1, "good")]
    assert len(endpoint.sent) == 4
    assert one.counts.retries == 3
    rests = [round(after - before, 2) for before, after in pairwise(endpoint.times())]
    assert rests == [0.05, 0.1, 0.2]  # of the time-out, half a second, a tenth and so on


def test_one_that_is_always_busy_ends(window):
    asked = Asked()
    one, endpoint = window(lambda request, _tried, number: [(1e-5, answer(request, number, status=1))])
    one.run([asked.request("a", 1), asked.request("b", 2)])
    assert asked.answers == [(1, Problem.BUSY), (2, Problem.BUSY)]
    assert len(endpoint.sent) == 2 * MAX_BUSY_TRIES
    assert not one.unresponsive


def test_a_late_answer_is_a_stray_and_answers_no_other_question(window):
    asked = Asked()
    one, _ = window(
        lambda request, tried, number: [(0.7 if tried == 1 else 0.2, answer(request, number))], timeout=0.5, tries=2
    )
    one.run([asked.request("a", 1)])
    assert asked.answers == [(1, "good")]
    assert (one.counts.unmatched, one.counts.received, one.counts.retries) == (1, 1, 1)


def test_an_answer_that_comes_twice_counts_once(window):
    asked = Asked()
    one, _ = window(lambda request, tried, number: 2 * soon(request, tried, number))
    one.run([asked.request("a", 1), asked.request("a", 2)])
    assert asked.answers == [(1, "good"), (2, "good")]
    assert one.counts.unmatched == 1  # the other one comes when nobody listens any more


def test_an_answer_of_nobody_is_a_stray(window):
    asked = Asked()
    one, _ = window(
        lambda request, tried, number: [(0.0, answer(request, number ^ 0x10000)), *soon(request, tried, number)]
    )
    one.run([asked.request("a", 1)])
    assert asked.answers == [(1, "good")]
    assert one.counts.unmatched == 1


def test_an_answer_to_something_else_is_malformed_and_is_told_at_once(window, clock):
    asked, begun = Asked(), clock.now
    one, _ = window(lambda request, _tried, number: [(1e-5, answer(request, number, attribute=0x15))])
    one.run([asked.request("a", 1), asked.request("b", 2)])
    assert asked.answers == [(1, Problem.MALFORMED), (2, Problem.MALFORMED)]
    assert one.counts.malformed == 2
    assert clock.now - begun < 0.1


@pytest.mark.parametrize("garbage", [b"", b"\1", b"\xff" * 256, b"\1" * 255])
def test_garbage_is_no_answer(window, garbage):
    asked = Asked()
    one, _ = window(lambda request, tried, number: [(0.0, garbage), *soon(request, tried, number)])
    one.run([asked.request("a", 1)])
    assert asked.answers == [(1, "good")]


def test_what_cannot_be_sent_is_told_and_the_rest_goes_on(window):
    asked = Asked()

    def script(request, tried, number):
        if request.destination == "a":
            raise OSError(errno.ENOBUFS, "no")
        return soon(request, tried, number)

    one, _ = window(script)
    one.run([asked.request("a", 1), asked.request("a", 2), asked.request("b", 3)])
    assert sorted(asked.answers) == [(1, Problem.SEND_FAILED), (2, Problem.SEND_FAILED), (3, "good")]
    assert one.counts.sent == 1


def test_a_port_that_is_gone_ends_all_and_the_next_run_begins_anew(window):
    asked = Asked()
    one, endpoint = window(soon)
    good = endpoint.receive

    def gone(_seconds):
        raise OSError(errno.ENODEV, "gone")

    endpoint.receive = gone
    with pytest.raises(OSError, match="gone"):
        one.run([asked.request("a", 1), asked.request("b", 2)])
    endpoint.receive = good
    one.run([asked.request("a", 3)])
    assert asked.answers == [(3, "good")]


# What answers lead to, and the end.


def test_answers_lead_to_more_questions(window):
    asked = Asked()
    asked.then = {number: deque([asked.request(number % 3, number + 1)]) for number in range(50)}
    one, _ = window(soon)
    one.run([asked.request(0, 0)])
    assert [tag for tag, _ in asked.answers] == list(range(51))


def test_when_it_is_told_to_stop_all_that_is_left_is_told_and_nothing_more_is_asked(window, clock):
    asked, begun = Asked(), clock.now
    asked.then = {1: [asked.request("c", "more")]}
    one, endpoint = window(never, window=2, should_stop=lambda: clock.now > begun + 1, timeout=10.0)
    one.run([asked.request("a", 1), asked.request("a", 2), asked.request("b", 3), asked.request("d", 4)])
    assert sorted(asked.answers) == [(number, Problem.STOPPED) for number in (1, 2, 3, 4)]
    assert clock.now <= begun + 1 + mad_window.MAX_WAIT_SECONDS + 0.01
    assert len(endpoint.sent) == 2


def test_transactions_differ_and_are_never_zero(window):
    asked = Asked()
    numbers = []

    def script(request, tried, number):
        numbers.append(number)
        return soon(request, tried, number)

    one, _ = window(script)
    one._transaction = MAX_TRANSACTION - 5
    one.run([asked.request("a", number) for number in range(20)])
    assert len(set(numbers)) == 20
    assert all(0 < number <= MAX_TRANSACTION for number in numbers)


def test_the_key_and_the_time_go_to_the_endpoint(window):
    asked = Asked()
    one, endpoint = window(soon, m_key=0xABC, timeout=0.25)
    one.run([asked.request("a", 1)])
    assert (endpoint.keys, endpoint.seconds) == ({0xABC}, {0.25})
