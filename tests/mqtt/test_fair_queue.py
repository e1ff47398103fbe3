"""The queue of a collector: one sender with many messages delays and displaces no other."""

import pytest

from exporter.mqtt import fair_queue
from exporter.mqtt.fair_queue import MESSAGE_OVERHEAD, SENDER_BURST, SENDER_RATE, FairQueue, Message

SIZE = 1000 + MESSAGE_OVERHEAD


@pytest.fixture
def clock(stopped_clock):
    return stopped_clock(fair_queue)


def put(queue, sender, count):
    for number in range(count):
        queue.put(sender, Message(f"{sender}{number}", bytes(1000)))


def topics(queue):
    found = []
    while (one := queue.get()) is not None:
        found.append(one[1].topic)
    return found


def test_senders_are_taken_in_turns_each_in_its_order(clock):
    queue = FairQueue(1 << 20)
    put(queue, "evil", 4)
    put(queue, "a", 2)
    put(queue, "b", 1)
    assert topics(queue) == ["evil0", "a0", "b0", "evil1", "a1", "evil2", "evil3"]
    assert (len(queue), queue.bytes) == (0, 0)


def test_a_sender_over_its_share_loses_its_oldest_and_no_other_loses_any(clock):
    queue = FairQueue(12 * SIZE)
    put(queue, "real", 2)
    put(queue, "evil", 100)
    put(queue, "real", 2)
    assert queue.dropped == 95, "five of the twelve are as many as stay free"
    assert queue.bytes <= 12 * SIZE
    found = topics(queue)
    assert [one for one in found if one.startswith("real")] == ["real0", "real1", "real0", "real1"]
    assert [one for one in found if one.startswith("evil")] == [f"evil{number}" for number in range(95, 100)]


def test_a_message_that_never_fits_is_dropped(clock):
    queue = FairQueue(100)
    put(queue, "a", 1)
    assert (len(queue), queue.bytes, queue.dropped) == (0, 0, 1)


def test_a_sender_over_its_rate_waits_while_others_are_taken(clock):
    queue = FairQueue(1 << 20)
    put(queue, "evil", 3)
    assert queue.get()[0] == "evil"
    queue.spend("evil", int(SENDER_BURST + SENDER_RATE))
    put(queue, "real", 2)
    assert topics(queue) == ["real0", "real1"]
    assert queue.seconds_to_credit() == pytest.approx(1.0, abs=0.01)
    clock.now += 1.01
    assert queue.get()[0] == "evil"
    assert len(queue) == 1, "what waits is not dropped"


def test_without_messages_there_is_nothing_to_wait_for(clock):
    assert FairQueue(1000).seconds_to_credit() is None
