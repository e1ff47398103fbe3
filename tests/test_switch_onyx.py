"""Switches by Onyx's JSON API: what three commands say becomes what is exported, and what goes wrong with each."""

import asyncio
import contextlib
import logging
import threading

import pytest

from exporter.rest import onyx as client_module
from exporter.simulator.onyx import OnyxPort, OnyxSimulator, OnyxSwitch, OnyxTraffic
from exporter.source import SourceError
from exporter.sources.switches import onyx as reader_module
from exporter.sources.switches.onyx import CONGESTION, COUNTERS, DESCRIPTION, OnyxReader
from exporter.sources.switches.options import Onyx, Target

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
    """Serve a switch, and give a reader of it."""
    switch = switch or model()
    given = given or Onyx(username="monitor", password=PASSWORD)
    async with OnyxSimulator(switch) as simulator:
        reader = OnyxReader(Target(name="leaf-2", address=simulator.url, onyx=given, **options), given, LONG)
        reader.switch = switch
        try:
            yield reader
        finally:
            await reader.close()


def rows_of(reading):
    (table,) = reading.parts
    found = {}
    for place, key in enumerate(table.keys):
        values = {ending: column.values[place] for ending, column in table.columns.items()}
        found[key] = {ending: value for ending, value in values.items() if value is not None}
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
        assert switch.commands == [COUNTERS, DESCRIPTION, CONGESTION]
    assert reading.failures == []
    found = rows_of(reading)
    assert found["leaf-2", "Eth1/1"] == {
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
        "link_up": 1,
        "link_speed_bytes_per_second": 50e9,
        "info": ("leaf-2", "", "gpu-001 eth2", ""),
    }
    down = found["leaf-2", "Eth1/2"]
    absent = {"receive_bytes_total", "receive_pause_frames_total", "ecn_marked_packets_total"}
    assert not down.keys() & (absent | {"link_speed_bytes_per_second"})
    assert (down["link_up"], down["receive_packets_total"], down["info"]) == (0, 0, ("leaf-2", "", "", ""))


async def test_what_moves_is_seen_and_one_session_is_enough():
    async with started() as reader:
        await reader.read()
        reader.switch.ports["Eth1/1"].receive.bytes = 2**63 + 5
        reader.switch.ports["Eth1/1"].ecn_marked_packets = 32
        row = rows_of(await reader.read())["leaf-2", "Eth1/1"]
        assert (row["receive_bytes_total"], row["ecn_marked_packets_total"]) == (2**63 + 5, 32)
        assert len(reader.switch.logins) == 1
        reader.switch.expire_sessions()
        await reader.read()
        assert len(reader.switch.logins) == 2
    assert reader.switch.logouts == 1


@pytest.mark.parametrize(
    ("options", "ports"),
    [({"include": ("Eth1/1",)}, {"Eth1/1"}), ({"exclude": ("*1",)}, {"Eth1/2"}), ({"exclude": ("*",)}, set())],
)
async def test_only_ports_that_are_wanted(options, ports):
    async with started(**options) as reader:
        assert {port for _, port in rows_of(await reader.read())} == ports


@pytest.mark.parametrize("shape", ["object", "list"])
async def test_a_malformed_port_costs_itself(shape):
    switch = model()
    switch.counters_shape = shape
    switch.faults.malformed = "Eth1/2"
    async with started(switch) as reader:
        reading = await reader.read()
    found = rows_of(reading)
    assert found["leaf-2", "Eth1/1"]["ecn_marked_packets_total"] == 31
    assert "receive_packets_total" not in found.get(("leaf-2", "Eth1/2"), {})
    assert {reason for _, reason in reasons(reading)} == {"malformed"}
    assert {device for device, _ in reasons(reading)} == {COUNTERS, DESCRIPTION, CONGESTION}
    assert all(reader._target.address.removeprefix("http://") in failure.detail for failure in reading.failures)


def answering(monkeypatch, switch, command, reply):
    """Have one command answered otherwise."""
    usual = type(switch).answer

    def answer(self, asked):
        return {"executed_command": asked, **reply} if asked == command else usual(self, asked)

    monkeypatch.setattr(type(switch), "answer", answer)


REFUSED = {"status": "ERROR", "status_message": "% Unrecognized command", "data": ""}
SHAPELESS = {"status": "OK", "status_message": "", "data": {"Eth1/1": {"Colour": "blue"}}}


@pytest.mark.parametrize(("reply", "reason"), [(REFUSED, "refused"), (SHAPELESS, "malformed")])
@pytest.mark.parametrize(
    ("command", "lost", "left"),
    [
        (COUNTERS, "receive_bytes_total", "link_up"),
        (DESCRIPTION, "link_up", "receive_bytes_total"),
        (CONGESTION, "ecn_marked_packets_total", "link_up"),
    ],
)
async def test_a_command_that_fails_costs_its_columns_alone(monkeypatch, command, lost, left, reply, reason):
    async with started() as reader:
        answering(monkeypatch, reader.switch, command, reply)
        for _ in range(2):
            reading = await reader.read()
            row = rows_of(reading)["leaf-2", "Eth1/1"]
            assert lost not in row
            assert left in row
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
        with pytest.raises(SourceError, match="has no Ethernet port to show") as caught:
            await reader.read()
    assert caught.value.reason == "empty"


async def test_web_pages_in_place_of_replies_are_a_failed_log_in():
    async with started() as reader:
        reader.switch.faults.html = True
        with pytest.raises(SourceError, match=r"json-gw enable") as caught:
            await reader.read()
    assert caught.value.reason == "login"


