"""Reader of Onyx's JSON API: data of commands becomes rows, and failures affect only their own columns."""

import asyncio
import contextlib
import logging
import re
import threading

import pytest
import trustme

from exporter.core.poller import Poller
from exporter.core.source import SourceError
from exporter.meaning.ports import rates
from exporter.simulator.onyx import (
    OnyxNeighbour,
    OnyxPort,
    OnyxSimulator,
    OnyxSwitch,
    OnyxTraffic,
)
from exporter.sources.switch import round_robin as schedule_module
from exporter.sources.switch.merge import Family, Support
from exporter.sources.switch.metrics import PORTS, PRIORITIES, QUEUES
from exporter.sources.switch.options import Onyx, Target
from exporter.sources.switch.readers.onyx import reader as reader_module
from exporter.sources.switch.readers.onyx import rows as rows_module
from exporter.sources.switch.readers.onyx.reader import (
    CONGESTION,
    COUNTERS,
    DESCRIPTION,
    LOSSLESS,
    NEIGHBOURS,
    OnyxReader,
)
from exporter.sources.switch.registry import SwitchRegistry
from exporter.sources.switch.settings_metrics import SETTINGS
from exporter.sources.switch.source import SwitchSource, make_reader
from exporter.switch_api.neighbour import LldpNeighbour
from exporter.switch_api.onyx.client import OnyxClient
from exporter.switch_api.onyx.parser import parse_counters

PASSWORD = "s3cret-of-a-test"
LONG = 60.0


def model():
    return OnyxSwitch(
        password=PASSWORD,
        ports={
            "Eth1/1": OnyxPort(
                speed="400G",
                description="gpu-001 eth2",
                receive=OnyxTraffic(packets=11, bytes=2**63, error_packets=13, discard_packets=14, pause_packets=15),
                transmit=OnyxTraffic(packets=21, bytes=22, error_packets=23, discard_packets=24, pause_packets=25),
                ecn_marked_packets=31,
                pfc={3: (41, 42), 4: (43, 44)},
                red_dropped_packets={2: 5, 3: 6},
                neighbours=[OnyxNeighbour("02:00:00:00:00:0A", "eth2", "gpu-001")],
            ),
            "Eth1/2": OnyxPort(
                up=False,
                speed="Unknown",
                receive=OnyxTraffic(bytes=None, pause_packets=None),
                ecn_marked_packets=None,
            ),
        },
    )


@contextlib.asynccontextmanager
async def started(switch=None, given=None, **options):
    """Serve a switch, and yield a reader of it."""
    switch = switch or model()
    given = given or Onyx(username="monitor", password=PASSWORD)
    async with OnyxSimulator(switch) as simulator:
        reader = OnyxReader(Target(name="leaf-2", address=simulator.url, onyx=given, **options), given, LONG)
        reader.switch = switch
        try:
            yield reader
        finally:
            await reader.close()


def rows_of(reading, schema=PORTS):
    """Return the rows of all parts of a schema, by key and ending."""
    found = {}
    for part in reading.parts:
        if part.schema is schema:
            for place, key in enumerate(part.keys):
                row = found.setdefault(key, {})
                values = {ending: column.values[place] for ending, column in part.columns.items()}
                row |= {ending: value for ending, value in values.items() if value is not None}
    return found


def reasons(reading):
    return [(failure.device, failure.reason) for failure in reading.failures]


@pytest.mark.parametrize("shape", ["object", "list"])
@pytest.mark.parametrize("several", [False, True])
async def test_every_value_becomes_its_metric(shape, several):
    switch = model()
    switch.counters_shape, switch.several_results = shape, several
    async with started(switch) as reader:
        reading = await reader.read()
        assert switch.commands[:3] == [COUNTERS, DESCRIPTION, CONGESTION]
    assert reading.failures == []
    found = rows_of(reading)
    assert found["Eth1/1",] == {
        "receive_packets_total": 11,
        "receive_bytes_total": 2**63,
        "receive_errors_total": 13,
        "receive_discards_total": 14,
        "receive_pause_frames_total": 15,
        "transmit_packets_total": 21,
        "transmit_bytes_total": 22,
        "transmit_errors_total": 23,
        "transmit_discards_total": 24,
        "transmit_pause_frames_total": 25,
        "ecn_marked_packets_total": 31,
        "congestion_discards_total": 11,
        "link_up": 1,
        "link_speed_bytes_per_second": 50e9,
        "info": ("leaf-2", "", "gpu-001 eth2", "", "physical"),
    }
    down = found["Eth1/2",]
    absent = {"receive_bytes_total", "receive_pause_frames_total", "ecn_marked_packets_total"}
    assert not down.keys() & (absent | {"link_speed_bytes_per_second"})
    assert (down["link_up"], down["receive_packets_total"], down["info"]) == (0, 0, ("leaf-2", "", "", "", "physical"))


