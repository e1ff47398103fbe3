"""Reader of NVUE: responses become rows with their own times, and failures affect only their own rows."""

import asyncio
import contextlib
import re

import pytest
import trustme

from exporter.core.poller import Poller
from exporter.core.source import SourceError
from exporter.meaning.ports import rates
from exporter.sources.switch import round_robin as schedule_module
from exporter.sources.switch.merge import Family, Support
from exporter.sources.switch.metrics import (
    LANES,
    MODULES,
    PORTS,
    PRIORITIES,
    PRIORITY_GROUPS,
    QUEUES,
)
from exporter.sources.switch.options import Nvue, Target
from exporter.sources.switch.readers.nvue import reader as reader_module
from exporter.sources.switch.readers.nvue import rows as rows_module
from exporter.sources.switch.readers.nvue.reader import NvueReader
from exporter.sources.switch.registry import SwitchRegistry
from exporter.sources.switch.settings_metrics import SETTINGS
from exporter.sources.switch.source import SwitchSource, make_reader
from exporter.switch_api.neighbour import LldpNeighbour
from exporter.switch_api.nvue import parser
from exporter.switch_api.nvue.client import NvueClient
from exporter.switch_api.port_settings import PortSettings
from tests.simulators.nvue import (
    NvueNeighbour,
    NvuePort,
    NvueSimulator,
    NvueSwitch,
)

PASSWORD = "s3cret-of-a-test"
LONG = 60.0
STATS = {
    "carrier-transitions": 3,
    "in-bytes": 2**63,
    "in-pkts": 12,
    "in-errors": 13,
    "in-drops": 14,
    "out-bytes": 21,
    "out-pkts": 22,
    "out-errors": 23,
    "out-drops": 24,
}
QUEUE = {"tx-frames": 31, "tx-bytes": 32, "ecn-marked-frames": 33, "tx-uc-buffer-discards": 34, "wred-discards": 35}


def model():
    return NvueSwitch(
        password=PASSWORD,
        ports={
            "swp1": NvuePort(
                description="gpu-001 rail 0",
                stats=dict(STATS),
                pfc={3: (41, 42), 4: (0, 0)},
                queues={0: dict.fromkeys(QUEUE, 1), 3: dict(QUEUE)},
                groups={3: {"rx-frames": 51, "rx-buffer-discards": 52}},
                neighbours=[NvueNeighbour("02:00:00:00:00:0A", "eth0", "gpu-001", "192.0.2.7")],
                module={"temperature": "42.56 degrees C / 108.61 degrees F", "voltage": "3.2888 V",
                        "ch-1-rx-power": "1.0000 mW / 0.00 dBm", "ch-1-tx-power": "0.0000 mW / -inf dBm",
                        "ch-1-tx-bias-current": "6.750 mA"},
            ),
            "swp2": NvuePort(up=False, stats={"in-bytes": 5}, pfc={3: (7, 8)}, queues={3: {"tx-frames": 9}}),
        },
    )  # fmt: skip


def options(**given):
    return Nvue(**({"username": "monitor", "password": PASSWORD} | given))


@contextlib.asynccontextmanager
async def started(switch=None, given=None, interval=LONG, **target):
    """Serve a switch, and yield a reader of it."""
    switch = switch or model()
    given = given or options()
    async with NvueSimulator(switch) as simulator:
        made = NvueReader(Target(name="target-1", address=simulator.url, nvue=given, **target), given, interval)
        made.switch = switch
        try:
            yield made
        finally:
            await made.close()


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


