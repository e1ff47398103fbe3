"""MQTT without a broker: topics, options, states and deduplication."""

import asyncio
import random
import re
from time import monotonic

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.config.errors import ConfigError
from exporter.config.schema import load, parse
from exporter.mqtt import dedup, retained_state, states
from exporter.mqtt.dedup import Deduplicator, SequenceWindow
from exporter.mqtt.options import SECTION, MqttOptions, parse_broker
from exporter.mqtt.retained_state import RetainedState
from exporter.mqtt.states import Presence, make_state, state_changes
from exporter.mqtt.subscriber import Subscriber
from exporter.mqtt.topics import (
    TopicError,
    batch_filters,
    batch_topic,
    event_topic,
    host_topic,
    parse_batch_topic,
    parse_event_topic,
    parse_host_topic,
    parse_slots,
    slot_of,
)
from exporter.nccl.batch import Batch, Operation, Stream
from exporter.nccl.batch_codec import encode
from exporter.nccl.decoding import FormatError
from exporter.sources.collector import source as collector
from tests.helpers.paths import ROOT

DOCUMENT = (ROOT / "docs" / "mqtt.md").read_text()

# --- topics


@pytest.mark.parametrize(("job", "slot"), [("train-7", "33"), ("a/b+#", "b9"), ("slurm 4711", "e7")])
def test_the_slot_is_the_first_byte_of_the_sha256(job, slot):
    assert slot_of(job) == slot


def test_names_cannot_be_wildcards_or_levels():
    assert batch_topic("a/b+#", "h\0st") == "fabric/v1/nccl/b9/a%2Fb%2B%23/h%00st"
    assert event_topic("leaf-1", "Ethernet1/1", "down") == "fabric/v1/events/leaf-1/Ethernet1%2F1/down"
    assert host_topic("gpu-01.example") == "fabric/v1/hosts/gpu-01.example"


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=40).filter(str.isprintable))
def test_every_name_survives_a_round_trip(name):
    assert parse_batch_topic(batch_topic(name, name)) == (name, name)
    assert parse_event_topic(event_topic(name, name, name)) == (name, name, name)
    assert parse_host_topic(host_topic(name)) == name


@pytest.mark.parametrize(
    "topic",
    [
        "fabric/v1/nccl/33/train-7",
        "fabric/v1/nccl/33/train-7/gpu-01/more",
        "fabric/v1/nccl/00/train-7/gpu-01",
        "fabric/v1/nccl/33/train%2D7/gpu-01",
        "fabric/v1/nccl/33/train-7/",
        "fabric/v2/nccl/33/train-7/gpu-01",
        "xfabric/v1/nccl/33/train-7/gpu-01",
        "fabric/v1/nccl/33/train-7/gpu%0a01",
        "fabric/v1/nccl/33/train-7/gpu%0A01",
        "fabric/v1/nccl/33/train-7/" + "a" * 2048,
    ],
)
def test_other_topics_are_rejected(topic):
    with pytest.raises(TopicError):
        parse_batch_topic(topic)


def test_an_empty_name_is_an_error():
    with pytest.raises(ValueError, match="empty"):
        host_topic("")


def test_slots_are_ranges():
    assert parse_slots("00-ff") == set(range(256))
    assert parse_slots("3F, 00-02") == {0, 1, 2, 0x3F}
    assert batch_filters(parse_slots("00-ff")) == ["fabric/v1/nccl/+/+/+", "fabric/v1/timing/+/+/+"]
    assert batch_filters(parse_slots("0a,fe-ff")) == [
        f"fabric/v1/{what}/{slot}/+/+" for what in ("nccl", "timing") for slot in ("0a", "fe", "ff")
    ]


@pytest.mark.parametrize("text", ["", "0-f", "ff-00", "00-100", "0x10", "00-7f,"])
def test_invalid_slots_are_an_error(text):
    with pytest.raises(ValueError, match="slots has"):
        parse_slots(text)


# --- options


SECTIONS = (SECTION, collector.DEFINITION)


def configured(text):
    return parse(text.encode(), "x.yml", SECTIONS).sources


def test_without_sections_mqtt_and_collector_are_off():
    sources = configured("")
    assert sources["mqtt"].broker is None
    assert sources["collector"].slots is None