async def test_counters_are_read_at_each_poll_in_one_session():
    async with started() as reader:
        await reader.read()
        reader.switch.ports["Eth1/1"].receive.bytes = 2**63 + 5
        reader.switch.ports["Eth1/1"].ecn_marked_packets = 32
        row = rows_of(await reader.read())["Eth1/1",]
        assert (row["receive_bytes_total"], row["ecn_marked_packets_total"]) == (2**63 + 5, 32)
        assert len(reader.switch.logins) == 1
        reader.switch.sessions.clear()
        await reader.read()
        assert len(reader.switch.logins) == 2
    assert reader.switch.sessions == set()


@pytest.mark.parametrize(
    ("options", "ports"),
    [({"include": ("Eth1/1",)}, {"Eth1/1"}), ({"exclude": ("*1",)}, {"Eth1/2"}), ({"exclude": ("*",)}, set())],
)
async def test_only_selected_ports(options, ports):
    async with started(**options) as reader:
        assert {port for (port,) in rows_of(await reader.read())} == ports


@pytest.mark.parametrize("shape", ["object", "list"])
async def test_a_malformed_port_affects_only_itself(shape):
    switch = model()
    switch.counters_shape = shape
    switch.faults.malformed = "Eth1/2"
    async with started(switch) as reader:
        reading = await reader.read()
    found = rows_of(reading)
    assert found["Eth1/1",]["ecn_marked_packets_total"] == 31
    assert "receive_packets_total" not in found.get(("Eth1/2",), {})
    assert {reason for _, reason in reasons(reading)} == {"malformed"}
    assert {device for device, _ in reasons(reading)} == {COUNTERS, DESCRIPTION, CONGESTION}
    assert all(reader._target.address.removeprefix("http://") in failure.detail for failure in reading.failures)


def replace_reply(monkeypatch, switch, command, reply):
    """Replace the reply to one command."""
    usual = type(switch).answer

    def answer(self, sent):
        return {"executed_command": sent, **reply} if sent == command else usual(self, sent)

    monkeypatch.setattr(type(switch), "answer", answer)


REFUSED = {"status": "ERROR", "status_message": "% Unrecognized command", "data": ""}
UNKNOWN_STRUCTURE = {"status": "OK", "status_message": "", "data": {"Eth1/1": {"Colour": "blue"}}}


@pytest.mark.parametrize(("reply", "reason"), [(REFUSED, "refused"), (UNKNOWN_STRUCTURE, "malformed")])
@pytest.mark.parametrize(
    ("command", "missing", "present"),
    [
        (COUNTERS, "receive_bytes_total", "link_up"),
        (DESCRIPTION, "link_up", "receive_bytes_total"),
        (CONGESTION, "ecn_marked_packets_total", "link_up"),
    ],
)
async def test_a_failed_command_affects_only_its_columns(monkeypatch, command, missing, present, reply, reason):
    async with started() as reader:
        replace_reply(monkeypatch, reader.switch, command, reply)
        for _ in range(2):
            reading = await reader.read()
            row = rows_of(reading)["Eth1/1",]
            assert missing not in row
            assert present in row
            assert reasons(reading) == [(command, reason)]
            assert command in reading.failures[0].detail
        assert len(reader.switch.logins) == 1


async def test_a_switch_that_refuses_everything_has_failed():
    async with started() as reader:
        reader.switch.faults.refuse = "% Not today"
        with pytest.raises(SourceError, match="% Not today") as caught:
            await reader.read()
    assert caught.value.reason == "refused"


async def test_a_switch_without_ports_has_failed():
    async with started() as reader:
        reader.switch.ports.clear()
        with pytest.raises(SourceError, match="reports no Ethernet port") as caught:
            await reader.read()
    assert caught.value.reason == "empty"


