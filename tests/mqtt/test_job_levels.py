"""Best levels of jobs in retained messages, with a real broker and without one."""

import json

import pytest
from paho.mqtt import client as paho

from exporter.mqtt import job_levels, subscriber
from exporter.mqtt.job_levels import JobLevels
from exporter.mqtt.topics import TopicError, level_topic, slot_of
from exporter.nccl.decoding import FormatError
from tests.mqtt.test_broker import PATIENCE, collected, until

LEVELS = {"steps AllReduce 2 2 9 1140000000": 2.0, "bus_bandwidth AllReduce 536870912 2 2": 5.4e9}


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(subscriber, "PUBLISH_INTERVAL", 0.05)


def clear(options, topic):
    """Publish an empty retained message, as an operator does."""
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)
    client.connect(*options.address)
    client.loop_start()
    client.publish(topic, b"", qos=1, retain=True).wait_for_publish(PATIENCE)
    client.disconnect()
    client.loop_stop()


async def test_levels_survive_a_restart_of_the_collector_and_reach_its_twin(broker):
    options = broker().options()
    async with collected(options, slot_of("llm-7")) as (first, _), collected(options) as (twin, _):
        first.retained.levels.keep({"llm-7": LEVELS})
        await until("the twin has them", lambda: twin.retained.levels.of("llm-7") == LEVELS)
    async with collected(options) as (second, _):
        await until("restored", lambda: second.retained.levels.of("llm-7") == LEVELS)
        assert second.retained.levels.of("llm-8") is None
        clear(options, level_topic("llm-7"))
        await until("cleared", lambda: second.retained.levels.of("llm-7") == {})
    async with collected(options) as (third, _):
        third.retained.levels.keep({"other": LEVELS})
        await until("another job", lambda: third.retained.levels.of("other") == LEVELS)
        assert third.retained.levels.of("llm-7") is None


async def test_a_collector_receives_only_the_levels_of_its_slots(broker):
    options = broker().options()
    other = next(name for name in map(str, range(99)) if slot_of(name) != slot_of("llm"))
    async with collected(options) as (all_slots, _):
        all_slots.retained.levels.keep({"llm": LEVELS, other: LEVELS})
        await until("published", lambda: all_slots.retained.levels.of("llm") and all_slots.retained.levels.of(other))
    async with collected(options, slot_of("llm")) as (one, _):
        await until("its own", lambda: one.retained.levels.of("llm") == LEVELS)
        assert one.retained.levels.of(other) is None


class Published(list):
    """Messages that a broker accepted."""

    async def __call__(self, topic, payload, expiry):
        self.append((topic, json.loads(payload)["levels"], expiry))
        return True


async def test_levels_are_published_again_when_they_rose_and_once_a_day(stopped_clock):
    clock, levels, sent = stopped_clock(job_levels), JobLevels(), Published()

    async def publish(**best):
        levels.keep({"llm": best})
        await levels.publish_due(sent)
        return len(sent)

    assert await publish() == 0, "no level yet"
    assert await publish(a=2.0) == 1
    assert await publish(a=2.01) == 1
    assert await publish(a=2.1) == 2
    assert await publish(a=2.1, b=1.0) == 3
    clock.now += 86_400.0
    assert await publish(a=2.1, b=1.0) == 4
    assert sent[-1] == (level_topic("llm"), {"a": 2.1, "b": 1.0}, 7 * 86_400.0)
    assert await publish() == 4
    assert await publish(a=1.0) == 5, "the past was forgotten, and begins again"


async def test_a_refused_message_is_counted_and_logged_once(caplog):
    async def refuse(topic, payload, expiry):
        return False

    levels = JobLevels()
    levels.keep({"a": LEVELS, "b": LEVELS})
    await levels.publish_due(refuse)
    assert levels.refused == 2
    assert [one.getMessage() for one in caplog.records] == [
        f"the broker refuses {level_topic('a')}; check the rights of this user for it"
    ]


@pytest.mark.parametrize(
    "payload",
    [
        b"[]",
        b'{"version": 1}',
        b'{"version": 2, "levels": {}}',
        b'{"version": 1, "levels": {"a": 0}}',
        b'{"version": 1, "levels": {"a": -1}}',
        b'{"version": 1, "levels": {"a": 1e19}}',
        b'{"version": 1, "levels": {"a": NaN}}',
        b'{"version": 1, "levels": {"": 1}}',
        json.dumps({"version": 1, "levels": {"a" * 129: 1.0}}).encode(),
        json.dumps({"version": 1, "levels": {str(one): 1.0 for one in range(65)}}).encode(),
        b" " * 20_000,
    ],
)
def test_malformed_levels_are_rejected(payload):
    levels = JobLevels()
    with pytest.raises(FormatError):
        levels.receive(level_topic("llm"), payload)
    assert levels.of("llm") is None


def test_topics_of_another_slot_are_rejected_and_jobs_are_bounded(monkeypatch):
    monkeypatch.setattr(job_levels, "MAX_JOBS", 3)
    levels = JobLevels()
    with pytest.raises(TopicError):
        levels.receive(level_topic("llm").replace(f"/{slot_of('llm')}/", "/zz/"), b"")
    assert levels.receive("fabric/v1/hosts/a", b"") is False
    for one in range(5):
        levels.receive(level_topic(f"job-{one}"), b'{"version": 1, "levels": {"a": 1}}')
    assert [levels.of(f"job-{one}") for one in range(5)] == [None, None, {"a": 1}, {"a": 1}, {"a": 1}]
    assert levels.dropped == 2