@pytest.mark.parametrize("shape", ["object", "list", "wrapped"])
@pytest.mark.parametrize("numbers", ["number", "text", "value"])
@pytest.mark.parametrize("path", ["counters/qos", "qos/counters"])
async def test_every_value_becomes_its_metric(shape, numbers, path):
    switch = model()
    switch.shape, switch.numbers, switch.qos_path = shape, numbers, path
    async with started(switch) as one:
        reading = await one.read()
    assert reading.failures == []
    assert rows_of(reading)["swp1",] == {
        "receive_bytes_total": 2**63,
        "receive_packets_total": 12,
        "receive_errors_total": 13,
        "receive_discards_total": 14,
        "transmit_bytes_total": 21,
        "transmit_packets_total": 22,
        "transmit_errors_total": 23,
        "transmit_discards_total": 24,
        "ecn_marked_packets_total": 34,
        "congestion_discards_total": 71,
        "link_up": 1,
        "link_speed_bytes_per_second": 50e9,
        "info": ("target-1", "2", "gpu-001 rail 0", "", "physical"),
    }
    assert rows_of(reading)["swp2",] == {
        "receive_bytes_total": 5,
        "link_up": 0,
        "info": ("target-1", "3", "", "", "physical"),
    }
    assert rows_of(reading, PRIORITIES) == {
        ("swp1", "3"): {"receive_pfc_frames_total": 41, "transmit_pfc_frames_total": 42},
        ("swp1", "4"): {"receive_pfc_frames_total": 0, "transmit_pfc_frames_total": 0},
        ("swp2", "3"): {"receive_pfc_frames_total": 7, "transmit_pfc_frames_total": 8},
    }
    assert rows_of(reading, QUEUES)["swp1", "3"] == {
        "queue_transmit_packets_total": 31,
        "queue_transmit_bytes_total": 32,
        "queue_ecn_marked_packets_total": 33,
        "queue_full_discards_total": 34,
        "queue_early_discards_total": 35,
    }
    assert rows_of(reading, QUEUES)["swp2", "3"] == {"queue_transmit_packets_total": 9}
    assert rows_of(reading, PRIORITY_GROUPS) == {("swp1", "3"): {"priority_group_discards_total": 52}}
    counted = (Family.TRAFFIC, Family.ERRORS, Family.PFC, Family.ECN, Family.QUEUES, Family.BUFFERS, Family.LLDP)
    assert reading.families == dict.fromkeys(counted, Support.COUNTED)
    assert (reading.device.name, reading.device.version) == ("leaf01", "Cumulus Linux 5.9.1")
    assert reading.device.uptime == 86400.0


async def test_configuration_of_ports():
    async with started() as reader:
        found = rows_of(await reader.read(), SETTINGS)
    assert found["swp1",] == found["swp2",] == {"mtu_bytes": 9216, "settings_info": ("on", "rs", "", "", "")}


@pytest.mark.parametrize(
    ("link", "settings"),
    [
        ({"mtu": 1500, "fec": "off", "auto-negotiate": "off"}, PortSettings(mtu=1500, fec="none", autoneg=False)),
        ({"mtu": "9216", "fec": "baser", "auto-negotiate": {}}, PortSettings(mtu=9216, fec="baser")),
        ({"mtu": 65575, "fec": "something new"}, PortSettings()),
        ({"mtu": None, "fec": None}, PortSettings()),
        ({}, PortSettings()),
    ],
)
def test_configuration_in_other_forms(link, settings):
    assert parser.parse_interfaces({"swp1": {"link": link}}).ports["swp1"].settings == settings


@pytest.mark.parametrize("inside", [True, False])
async def test_neighbours_inside_interfaces_or_port_by_port(inside):
    switch = model()
    switch.shows_neighbours = inside
    async with started(switch) as one:
        reading = await one.read()
    assert reading.neighbours == [
        LldpNeighbour(
            "swp1",
            "02:00:00:00:00:0a",
            "eth0",
            "gpu-001",
            "",
            "Simulated",
            frozenset({"station"}),
            ("192.0.2.7",),
        )
    ]
    paths = [path for path in switch.paths if path.endswith("/lldp")]
    assert paths == ([] if inside else ["interface/swp1/lldp"]), "a port without a link has no neighbour"


async def test_neighbours_and_modules_are_read_rarely_and_after_a_trap(stopped_clock):
    clock = stopped_clock(reader_module, schedule_module, rows_module)
    switch = model()
    switch.shows_neighbours = False
    async with started(switch, optics=True) as one:
        for _ in range(3):
            await one.read()
            clock.now += LONG
        slow = [path for path in switch.paths if path.endswith(("/lldp", "/transceiver"))]
        assert sorted(slow) == ["interface/swp1/lldp", "interface/swp1/transceiver", "interface/swp2/transceiver"]
        one.invalidate_neighbours("swp1")
        await one.read()
        assert switch.paths.count("interface/swp1/lldp") == 2
        clock.now += 300
        await one.read()
        assert switch.paths.count("interface/swp1/transceiver") == 2