async def test_web_pages_instead_of_replies_are_a_failed_login():
    async with started() as reader:
        reader.switch.faults.html = True
        with pytest.raises(SourceError, match=r"json-gw enable") as caught:
            await reader.read()
    assert caught.value.reason == "login"


async def test_a_wrong_password_is_sent_once_and_then_backs_off():
    given = Onyx(username="monitor", password="wrong-" + PASSWORD)
    async with started(given=given) as reader:
        with pytest.raises(SourceError, match="check user and password") as caught:
            await reader.read()
        assert caught.value.reason == "login"
        assert len(reader.switch.logins) == 1
        for _ in range(3):
            with pytest.raises(SourceError, match="so that the account is not locked") as caught:
                await reader.read()
            assert caught.value.reason == "login_backoff"
        assert len(reader.switch.logins) == 1


async def test_a_password_changed_in_its_file_ends_the_backoff(tmp_path):
    file = tmp_path / "password"
    file.write_text("old\n")
    given = Onyx(username="monitor", password_file=str(file))
    async with started(given=given) as reader:
        for _ in range(2):
            with pytest.raises(SourceError):
                await reader.read()
        assert len(reader.switch.logins) == 1
        file.write_text(f"{PASSWORD}\n")
        with pytest.raises(SourceError) as caught:  # the last one with the old password
            await reader.read()
        assert caught.value.reason == "login_backoff"
        assert rows_of(await reader.read())["Eth1/1",]["link_up"] == 1
        assert len(reader.switch.logins) == 2


async def test_a_password_changed_on_the_switch_before_its_file(tmp_path):
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    given = Onyx(username="monitor", password_file=str(file))
    async with started(given=given) as reader:
        await reader.read()
        reader.switch.password = "rotated"
        reader.switch.sessions.clear()
        with pytest.raises(SourceError) as caught:
            await reader.read()
        assert caught.value.reason == "login"
        file.write_text("rotated")
        with pytest.raises(SourceError):
            await reader.read()
        assert ("Eth1/1",) in rows_of(await reader.read())


@pytest.mark.parametrize(
    ("given", "reason", "text"),
    [
        ({"password_file": "/nowhere/password"}, "credentials", "/nowhere/password: the secret cannot be read"),
        ({"password_env": "FABRIC_NOT_SET"}, "credentials", "FABRIC_NOT_SET: the secret is empty or not set"),
    ],
)
async def test_an_unreadable_password_is_reported_with_its_place(given, reason, text):
    async with started(given=Onyx(username="monitor", **given)) as reader:
        with pytest.raises(SourceError, match=text) as caught:
            await reader.read()
        assert reader.switch.requests == 0
    assert caught.value.reason == reason


@pytest.mark.parametrize("content", [None, "no certificate"])
async def test_an_invalid_ca_file_is_named(tmp_path, content):
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    given = Onyx(username="monitor", password=PASSWORD, ca_file=str(file))
    reader = OnyxReader(Target(name="leaf-2", address="127.0.0.1", onyx=given), given, LONG)
    with pytest.raises(SourceError, match=f"leaf-2: ca_file {file}: .*; name a PEM file of CAs") as caught:
        await reader.read()
    assert caught.value.reason == "configuration"
    await reader.close()


async def test_a_slow_switch_is_a_timeout(monkeypatch):
    usual = OnyxClient
    monkeypatch.setattr(reader_module, "OnyxClient", lambda *args, **more: usual(*args, **(more | {"timeout": 0.05})))
    async with started() as reader:
        reader.switch.faults.delay = LONG
        with pytest.raises(SourceError, match=r"127\.0\.0\.1.*no complete response within 0\.05 s") as caught:
            await reader.read()
        reader.switch.faults.delay = 0.0
    assert caught.value.reason == "timeout"


async def test_an_unreachable_switch_recovers():
    given = Onyx(username="monitor", password=PASSWORD)
    async with OnyxSimulator(model()) as simulator:
        address = simulator.url
    reader = OnyxReader(Target(name="leaf-2", address=address, onyx=given), given, LONG)
    for _ in range(3):
        with pytest.raises(SourceError, match="not connected") as caught:
            await reader.read()
        assert caught.value.reason == "unreachable"
    async with OnyxSimulator(model(), port=int(address.rpartition(":")[2])):
        assert ("Eth1/1",) in rows_of(await reader.read())
        await reader.close()