async def test_a_wrong_password_is_told_once_and_then_rests_so_that_no_account_is_locked():
    given = Onyx(username="monitor", password="wrong-" + PASSWORD)
    async with started(given=given) as reader:
        with pytest.raises(SourceError, match="check user and password") as caught:
            await reader.read()
        assert caught.value.reason == "login"
        assert len(reader.switch.logins) == 1
        for _ in range(3):
            with pytest.raises(SourceError, match="so that the account is not locked") as caught:
                await reader.read()
            assert caught.value.reason == "login_rest"
        assert len(reader.switch.logins) == 1


async def test_a_password_that_was_changed_in_its_file_ends_the_rest(tmp_path):
    file = tmp_path / "password"
    file.write_text("old\n")
    given = Onyx(username="monitor", password_file=str(file))
    async with started(given=given) as reader:
        for _ in range(2):
            with pytest.raises(SourceError):
                await reader.read()
        assert len(reader.switch.logins) == 1
        file.write_text(f"{PASSWORD}\n")
        with pytest.raises(SourceError) as caught:  # the last of the old
            await reader.read()
        assert caught.value.reason == "login_rest"
        assert rows_of(await reader.read())["leaf-2", "Eth1/1"]["link_up"] == 1
        assert len(reader.switch.logins) == 2


async def test_a_password_that_is_rotated_on_the_switch_first(tmp_path):
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    given = Onyx(username="monitor", password_file=str(file))
    async with started(given=given) as reader:
        await reader.read()
        reader.switch.password = "rotated"
        reader.switch.expire_sessions()
        with pytest.raises(SourceError) as caught:
            await reader.read()
        assert caught.value.reason == "login"
        file.write_text("rotated")
        with pytest.raises(SourceError):
            await reader.read()
        assert ("leaf-2", "Eth1/1") in rows_of(await reader.read())


@pytest.mark.parametrize(
    ("given", "reason", "says"),
    [
        ({"password_file": "/nowhere/password"}, "credentials", "/nowhere/password: the secret cannot be read"),
        ({"password_env": "FABRIC_NOT_SET"}, "credentials", "FABRIC_NOT_SET: the secret is empty or not set"),
    ],
)
async def test_a_password_that_cannot_be_had_names_its_place(given, reason, says):
    async with started(given=Onyx(username="monitor", **given)) as reader:
        with pytest.raises(SourceError, match=says) as caught:
            await reader.read()
        assert reader.switch.requests == 0
    assert caught.value.reason == reason


@pytest.mark.parametrize("content", [None, "no certificate"])
async def test_a_file_of_trust_that_is_none_is_named(tmp_path, content):
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    given = Onyx(username="monitor", password=PASSWORD, ca_file=str(file))
    reader = OnyxReader(Target(name="leaf-2", address="127.0.0.1", onyx=given), given, LONG)
    with pytest.raises(SourceError, match=f"leaf-2: ca_file {file}: .*; name a PEM file of CAs") as caught:
        await reader.read()
    assert caught.value.reason == "configuration"
    await reader.close()


async def test_a_switch_that_takes_too_long_is_a_timeout(monkeypatch):
    usual = client_module.OnyxClient
    monkeypatch.setattr(
        "exporter.sources.switches.onyx.OnyxClient", lambda *args, **more: usual(*args, timeout=0.05, **more)
    )
    async with started() as reader:
        reader.switch.faults.delay = LONG
        with pytest.raises(SourceError, match=r"127\.0\.0\.1.*no complete answer within 0\.05 s") as caught:
            await reader.read()
        reader.switch.faults.delay = 0.0
    assert caught.value.reason == "timeout"


async def test_nothing_that_listens_is_unreachable_and_heals():
    given = Onyx(username="monitor", password=PASSWORD)
    async with OnyxSimulator(model()) as simulator:
        address = simulator.url
    reader = OnyxReader(Target(name="leaf-2", address=address, onyx=given), given, LONG)
    for _ in range(3):
        with pytest.raises(SourceError, match="not connected") as caught:
            await reader.read()
        assert caught.value.reason == "unreachable"
    async with OnyxSimulator(model(), port=int(address.rpartition(":")[2])):
        assert ("leaf-2", "Eth1/1") in rows_of(await reader.read())
        await reader.close()


async def test_no_password_is_ever_shown(caplog, tmp_path):
    """Not by a switch that quotes it, not in an error's chain, not in any log line."""
    for logger in ("", "httpx", "httpcore"):  # the daemon quietens the last two
        caplog.set_level(logging.DEBUG, logger)
    file = tmp_path / "password"
    file.write_text("wrong-" + PASSWORD)
    shown = []
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
                shown.append(f"{error!r} {error}")
                error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        shown.append(repr(reader._client))
    shown += [record.getMessage() for record in caplog.records]
    assert len(shown) > 5
    assert PASSWORD not in "\n".join(shown)


async def test_a_read_that_is_cancelled_leaves_a_reader_that_reads():
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
        assert ("leaf-2", "Eth1/1") in rows_of(await reader.read())


async def test_replies_are_read_off_the_loop(monkeypatch):
    threads = set()

    def watched(data):
        threads.add(threading.current_thread())
        return client_module.parse_counters(data)

    monkeypatch.setattr(reader_module, "parse_counters", watched)
    async with started() as reader:
        await reader.read()
    assert threads
    assert threading.current_thread() not in threads