async def test_modules_are_read_with_optics():
    async with started(optics=True) as one:
        reading = await one.read()
    assert rows_of(reading, MODULES) == {
        ("swp1",): {"module_temperature_celsius": 42.56, "module_voltage_volts": 3.2888}
    }
    lane = rows_of(reading, LANES)["swp1", "1"]
    assert lane["module_lane_receive_power_watts"] == pytest.approx(0.001)
    assert lane["module_lane_transmit_power_watts"] == 0.0
    assert lane["module_lane_bias_amperes"] == pytest.approx(0.00675)
    assert reading.families[Family.OPTICS] is Support.COUNTED
    assert reading.failures == [], "an empty cage is no failure"


async def test_modules_and_neighbours_are_not_read_without_optics_and_lldp():
    switch = model()
    switch.shows_neighbours = False
    async with started(switch, lldp=False) as one:
        reading = await one.read()
    assert not any(path.endswith(("/lldp", "/transceiver")) for path in switch.paths)
    assert reading.neighbours is None
    assert not reading.families.keys() & {Family.LLDP, Family.OPTICS}


@pytest.mark.parametrize(
    ("selection", "ports"),
    [({"include": ("swp1",)}, {"swp1"}), ({"exclude": ("*1",)}, {"swp2"}), ({"exclude": ("*",)}, set())],
)
async def test_only_selected_ports(selection, ports):
    async with started(**selection) as one:
        reading = await one.read()
        assert {path.split("/")[1] for path in one.switch.paths if path.endswith("qos")} == ports
    assert {port for (port,) in rows_of(reading)} == ports


async def test_the_qos_path_is_detected_once_and_again_after_an_upgrade():
    switch = model()
    switch.qos_path = "qos/counters"
    async with started(switch) as one:
        for _ in range(2):
            await one.read()
        newer = [path for path in switch.paths if path.endswith("counters/qos")]
        assert len(newer) <= 2, "requested of the first ports only"
        switch.qos_path = "counters/qos"
        assert rows_of(await one.read(), PRIORITIES)
        switch.paths.clear()
        await one.read()
        assert not [path for path in switch.paths if path.endswith("qos/counters")]


async def test_a_release_without_qos_counters_is_tried_rarely_and_is_no_failure(stopped_clock):
    clock = stopped_clock(reader_module, schedule_module, rows_module)
    switch = model()
    switch.qos_path = "nowhere"
    async with started(switch) as one:
        for _ in range(3):
            reading = await one.read()
            clock.now += LONG
        assert reading.failures == []
        assert {reading.families[one] for one in (Family.PFC, Family.ECN, Family.QUEUES)} == {Support.UNSUPPORTED}
        assert len([path for path in switch.paths if "qos" in path]) == 4
        switch.qos_path = "counters/qos"
        clock.now += 300
        assert (await one.read()).families[Family.PFC] is Support.COUNTED


@pytest.mark.parametrize(
    ("group", "missing", "present"),
    [
        ("pfc-stats", Family.PFC, Family.ECN),
        ("egress-queue-stats", Family.QUEUES, Family.PFC),
        ("ingress-buffer-stats", Family.BUFFERS, Family.PFC),
    ],
)
async def test_groups_may_be_missing(group, missing, present):
    switch = model()
    switch.faults.missing.add(group)
    async with started(switch) as one:
        reading = await one.read()
    assert reading.families[missing] is Support.UNSUPPORTED
    assert reading.families[present] is Support.COUNTED
    assert reading.failures == []


async def test_a_malformed_port_affects_only_itself():
    switch = model()
    switch.faults.malformed = "swp2"
    async with started(switch) as one:
        reading = await one.read()
    assert rows_of(reading).keys() == {("swp1",)}
    assert reasons(reading) == [("interface", "malformed")]
    assert "swp2: not an object: 'malformed'" in reading.failures[0].detail


async def test_malformed_counters_affect_only_themselves(monkeypatch):
    usual = NvueSwitch.answer

    def answer(self, path):
        if path == "interface/swp2/counters/qos":
            return {"pfc-stats": {"3": {"rx-pause-frames": "many", "tx-pause-frames": 8}}}
        return usual(self, path)

    monkeypatch.setattr(NvueSwitch, "answer", answer)
    async with started() as one:
        reading = await one.read()
    assert rows_of(reading, PRIORITIES)["swp2", "3"] == {"transmit_pfc_frames_total": 8}
    assert ("swp1", "3") in rows_of(reading, PRIORITIES)
    assert reasons(reading) == [("swp2", "malformed")]


