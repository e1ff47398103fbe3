"""Settings of hosts in retained messages, with a real broker and without one."""

import json

import pytest

from exporter.mqtt import host_settings, retained_state, states
from exporter.mqtt import publisher as publishing
from exporter.mqtt.host_settings import decode_settings, encode_settings
from exporter.mqtt.options import MqttOptions
from exporter.mqtt.retained_state import RetainedState
from exporter.mqtt.topics import TopicError, settings_topic
from exporter.nccl.decoding import FormatError
from tests.mqtt.test_broker import DOCUMENT, collected, published, until

SETTINGS = (("mlx5, GPUs", "MTU", "9000"), ("mlx5, GPUs", "kernel", "6.8.0"))


async def test_settings_are_retained_replaced_and_cleared_at_the_end(broker):
    options = broker().options()
    async with published(options) as publisher:
        publisher.set_settings(SETTINGS)
        async with collected(options) as (subscriber, _):
            await until("received", lambda: subscriber.retained.settings() == {"gpu-01": SETTINGS})
            publisher.set_settings(SETTINGS[1:])
            await until("replaced", lambda: subscriber.retained.settings() == {"gpu-01": SETTINGS[1:]})
            publisher.set_settings([])
            await until("cleared", lambda: subscriber.retained.settings() == {})
            publisher.set_settings(SETTINGS)
            await until("again", lambda: subscriber.retained.settings() == {"gpu-01": SETTINGS})
            await publisher.__aexit__(None, None, None)
            await until("the daemon stopped", lambda: subscriber.retained.settings() == {})
    async with collected(options) as (subscriber, _):
        await until("gone", lambda: "gpu-01" in subscriber.retained.hosts())
        assert subscriber.retained.settings() == {}


async def test_settings_are_published_again_to_a_broker_that_lost_them(broker):
    one = broker()
    async with published(one.options()) as publisher:
        publisher.set_settings(SETTINGS)
        await until("published", lambda: publisher._published_settings[0])
        one.stop()
        await until("noticed", lambda: not publisher.status.connected)
        one.start()
        async with collected(one.options()) as (subscriber, _):
            await until("published again", lambda: subscriber.retained.settings() == {"gpu-01": SETTINGS})


async def test_settings_are_refreshed_before_they_expire(stopped_clock):
    clock, sent = stopped_clock(publishing), []

    class Client:
        async def publish_confirmed(self, topic, payload, *, retain, expiry):
            sent.append((topic, bool(payload), retain, expiry))
            return True

    publisher = publishing.Publisher(MqttOptions(), "gpu-01")
    for seconds, number in ((0.0, 1), (5.0, 1), (states.REFRESH, 2), (5.0, 2)):
        clock.now += seconds
        await publisher._publish_settings(Client(), encode_settings(SETTINGS))
        assert len(sent) == number
    await publisher._publish_settings(Client(), b"")
    assert sent[0] == ("fabric/v1/settings/gpu-01", True, True, states.EXPIRY)
    assert sent[2:] == [("fabric/v1/settings/gpu-01", False, True, None)]


def test_the_example_of_the_documentation_is_a_message():
    (example,) = [line for line in DOCUMENT.splitlines() if line.startswith('{"version": 1, "settings"')]
    assert decode_settings(example.encode()) == (
        ("MT_0000000838, GPUs", "MTU", "9000"),
        ("MT_0000000838, GPUs", "kernel", "6.8.0-45-generic"),
        ("job llm-7", "version of NCCL", "2.27.3"),
    )


def test_a_message_has_the_first_settings_that_it_has_room_for():
    many = [("class", f"setting {number}", "9" * 199) for number in range(300)]
    payload = encode_settings(many)
    found = decode_settings(payload)
    assert len(payload) <= 16_384
    assert 50 < len(found) <= 128
    assert list(found) == many[: len(found)]
    assert encode_settings([]) == b""
    assert encode_settings([("class", "", "value")]) == b"", "a topic or label without a name"


def test_texts_that_are_no_text_are_published_as_their_labels():
    assert decode_settings(encode_settings([("job a", "variables of NCCL", "A=\udcff\n\x01")])) == (
        ("job a", "variables of NCCL", r"A=\xff" + "\n" + r"\x01"),
    )


def body(settings, version=1):
    return json.dumps({"version": version, "settings": settings}).encode()


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"x", "malformed"),
        (b"[" * 3000, "invalid"),
        (b'{"version":1}', "invalid"),
        (body({"c": {"n": "9000"}}), "invalid"),
        (body({"c": {"n": [9000]}}), "invalid"),
        (body({"c": {"n": [""]}}), "invalid"),
        (body({"c": {"n": ["9" * 257]}}), "invalid"),
        (body({"c": {"n": list(map(str, range(129)))}}), "invalid"),
        (body({}, 2), "unsupported_version"),
        (body({"c": {"n": ["9" * 200] * 100}}), "too_large"),
    ],
)
def test_invalid_settings_are_rejected(payload, reason):
    retained = RetainedState()
    with pytest.raises(FormatError) as raised:
        retained.receive(settings_topic("gpu-01"), payload)
    assert raised.value.reason == reason
    assert retained.settings() == {}


@pytest.mark.parametrize("topic", ["fabric/v1/settings/a/b", "fabric/v1/settings/", "fabric/v1/settings/a%2fb"])
def test_other_topics_are_rejected(topic):
    with pytest.raises(TopicError):
        RetainedState().receive(topic, body({}))


def test_a_message_of_many_names_has_few_settings():
    product = {f"c{of}": {f"n{name}": ["1", "1"] for name in range(16)} for of in range(16)}
    found = decode_settings(body(product))
    assert len(found) == 128
    assert len(set(found)) == 128, "a value that is given twice counts once"


def test_the_bytes_of_all_hosts_are_limited(monkeypatch):
    one = encode_settings(SETTINGS)
    monkeypatch.setattr(host_settings, "MAX_TOTAL", 3 * len(one))
    retained = RetainedState()
    for host in ("a", "b", "c", "d"):
        retained.receive(settings_topic(host), one)
    assert retained.settings().keys() == {"a", "b", "c"}
    assert retained.dropped == 1
    retained.receive(settings_topic("a"), b"")
    retained.receive(settings_topic("d"), one)
    assert retained.settings().keys() == {"b", "c", "d"}
    retained.receive(settings_topic("b"), encode_settings([*SETTINGS, ("mlx5, GPUs", "trust", "dscp")]))
    assert retained.settings().keys() == {"c", "d"}, "what is outdated is not kept"
    assert retained.dropped == 2
    retained.receive(settings_topic("b"), encode_settings(SETTINGS[1:]))
    assert retained.settings()["b"] == SETTINGS[1:]


def test_settings_expire(stopped_clock):
    clock, retained = stopped_clock(retained_state), RetainedState()
    retained.receive(settings_topic("a"), encode_settings(SETTINGS))
    clock.now += states.EXPIRY - 1
    assert retained.settings() == {"a": SETTINGS}
    clock.now += 2
    assert retained.settings() == {}
    retained.expire()
    retained.receive(settings_topic("b"), encode_settings(SETTINGS))
    assert retained.settings() == {"b": SETTINGS}