async def test_no_password_is_logged_or_part_of_an_error(caplog, tmp_path):
    """Not where the switch quotes it, not in the context of an error, not in any log line."""
    for logger in ("", "httpx", "httpcore"):  # the daemon disables the last two
        caplog.set_level(logging.DEBUG, logger)
    file = tmp_path / "password"
    file.write_text("wrong-" + PASSWORD)
    texts = []
    async with started(given=Onyx(username="monitor", password_file=str(file))) as reader:
        for fault in ("none", "html", "redirect", "no_json_login"):
            reader.switch.faults.html = fault == "html"
            reader.switch.faults.redirect = "http://192.0.2.1" if fault == "redirect" else None
            reader.switch.faults.no_json_login = fault == "no_json_login"
            await reader.close()
            with pytest.raises(SourceError) as caught:
                await reader.read()
            error = caught.value
            while error is not None:
                texts.append(f"{error!r} {error}")
                error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        texts.append(repr(reader._client))
    texts += [record.getMessage() for record in caplog.records]
    assert len(texts) > 5
    assert PASSWORD not in "\n".join(texts)


async def test_the_reader_works_after_a_cancelled_poll():
    async with started() as reader:
        reader.switch.faults.delay = LONG
        reading = asyncio.create_task(reader.read())
        async with asyncio.timeout(LONG):
            while not reader.switch.requests:  # noqa: ASYNC110  # the model has no event
                await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        reader.switch.faults.delay = 0.0
        await reader.close()
        assert ("Eth1/1",) in rows_of(await reader.read())


async def test_replies_are_parsed_in_a_thread(monkeypatch):
    threads = set()

    def watched(data):
        threads.add(threading.current_thread())
        return parse_counters(data)

    monkeypatch.setattr(reader_module, "parse_counters", watched)
    async with started() as reader:
        await reader.read()
    assert threads
    assert threading.current_thread() not in threads


@pytest.mark.parametrize("shape", ["object", "text"])
async def test_pfc_counters_by_priority(shape):
    """`Rx` are the frames that the port received, with which its peer paused it."""
    switch = model()
    switch.lossless, switch.pfc_shape = (3, 4), shape
    async with started(switch) as reader:
        reading = await reader.read()
    assert reading.failures == []
    assert rows_of(reading, PRIORITIES) == {
        ("Eth1/1", "3"): {"receive_pfc_frames_total": 41, "transmit_pfc_frames_total": 42},
        ("Eth1/1", "4"): {"receive_pfc_frames_total": 43, "transmit_pfc_frames_total": 44},
        ("Eth1/2", "3"): {"receive_pfc_frames_total": 0, "transmit_pfc_frames_total": 0},
        ("Eth1/2", "4"): {"receive_pfc_frames_total": 0, "transmit_pfc_frames_total": 0},
    }
    assert [one for one in switch.commands if "pfc prio" in one] == [pfc(3), pfc(4)]
    assert reading.families[Family.PFC] is Support.COUNTED


def pfc(priority):
    return f"show interfaces ethernet counters pfc prio {priority}"


async def test_all_priorities_are_read_where_the_lossless_ones_are_unknown():
    switch = model()
    switch.faults.unsupported.add(LOSSLESS)
    async with started(switch) as reader:
        reading = await reader.read()
    assert [one for one in switch.commands if "pfc prio" in one] == [pfc(priority) for priority in range(8)]
    assert reading.failures == []


async def test_a_priority_that_cannot_be_read_or_is_no_longer_lossless_is_absent(stopped_clock):
    clock = stopped_clock(reader_module, schedule_module, rows_module)
    switch = model()
    switch.lossless = (3, 4)
    async with started(switch) as reader:
        await reader.read()
        switch.faults.replies[pfc(3)] = "broken"
        clock.now += LONG
        assert {priority for _, priority in rows_of(await reader.read(), PRIORITIES)} == {"4"}
        switch.faults.replies.clear()
        clock.now += LONG
        assert {priority for _, priority in rows_of(await reader.read(), PRIORITIES)} == {"3", "4"}
        switch.lossless = (4,)
        clock.now += 300
        await reader.read()
        clock.now += LONG
        assert {priority for _, priority in rows_of(await reader.read(), PRIORITIES)} == {"4"}