@pytest.mark.parametrize(("status", "reason"), [(500, "malformed"), (400, "refused")])
async def test_a_failed_port_affects_only_its_rows_until_it_recovers(status, reason):
    async with started() as one:
        await one.read()
        one.switch.faults.errors["interface/swp1/counters/qos"] = status
        reading = await one.read()
        assert rows_of(reading, PRIORITIES).keys() == {("swp2", "3")}, "an old value would look like an idle link"
        assert reasons(reading) == [("swp1", reason)]
        assert rows_of(reading)["swp1",]["receive_bytes_total"] == 2**63
        one.switch.faults.errors.clear()
        assert ("swp1", "3") in rows_of(await one.read(), PRIORITIES)


async def test_ports_are_read_without_system_facts():
    async with started() as one:
        one.switch.faults.errors["system"] = 500
        reading = await one.read()
    assert rows_of(reading)["swp1",]["link_up"] == 1
    assert reasons(reading) == [("system", "malformed")]


async def test_an_unknown_structure_is_reported_and_logged_once(caplog, monkeypatch):
    usual = NvueSwitch.answer
    monkeypatch.setattr(
        NvueSwitch, "answer", lambda self, path: [PASSWORD] if path.endswith("qos") else usual(self, path)
    )
    async with started() as one:
        for _ in range(2):
            reading = await one.read()
            assert sorted(reasons(reading)) == [("swp1", "malformed"), ("swp2", "malformed")]
            assert reading.families[Family.PFC] is Support.FAILED
    (record,) = [one for one in caplog.records if "unknown structure" in one.getMessage()]
    assert record.getMessage().endswith("a response of unknown structure: \"['***']\"")


async def test_a_port_without_a_link_is_read_until_its_rates_are_0_and_then_rarely(stopped_clock):
    clock = stopped_clock(reader_module, schedule_module, rows_module)
    async with started() as one:
        for _ in range(5):
            await one.read()
            clock.now += LONG
        paths = [path for path in one.switch.paths if path.endswith("qos")]
        assert paths.count("interface/swp1/counters/qos") == 5
        assert paths.count("interface/swp2/counters/qos") == 2
        one.switch.ports["swp2"].up = True
        one.switch.ports["swp1"].up = False
        one.switch.paths.clear()
        for _ in range(4):
            await one.read()
            clock.now += LONG
        assert one.switch.paths.count("interface/swp2/counters/qos") == 4
        assert one.switch.paths.count("interface/swp1/counters/qos") == 2, "the second one finds that no counter moves"


async def test_three_ports_are_read_concurrently():
    switch = NvueSwitch(password=PASSWORD, ports={f"swp{place}": NvuePort(pfc={3: (1, 2)}) for place in range(9)})
    switch.faults.delay = 0.02
    async with started(switch) as one:
        assert len(rows_of(await one.read(), PRIORITIES)) == 9
    assert switch.max_concurrent == 3


async def test_requests_that_do_not_fit_into_a_poll_are_sent_at_the_next_with_their_own_times(
    monkeypatch, stopped_clock
):
    """Ten ports, a second each, and time for a few of them: all are read within several polls."""
    clock = stopped_clock(reader_module, schedule_module, rows_module)
    monkeypatch.setattr(NvueClient, "connections", 1)
    switch = NvueSwitch(
        password=PASSWORD, ports={f"swp{place}": NvuePort(pfc={3: (place, 0)}) for place in range(1, 11)}
    )
    usual = NvueSwitch.answer

    def answer(self, path):
        clock.now += 1.0 if path.endswith("qos") else 0.0
        return usual(self, path)

    monkeypatch.setattr(NvueSwitch, "answer", answer)
    async with started(switch, interval=5.0) as one:
        begun = clock.now
        counts = []
        for poll in range(8):
            clock.now = begun + 5.0 * poll
            reading = await one.read()
            assert reading.failures == []
            assert clock.now - (begun + 5.0 * poll) <= 5.0
            counts.append(len(rows_of(reading, PRIORITIES)))
    assert counts[0] < 10
    assert counts[-1] == 10, "values of ports that were not read are repeated"
    (part,) = [part for part in reading.parts if part.schema is PRIORITIES]
    assert len(set(part.times)) == 10
    paths = [path for path in switch.paths if path.endswith("qos")]
    spread = [paths.count(f"interface/swp{place}/counters/qos") for place in range(1, 11)]
    assert max(spread) - min(spread) <= 1, "ports are read in turn"