def test_the_documentation_has_a_valid_example_and_all_keys(tmp_path):
    file = tmp_path / "x.yml"
    file.write_text("".join(re.findall(r"^```yaml\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)))
    sources = load(file, SECTIONS).sources
    assert sources["mqtt"].address == ("mqtt.example.net", 8883)
    assert sources["mqtt"].username == "gpu-017"
    assert parse_slots(sources["collector"].slots) == set(range(256))
    table = DOCUMENT.partition("| key of `mqtt` |")[2].partition("\n\n")[0]
    keys = [key for row in table.splitlines()[2:] for key in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(keys) == sorted(MqttOptions.__struct_fields__)


@pytest.mark.parametrize(
    ("text", "tls", "address"),
    [
        ("broker", False, ("broker", 1883)),
        ("broker", True, ("broker", 8883)),
        ("10.0.0.1:99", False, ("10.0.0.1", 99)),
        ("[2001:db8::1]", True, ("2001:db8::1", 8883)),
        ("[2001:db8::1]:99", True, ("2001:db8::1", 99)),
    ],
)
def test_a_broker_is_a_host_with_or_without_a_port(text, tls, address):
    assert parse_broker(text, tls=tls) == address


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("mqtt: {broker: 'mqtt://broker'}", "x.yml:1: mqtt.broker: 'mqtt://broker' is not an address; write HOST"),
        ("mqtt: {broker: 'a:99999'}", "mqtt.broker: 'a:99999' is not an address"),
        ("mqtt: {broker: a, password_file: /p}", "mqtt.username: is missing; a password needs one"),
        ("mqtt: {broker: a, username: u, password_file: /p, password_env: P}", "mqtt.password_env: excludes"),
        ("mqtt: {broker: a, password: p}", "mqtt.password: unknown key; did you mean 'password_env'?"),
        ("mqtt: {broker: a, ca_file: /ca}", "mqtt.ca_file: needs `tls: true`"),
        ("mqtt: {broker: a, tls: true, ca_file: /ca, insecure: true}", "exclude each other"),
        ("mqtt: {broker: a, tls: true, sha256: abc}", "mqtt.sha256: is not a fingerprint"),
        ("mqtt: {broker: a, tls: true, key_file: /k}", "mqtt.key_file: needs cert_file"),
        ("mqtt: {broker: a, expiry: 2d}", "mqtt.expiry: is 172800 s; give 1s to 1d"),
        ("collector: {slots: 00-7g}", "x.yml:1: collector.slots: slots has '00-7g'; give two hexadecimal digits"),
    ],
)
def test_invalid_options_are_errors_with_their_place(text, error):
    with pytest.raises(ConfigError) as raised:
        configured(text)
    assert error in str(raised.value)


def test_a_password_is_read_when_it_is_used(tmp_path, monkeypatch):
    file = tmp_path / "password"
    options = MqttOptions(broker="a", username="u", password_file=str(file))
    for secret in ("one", "two"):
        file.write_text(f"{secret}\n")
        assert options.password() == secret
    monkeypatch.setenv("FABRIC_MQTT", "three")
    assert MqttOptions(broker="a", username="u", password_env="FABRIC_MQTT").password() == "three"
    assert MqttOptions(broker="a").password() is None


# --- states

LEAF = ("leaf-1", "Ethernet1/1")
NIC = ("gpu-01", "mlx5_0:1")


def test_states_that_began_are_published_and_states_that_ended_are_cleared():
    before = states.states_by_key([(LEAF, make_state("down", 10.0)), (NIC, make_state("errors", 20.0, value=3.5))])
    after = states.states_by_key(
        [(NIC, make_state("errors", 20.0, value=9.0)), (NIC, make_state("down", 30.0, text="no light"))]
    )
    messages = state_changes(before, after)
    assert messages == [
        ("fabric/v1/events/leaf-1/Ethernet1%2F1/down", b""),
        ("fabric/v1/events/gpu-01/mlx5_0%3A1/down", messages[1][1]),
    ]
    assert msgspec.json.decode(messages[1][1]) == {
        "version": 1,
        "kind": "down",
        "since": 30.0,
        "number": 1,
        "text": "no light",
    }


def test_a_state_that_began_again_is_published_again():
    before = states.states_by_key([(LEAF, make_state("down", 10.0, 1))])
    assert len(state_changes(before, states.states_by_key([(LEAF, make_state("down", 12.0, 2))]))) == 1
    assert state_changes(before, before) == []
    assert state_changes({}, {}) == []


def test_a_state_is_published_again_when_it_becomes_quiet_and_when_it_goes_on():
    goes_on, quiet, drifted = (
        states.states_by_key([(LEAF, make_state("errors", 10.0, quiet_since=time))]) for time in (None, 40.0, 40.001)
    )
    ((topic, payload),) = state_changes(goes_on, quiet)
    assert states.decode_state(topic, payload)[1].quiet_since == 40.0
    assert len(state_changes(quiet, goes_on)) == 1
    assert state_changes(quiet, drifted) == []


@given(
    st.dictionaries(st.integers(0, 5), st.integers(1, 3), max_size=5),
    st.dictionaries(st.integers(0, 5), st.integers(1, 3), max_size=5),
)
def test_a_subscriber_of_all_changes_has_the_active_states(before, after):
    before, after = (
        states.states_by_key([(("h", str(port)), make_state("down", 1.0, number)) for port, number in some.items()])
        for some in (before, after)
    )
    retained = RetainedState()
    for topic, payload in [*state_changes({}, before), *state_changes(before, after)]:
        assert retained.receive(topic, payload)
    assert retained.states() == after


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"{", "malformed"),
        (b"[" * 5000, "too_large"),
        (b"[" * 3000, "invalid"),
        (b'{"version":1,"kind":"up","since":1,"number":1}', "refused"),
        (b'{"version":2,"kind":"down","since":1,"number":1}', "unsupported_version"),
        (b'{"version":2,"kind":{"of a newer":"form"}}', "unsupported_version"),
        (b'{"version":1,"kind":"down","since":"1","number":1}', "invalid"),
        (b'{"version":1,"kind":"down","since":-1,"number":1}', "invalid"),
        (b'{"version":1,"kind":"down","since":1,"number":1,"text":"a\\nb"}', "invalid"),
        (b'{"version":1,"kind":"down","since":1,"number":1,"value":1e999}', "invalid"),
        (b'{"version":1,"since":1,"number":1}', "invalid"),
    ],
)
def test_invalid_states_are_rejected(payload, reason):
    retained = RetainedState()
    with pytest.raises(FormatError) as raised:
        retained.receive(event_topic("h", "p", "down"), payload)
    assert raised.value.reason == reason
    assert retained.states() == {}