async def test_priorities_with_pfc_of_each_port(stopped_clock):
    clock = stopped_clock(reader_module, schedule_module, rows_module)
    switch = model()
    switch.lossless = (3, 4)
    async with started(switch) as reader:
        on = {"settings_info": ("", "", "3,4", "", "")}
        assert rows_of(await reader.read(), SETTINGS) == {("Eth1/1",): on, ("Eth1/2",): on}
        head = {"PFC": "enabled", "Priority Enabled List": "3", "Priority Disabled List": "0 1 2 4 5 6 7"}
        off = [{"Eth1/1": [{"PFC admin": "Auto", "PFC oper": "Disabled"}]}, {"Eth1/2": [{"PFC admin": "on"}]}]
        switch.faults.replies[LOSSLESS] = [head, *off, {"Po1": [{"PFC oper": "Enabled"}]}]
        clock.now += 300
        await reader.read()
        clock.now += LONG
        assert rows_of(await reader.read(), SETTINGS) == {("Eth1/1",): {"settings_info": ("", "", "none", "", "")}}


async def test_disabled_pfc_is_not_counted():
    switch = model()
    switch.lossless = ()
    async with started(switch) as reader:
        reading = await reader.read()
    assert rows_of(reading, PRIORITIES) == {}
    assert not any("pfc prio" in one for one in switch.commands)
    assert reading.families[Family.PFC] is Support.NOT_COUNTED


async def test_a_release_without_pfc_counters_is_tried_rarely(stopped_clock):
    clock = stopped_clock(reader_module, schedule_module, rows_module)
    switch = model()
    switch.faults.unsupported.add(pfc(3))
    async with started(switch) as reader:
        for _ in range(3):
            reading = await reader.read()
            assert reading.failures == []
            assert reading.families[Family.PFC] is Support.UNSUPPORTED
            clock.now += LONG
        assert switch.commands.count(pfc(3)) == 1
        switch.faults.unsupported.clear()
        clock.now += 300
        assert (await reader.read()).families[Family.PFC] is Support.COUNTED


async def test_an_unknown_structure_is_reported_and_logged_once(caplog):
    switch = model()
    switch.faults.replies[pfc(3)] = {"Eth1/1": {"colour": f"blue {PASSWORD}"}}
    async with started(switch) as reader:
        for _ in range(2):
            reading = await reader.read()
            assert reasons(reading) == [(pfc(3), "malformed")]
            assert reading.families[Family.PFC] is Support.FAILED
    (record,) = [one for one in caplog.records if "unknown structure" in one.getMessage()]
    assert "'colour': 'blue ***'" in record.getMessage()


async def test_red_drops_of_queues():
    async with started() as reader:
        reading = await reader.read()
    assert rows_of(reading, QUEUES) == {
        ("Eth1/1", "2"): {"queue_early_discards_total": 5},
        ("Eth1/1", "3"): {"queue_early_discards_total": 6},
    }


async def test_ecn_marks_have_the_time_at_which_they_were_read(stopped_clock):
    clock = stopped_clock(reader_module, schedule_module, rows_module)
    async with started() as reader:
        usual = reader._read_ports

        async def slow(poll):
            original = poll.client.show

            async def show(command):
                clock.now += 2
                return await original(command)

            poll.client.show = show
            await usual(poll)

        reader._read_ports = slow
        reading = await reader.read()
    times = {part.aspect: part.time for part in reading.parts if part.schema is PORTS}
    assert times["congestion"] - times[""] == 4


@pytest.mark.parametrize("is_old", [False, True])
async def test_neighbours_by_both_commands(is_old):
    switch = model()
    if is_old:
        switch.faults.unsupported.add(NEIGHBOURS[0])
    async with started(switch) as reader:
        reading = await reader.read()
        reader.invalidate_neighbours("")
        await reader.read()
        assert switch.commands.count(NEIGHBOURS[0]) == (1 if is_old else 2), "an unsupported command is run once"
    assert reading.neighbours == [
        LldpNeighbour("Eth1/1", chassis="02:00:00:00:00:0a", peer_port="eth2", name="gpu-001")
    ]
    assert reading.families[Family.LLDP] is Support.COUNTED
    assert reading.failures == []