async def test_a_port_without_a_response_until_the_end_of_the_poll_affects_only_its_rows(monkeypatch, stopped_clock):
    clock = stopped_clock(reader_module, schedule_module, rows_module)
    usual = NvueSwitch.answer

    def answer(self, path):
        if path == "interface":  # the next request gets no response, and little time is left for it
            self.faults.delay = LONG
            clock.now += LONG * reader_module.POLL_SHARE - 0.01
        return usual(self, path)

    async with started(include=("swp1",)) as one:
        await one.read()
        monkeypatch.setattr(NvueSwitch, "answer", answer)
        reading = await one.read()
        one.switch.faults.delay = 0.0
    assert reasons(reading) == [("swp1", "timeout")]
    assert rows_of(reading)["swp1",]["receive_bytes_total"] == 2**63
    assert rows_of(reading, PRIORITIES) == {}


async def test_a_restart_is_detected_by_the_uptime():
    async with started() as one:
        first = await one.read()
        one.switch.uptime += 60
        second = await one.read()
        one.switch.uptime = 5
        third = await one.read()
    epochs = [[set(part.epochs) for part in reading.parts if part.epochs] for reading in (first, second, third)]
    assert epochs[0] == epochs[1]
    assert all(before.isdisjoint(after) for before, after in zip(epochs[1], epochs[2], strict=True))


async def test_the_keys_are_the_same_object_as_long_as_the_rows_are():
    async with started() as one:
        first, second = await one.read(), await one.read()
    assert [part.schema for part in first.parts] == [part.schema for part in second.parts]
    assert all(a.keys is b.keys for a, b in zip(first.parts, second.parts, strict=True))


async def test_a_switch_without_front_panel_ports():
    async with started() as one:
        one.switch.ports.clear()
        with pytest.raises(SourceError, match=r"reports no front panel port \(swp1 …\)") as caught:
            await one.read()
    assert caught.value.reason == "empty"


@pytest.mark.parametrize(
    ("given", "reason", "text"),
    [
        ({"password": None, "password_file": "/nowhere/password"}, "credentials", "/nowhere/password"),
        ({"ca_file": "/nowhere/ca.pem", "address": "127.0.0.1"}, "configuration", "name a PEM file of CAs"),
    ],
)
async def test_configuration_errors_are_reported(given, reason, text):
    async with started(given=options(**given)) as one:
        with pytest.raises(SourceError, match=text) as caught:
            await one.read()
        assert one.switch.paths == []
    assert caught.value.reason == reason


async def test_a_password_changed_in_its_file_ends_the_backoff(tmp_path):
    file = tmp_path / "password"
    file.write_text("old\n")
    async with started(given=options(password=None, password_file=str(file))) as one:
        for reason in ("login", "login_backoff", "login_backoff"):
            with pytest.raises(SourceError) as caught:
                await one.read()
            assert caught.value.reason == reason
        assert one.switch.refused == 1
        file.write_text(f"{PASSWORD}\n")
        with pytest.raises(SourceError):  # the last one with the old password
            await one.read()
        assert rows_of(await one.read())["swp1",]["link_up"] == 1
        assert one.switch.refused == 1


async def test_a_password_changed_on_the_switch_during_a_poll_affects_only_later_requests(monkeypatch):
    usual = NvueSwitch.answer

    def answer(self, path):
        if path == "interface":
            self.password = "rotated"
        return usual(self, path)

    async with started() as one:
        await one.read()
        monkeypatch.setattr(NvueSwitch, "answer", answer)
        reading = await one.read()
        assert rows_of(reading)["swp1",]["receive_bytes_total"] == 2**63
        assert [reason for device, reason in reasons(reading) if device == ""] == ["login"]
        with pytest.raises(SourceError) as caught:
            await one.read()
        assert caught.value.reason == "login_backoff"


# --- with source and poller, as in the daemon