def test_states_expire_by_age_and_when_the_broker_does_not_send_them_again(stopped_clock):
    clock = stopped_clock(retained_state)
    retained = RetainedState()
    retained.on_connect()
    retained.receive(event_topic(*LEAF, "down"), states.encode(make_state("down", 1.0)))
    retained.receive(event_topic(*NIC, "down"), states.encode(make_state("down", 2.0)))
    retained.receive(host_topic("gpu-01"), states.encode(Presence(version=1, state="gone")))
    clock.now += 100.0
    assert len(retained.states()) == 2
    retained.on_connect()  # a new connection; one state was cleared meanwhile
    retained.receive(event_topic(*NIC, "down"), states.encode(make_state("down", 2.0)))
    clock.now += 10.0
    assert len(retained.states()) == 2, "the broker may still send the other one"
    clock.now += 10.0
    assert set(retained.states()) == {(*NIC, "down")}
    assert retained.hosts() == {}
    clock.now += states.EXPIRY
    assert retained.states() == {}


def test_a_state_of_a_host_whose_clock_is_ahead_began_when_its_message_arrived(monkeypatch):
    """Else it would begin after the verdict that it explains, and again at each message."""
    now = [1_700_000_000.0]
    monkeypatch.setattr(retained_state, "time", lambda: now[0])
    retained, topic, key = RetainedState(), event_topic(*NIC, "down"), (*NIC, "down")
    for number, passed, begun in [(1, 0, 0), (1, 30, 0), (2, 30, 60), (2, 30, 60)]:
        now[0] += passed
        retained.receive(topic, states.encode(make_state("down", 1_700_003_600.0 + number, number)))
        assert retained.states()[key].since == 1_700_000_000.0 + begun
    retained.receive(topic, states.encode(make_state("down", 1_699_990_000.0, 3)))
    assert retained.states()[key].since == 1_699_990_000.0, "a begin in the past is that of the host"


def test_retained_states_are_limited(monkeypatch):
    monkeypatch.setattr(states, "MAX_STATES", 3)
    retained = RetainedState()
    for port in range(5):
        retained.receive(event_topic("h", str(port), "down"), states.encode(make_state("down", 1.0)))
    assert len(retained.states()) == 3
    assert retained.dropped == 2
    assert not retained.receive("fabric/v1/nccl/00/a/b", b"")