async def test_a_port_may_have_several_neighbours_and_a_switch_none():
    switch = model()
    switch.ports["Eth1/1"].neighbours.append(OnyxNeighbour("02:00:00:00:00:0b", "eth3", "gpu-002"))
    async with started(switch) as reader:
        assert [one.name for one in (await reader.read()).neighbours] == ["gpu-001", "gpu-002"]
        switch.ports["Eth1/1"].neighbours.clear()
        reader.invalidate_neighbours("Eth1/1")
        reading = await reader.read()
        assert reading.neighbours == []
        assert reading.failures == []


async def test_neighbours_of_excluded_ports_are_dropped():
    async with started(exclude=("Eth1/1",)) as reader:
        assert (await reader.read()).neighbours == []


async def test_neighbours_are_not_read_without_lldp():
    async with started(lldp=False) as reader:
        reading = await reader.read()
        assert not any("remote" in one for one in reader.switch.commands)
    assert reading.neighbours is None
    assert Family.LLDP not in reading.families


async def test_facts_about_the_switch():
    switch = model()
    switch.name = "leaf-02"
    async with started(switch) as reader:
        device = (await reader.read()).device
    assert (device.name, device.model, device.version) == ("leaf-02", "x86onie", "Onyx 3.10.4206")
    assert (device.description, device.chassis) == ("Simulated x86onie", "02:00:00:00:00:aa")


async def test_the_uptime_is_that_of_now(stopped_clock):
    clock = stopped_clock(reader_module, schedule_module, rows_module)
    switch = model()
    switch.uptime = 90_061.5  # 1d 1h 1m 1.5s
    async with started(switch) as reader:
        assert (await reader.read()).device.uptime == 90_061.5
        clock.now += LONG
        switch.commands.clear()
        assert (await reader.read()).device.uptime == 90_061.5 + LONG
        assert "show version" not in switch.commands


async def test_the_uptime_is_read_again_after_a_poll_without_a_response(stopped_clock):
    clock = stopped_clock(reader_module, schedule_module, rows_module)
    async with started() as reader:
        await reader.read()
        reader.switch.faults.refuse = "% The system is starting"
        with pytest.raises(SourceError):
            await reader.read()
        reader.switch.faults.refuse, reader.switch.uptime = None, 12.0
        clock.now += LONG
        assert (await reader.read()).device.uptime == 12.0


async def test_a_version_without_a_response_is_not_read_at_each_poll(monkeypatch, stopped_clock):
    clock = stopped_clock(reader_module, schedule_module, rows_module)
    monkeypatch.setattr(OnyxClient, "show", _hanging_at("show version", OnyxClient.show))
    async with started() as reader:
        reader._budget = 0.5
        reading = await reader.read()
        assert ("", "timeout") in reasons(reading)
        assert reading.device.uptime is None
        clock.now += LONG
        assert reasons(await reader.read()) == []


def _hanging_at(command, show):
    async def hanging(client, given):
        if given == command:
            await asyncio.Event().wait()
        return await show(client, given)

    return hanging


async def test_commands_that_do_not_fit_into_a_poll_are_run_in_turn(monkeypatch, stopped_clock):
    """Seven seconds per command, a poll of 51: three commands for ports, then as many others as fit."""
    clock = stopped_clock(reader_module, schedule_module, rows_module)
    switch = model()
    switch.lossless = (0, 1, 2, 3, 4, 5)
    usual = OnyxSwitch.answer

    def answer(self, command):
        clock.now += 7
        return usual(self, command)

    monkeypatch.setattr(OnyxSwitch, "answer", answer)
    other_commands = []
    async with started(switch) as reader:
        for _ in range(6):
            begun = clock.now
            switch.commands.clear()
            reading = await reader.read()
            assert reading.failures == []
            assert switch.commands[:3] == [COUNTERS, DESCRIPTION, CONGESTION]
            assert clock.now - begun <= LONG
            other_commands += switch.commands[3:]
            clock.now = begun + LONG
    assert {pfc(priority) for priority in range(6)} <= set(other_commands)
    assert "show version" in other_commands
    assert NEIGHBOURS[0] in other_commands
    part = next(part for part in reading.parts if part.schema is PRIORITIES)
    assert len(set(part.times)) == 6, "each priority has the time at which it was read"