@contextlib.asynccontextmanager
async def polled(switch, certificate=None, interval=LONG, **given):
    """Serve a switch, and yield its poller."""
    async with NvueSimulator(switch, certificate=certificate) as simulator:
        target = Target(name="target-1", address=simulator.url, nvue=options(**given))
        source = SwitchSource(target, interval, [make_reader(target, "nvue", interval)], SwitchRegistry())
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
    async with polled(model()) as poller:
        await poller.poll()
        found = exported(poller)
    assert found["fabric_switch_receive_bytes_total", ("leaf01", "swp1")] == 2**63
    assert found["fabric_switch_ecn_marked_packets_total", ("leaf01", "swp1")] == 34
    assert found["fabric_switch_receive_pfc_frames_total", ("leaf01", "swp1", "3")] == 41
    assert found["fabric_switch_family_info", ("leaf01", "pfc")] == ("counted",)
    assert poller.status.up is True


async def test_values_read_at_another_time_are_in_a_table_with_its_own_times(monkeypatch, stopped_clock):
    """The bytes of all ports are read together, and later the counters of their queues: no rate mixes the two."""
    switch = model()
    usual = NvueSwitch.answer
    async with polled(switch) as poller:
        clock = stopped_clock(reader_module, schedule_module, rows_module)
        await poller.poll()
        clock.now += 10
        switch.ports["swp1"].stats["out-bytes"] += 1000

        def answer(self, path):
            clock.now += (
                5 if path == "interface" else 0
            )  # the response took that long, before the first port could be read
            return usual(self, path)

        monkeypatch.setattr(NvueSwitch, "answer", answer)
        await poller.poll()
        found = exported(poller)
        tables = {table.part: table for table in poller.fresh_tables() if "receive_bytes_total" in table.schema.metrics}
    assert found["fabric_switch_transmit_bytes_per_second", ("leaf01", "swp1")] == pytest.approx(100)
    assert "ecn_marked_packets_total" in tables["nvue qos"].columns
    assert tables["nvue qos"].times[0] - tables["nvue"].time == 5


@pytest.mark.parametrize(
    ("fault", "reason", "text"),
    [
        ("password", "login", "HTTP 401: 'Unauthorized'; check user and password"),
        ("first", "login", "still has its first password"),
        ("html", "malformed", r"HTTP 200 with an HTML page"),
        ("slow", "timeout", "no complete response within 0.3 s"),
        ("gone", "refused", "Not today"),
    ],
)
async def test_errors_are_in_the_status_and_the_account_is_not_locked(fault, reason, text, caplog):
    switch = model()
    if fault == "password":
        switch.password = "another"
    switch.faults.first_password = fault == "first"
    switch.faults.html = fault == "html"
    switch.faults.delay = 3600.0 if fault == "slow" else 0.0
    if fault == "gone":
        switch.faults.errors["interface"] = 400
    async with polled(switch, timeout=0.3 if fault == "slow" else 30.0) as poller:
        await poller.poll()
        assert poller.status.up is False
        assert poller.status.reason == reason
        for _ in range(3):
            await poller.poll()
        assert switch.refused <= 1
    assert PASSWORD not in caplog.text
    assert any(re.search(text, record.getMessage()) for record in caplog.records)


async def test_an_untrusted_certificate_is_reported_and_nothing_is_sent(tmp_path, caplog):
    path, ca_file = tmp_path / "switch.pem", tmp_path / "ca.pem"
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(path)
    authority.cert_pem.write_to_path(ca_file)
    switch = model()
    async with polled(switch, path) as poller:
        await poller.poll()
        assert (poller.status.up, poller.status.reason) == (False, "unreachable")
    assert (switch.paths, switch.refused) == ([], 0)
    assert any("give the switch's CA as ca_file" in record.getMessage() for record in caplog.records)
    async with polled(switch, path, ca_file=str(ca_file)) as poller:
        await poller.poll()
        assert poller.status.up is True


async def test_the_reader_works_after_a_cancelled_poll():
    async with started() as one:
        one.switch.faults.delay = LONG
        reading = asyncio.create_task(one.read())
        async with asyncio.timeout(LONG):
            while not one.switch.concurrent:  # noqa: ASYNC110  # the model has no event
                await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        one.switch.faults.delay = 0.0
        assert ("swp1",) in rows_of(await one.read())