def test_states_of_one_host_leave_room_for_those_of_others(monkeypatch):
    monkeypatch.setattr(states, "MAX_STATES", 12)
    monkeypatch.setattr(retained_state, "MAX_STATES_OF_ONE", 8)
    retained = RetainedState()
    down = states.encode(make_state("down", 1.0))
    for port in range(50):
        retained.receive(event_topic("evil", str(port), "down"), down)
    for port in range(2):
        retained.receive(event_topic("gpu-1", str(port), "down"), down)
    assert [name for name, *_ in retained.states()].count("evil") == 8
    assert {key for key in retained.states() if key[0] == "gpu-1"} == {("gpu-1", port, "down") for port in "01"}
    assert retained.dropped == 42
    for port in range(50):
        retained.receive(event_topic("evil", str(port), "down"), b"")
    retained.receive(event_topic("evil", "new", "down"), down)
    assert ("evil", "new", "down") in retained.states(), "what ended leaves its room"


# --- deduplication


def stream(**other):
    values = {"job": "j", "communicator": "c", "kind": "AllReduce", "rank": 0, "ranks": 8, "nodes": 1}
    return Stream(**{**values, "world_rank": 0, "host": "h", "pid": 1, **other})


def batch(tick, *numbers, epoch="0" * 16, job="j", host="h", **other):
    operations = [Operation(number, 8, 1.0, timed=True) for number in numbers]
    return Batch(
        job, host, [(stream(job=job, host=host, **other), operations)] if operations else [], epoch=epoch, tick=tick
    )


def numbers(fresh):
    return [one.sequence for _, operations in fresh.streams for one in operations]


@given(st.lists(st.integers(0, 300), min_size=1, max_size=200))
def test_a_sequence_window_matches_a_set(values):
    """Within its size; every number below it counts as seen."""
    window, came, first = SequenceWindow(64), set(), values[0]
    for value in values:
        highest = max(came, default=value)
        expected = value not in came and value > highest - 64 and not (value < first)
        assert window.add(value) is expected
        if expected:
            came.add(value)
    assert window.lost == max(came) - first + 1 - len(came)


def test_a_duplicate_batch_counts_once_and_a_gap_is_a_loss():
    deduplicator = Deduplicator()
    assert numbers(deduplicator.filter_new(batch(5, 1, 2))) == [1, 2]
    assert deduplicator.filter_new(batch(5, 1, 2)) is None
    assert numbers(deduplicator.filter_new(batch(8, 3))) == [3]
    assert (deduplicator.losses.batches, deduplicator.losses.duplicate_batches) == (2, 1)
    assert numbers(deduplicator.filter_new(batch(7, 4))) == [4]
    assert deduplicator.losses.batches == 1, "one of them arrived late"


def test_a_new_epoch_causes_no_loss_and_no_duplicate_operations():
    deduplicator = Deduplicator()
    deduplicator.filter_new(batch(41, *range(100)))
    again = deduplicator.filter_new(batch(0, *range(90, 110), epoch="1" * 16))
    assert numbers(again) == list(range(100, 110))
    assert deduplicator.losses.duplicate_operations == 10
    assert deduplicator.losses.batches == 0


def test_late_operations_and_gaps_count_once():
    deduplicator = Deduplicator()
    assert numbers(deduplicator.filter_new(batch(0, 10, 12, 14))) == [10, 12, 14]
    assert numbers(deduplicator.filter_new(batch(1, 11, 12, 13, 15))) == [11, 13, 15]
    assert numbers(deduplicator.filter_new(batch(2, 16, 17))) == [16, 17]
    assert numbers(deduplicator.filter_new(batch(3, *range(10, 19)))) == [18]


def test_each_stream_has_its_own_sequence():
    deduplicator = Deduplicator()
    ones = [{}, {"rank": 1}, {"kind": "AllGather"}, {"communicator": "d"}, {"host": "i"}, {"job": "k"}]
    for tick, one in enumerate(ones):
        assert numbers(deduplicator.filter_new(batch(tick, 5, **one))) == [5]
    assert deduplicator.losses.duplicate_operations == 0


def test_a_new_process_starts_a_new_sequence():
    deduplicator = Deduplicator()
    deduplicator.filter_new(batch(0, 0, 1, 2))
    assert numbers(deduplicator.filter_new(batch(1, 0, 1, pid=2))) == [0, 1]


def test_jobs_and_hosts_over_the_limits_are_discarded_until_others_are_idle(stopped_clock):
    clock = stopped_clock(dedup)
    deduplicator = Deduplicator(max_jobs=2, max_hosts=2, max_streams=2)
    for job in ("a", "b", "c"):
        deduplicator.filter_new(batch(0, 1, job=job))
    for host in ("h", "i", "k"):
        deduplicator.filter_new(batch(1, 2, job="a", host=host))
    assert (deduplicator.losses.jobs, deduplicator.losses.hosts) == (1, 1)
    assert deduplicator.sizes() == (2, 3, 3)
    clock.now += dedup.IDLE_SECONDS + 1
    assert numbers(deduplicator.filter_new(batch(0, 1, job="c"))) == [1]
    assert deduplicator.sizes() == (1, 1, 1)