async def test_a_command_that_is_too_late_does_not_affect_those_before_it(monkeypatch, stopped_clock):
    clock = stopped_clock(reader_module, schedule_module, rows_module)
    usual = OnyxSwitch.answer

    def answer(self, command):
        if command == DESCRIPTION:  # the next command gets no response, and little time is left for it
            self.faults.delay = LONG
            clock.now += LONG
        return usual(self, command)

    async with started() as reader:
        await reader.read()
        monkeypatch.setattr(OnyxSwitch, "answer", answer)
        reading = await reader.read()
        reader.switch.faults.delay = 0.0
    assert rows_of(reading)["Eth1/1",]["receive_bytes_total"] == 2**63
    assert reasons(reading) == [("", "timeout")]
    assert "the interval is over" in reading.failures[0].detail


# --- with source and poller, as in the daemon


@contextlib.asynccontextmanager
async def polled(switch, certificate=None, **given):
    """Serve a switch, and yield its poller."""
    async with OnyxSimulator(switch, certificate=certificate) as simulator:
        options = Onyx(**({"username": "monitor", "password": PASSWORD} | given))
        target = Target(name="target-1", address=simulator.url, onyx=options)
        source = SwitchSource(target, LONG, [make_reader(target, "onyx", LONG)], SwitchRegistry())
        try:
            yield Poller(source, [rates.step])
        finally:
            await source.close()


def exported(poller):
    """Return the exported values by name and labels."""
    found = {}
    for table in poller.fresh_tables():
        for column in table.columns.values():
            for key, value in zip(table.rows.keys, column.values, strict=True):
                if value is not None:
                    assert (column.metric.name, key) not in found, "a series is exported once"
                    found[column.metric.name, key] = value
    return found


async def test_metrics_have_the_name_of_the_switch():
    switch = model()
    switch.name = "leaf-02"
    async with polled(switch) as poller:
        await poller.poll()
        found = exported(poller)
    assert found["fabric_switch_receive_bytes_total", ("leaf-02", "Eth1/1")] == 2**63
    assert found["fabric_switch_ecn_marked_packets_total", ("leaf-02", "Eth1/1")] == 31
    assert found["fabric_switch_transmit_pfc_frames_total", ("leaf-02", "Eth1/1", "3")] == 42
    assert found["fabric_switch_family_info", ("leaf-02", "pfc")] == ("counted",)
    assert poller.status.up is True


@pytest.mark.parametrize(
    ("fault", "reason", "text"),
    [
        ("password", "login", "log-in refused"),
        ("html", "login", r"HTTP 200 with an HTML page"),
        ("slow", "timeout", "no complete response within 0.3 s"),
        ("refuse", "refused", "Not today"),
    ],
)
async def test_errors_are_in_the_status_and_the_account_is_not_locked(fault, reason, text, caplog):
    switch = model()
    if fault == "password":
        switch.password = "another"
    switch.faults.html = fault == "html"
    switch.faults.delay = 3600.0 if fault == "slow" else 0.0
    switch.faults.refuse = "% Not today" if fault == "refuse" else None
    async with polled(switch, timeout=0.3 if fault == "slow" else 30.0) as poller:
        await poller.poll()
        assert (poller.status.up, poller.status.reason) == (False, reason)
        for _ in range(3):
            await poller.poll()
        assert len(switch.logins) <= 1
        switch.faults.delay = 0.0
    assert PASSWORD not in caplog.text
    assert any(re.search(text, record.getMessage()) for record in caplog.records)


async def test_an_expired_session_is_renewed_without_a_failure():
    switch = model()
    async with polled(switch) as poller:
        for _ in range(3):
            await poller.poll()
            switch.sessions.clear()
            assert (poller.status.up, poller.status.failures) == (True, {})
    assert len(switch.logins) == 3


async def test_an_untrusted_certificate_is_reported_and_nothing_is_sent(tmp_path, caplog):
    path, ca_file = tmp_path / "switch.pem", tmp_path / "ca.pem"
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(path)
    authority.cert_pem.write_to_path(ca_file)
    switch = model()
    async with polled(switch, path) as poller:
        await poller.poll()
        assert (poller.status.up, poller.status.reason) == (False, "unreachable")
    assert switch.requests == 0
    assert any("give the switch's CA as ca_file" in record.getMessage() for record in caplog.records)
    async with polled(switch, path, ca_file=str(ca_file)) as poller:
        await poller.poll()
        assert poller.status.up is True