def test_the_least_recently_received_stream_is_forgotten():
    deduplicator = Deduplicator(max_streams=2)
    for tick, rank in enumerate((0, 1, 0, 2)):
        deduplicator.filter_new(batch(tick, tick, rank=rank))
    assert deduplicator.sizes() == (1, 1, 2)
    assert numbers(deduplicator.filter_new(batch(9, 0, rank=0))) == [], "rank 0 was not forgotten"
    assert numbers(deduplicator.filter_new(batch(10, 1, rank=1))) == [1], "rank 1 was"


def test_hosts_and_streams_of_all_jobs_are_limited(stopped_clock):
    clock = stopped_clock(dedup)
    deduplicator = Deduplicator(max_all_hosts=3, max_all_streams=4)
    for tick, (job, host, rank) in enumerate([*((j, h, r) for j in "ab" for h in "hi" for r in (0, 1, 2))]):
        deduplicator.filter_new(batch(tick, 1, job=job, host=host, rank=rank))
    assert deduplicator.sizes() == (2, 3, 5), "one more for a host without streams"
    assert deduplicator.losses.hosts == 3, "b on i"
    clock.now += dedup.IDLE_SECONDS + 1
    deduplicator.expire_idle()
    assert deduplicator.sizes() == (0, 0, 0)


def test_one_host_alone_has_a_share_of_the_jobs(stopped_clock):
    stopped_clock(dedup)
    deduplicator = Deduplicator(max_jobs=100)
    for job in range(200):
        deduplicator.filter_new(batch(0, 1, job=f"invented-{job}", host="evil"))
    assert deduplicator.sizes()[0] == dedup.MAX_HOST_JOBS
    assert deduplicator.losses.jobs == 200 - dedup.MAX_HOST_JOBS
    assert numbers(deduplicator.filter_new(batch(0, 1, job="real"))) == [1]


def test_jobs_of_invented_hosts_give_way_and_jobs_that_run_do_not(stopped_clock):
    clock = stopped_clock(dedup)
    deduplicator = Deduplicator(max_jobs=10)
    for host in ("gpu-1", "gpu-2"):
        deduplicator.filter_new(batch(0, 1, job="real", host=host))
    for number in range(100):
        deduplicator.filter_new(batch(0, 1, job=f"invented-{number}", host=f"evil-{number}"))
    assert deduplicator.losses.jobs == 91
    clock.now += 6
    assert numbers(deduplicator.filter_new(batch(0, 1, job="new"))) == [1]
    assert deduplicator.losses.evicted == 1
    assert numbers(deduplicator.filter_new(batch(1, 1, 2, job="real", host="gpu-1"))) == [2], "its numbers are known"
    assert deduplicator.sizes() == (10, 11, 11)


def test_epochs_are_limited():
    deduplicator = Deduplicator()
    chance = random.Random(3)
    for _ in range(200):
        deduplicator.filter_new(batch(0, 1, epoch=f"{chance.getrandbits(64):016x}"))
    (hosts,) = deduplicator._jobs.values()
    assert len(hosts["h"].epochs) == dedup.MAX_EPOCHS


def test_a_jump_over_the_maximum_gap_is_not_counted_as_loss():
    window = SequenceWindow(64)
    assert [window.add(number) for number in (0, 5, (1 << 63) - 1, (1 << 63) - 2)] == [True, True, True, False]
    assert window.lost == 4


# --- decoding


async def test_the_wait_of_a_reader_without_room_is_not_counted_as_work():
    """A rest is as long as the work before it; a reader that waits for a second must not cost another one."""
    subscriber = Subscriber(MqttOptions(broker="127.0.0.1"))
    stream = Stream("llm", "0x1", "AllReduce", 0, 2, None, 0, "gpu-9", 88)
    for tick in range(3):
        (payload,) = encode(Batch("llm", "gpu-9", [(stream, [Operation(tick, 8, 5.0, None)])], tick=tick))
        subscriber._on_received(batch_topic("llm", "gpu-9"), payload)
    begun, waits = monotonic(), []
    async for _ in subscriber.batches():
        waits.append(monotonic() - begun)
        if len(waits) == 3:
            break
        await asyncio.sleep(0.5)
        begun = monotonic()
    assert max(waits) < 0.4
