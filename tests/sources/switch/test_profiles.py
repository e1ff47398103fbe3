"""Profiles of switches by SNMP: how they are read and recognised, and what each makes of a switch of its kind.

The recordings in fixtures/switch-snmp are synthetic: values stand where the makers' MIBs have them.
"""

import random

import msgspec
import pytest

from exporter.config.errors import ConfigError
from exporter.config.yaml_reader import read
from exporter.simulator.snmp_agent import SnmpAgent
from exporter.snmp.ber import (
    COUNTER32,
    COUNTER64,
    INTEGER,
    IP_ADDRESS,
    NULL,
    OBJECT_IDENTIFIER,
    OCTET_STRING,
    TIME_TICKS,
    Typed,
)
from exporter.snmp.recording import load as load_recording
from exporter.sources.switch.merge import Family, Support
from exporter.sources.switch.metrics import (
    LANES,
    MODULES,
    PORTS,
    PRIORITIES,
    PRIORITY_GROUPS,
    QUEUES,
)
from exporter.sources.switch.options import Snmp, Target
from exporter.sources.switch.readers.snmp import profile
from exporter.sources.switch.readers.snmp.profile import FOLDER, ProfileSpec, builtin, load
from exporter.sources.switch.readers.snmp.reader import SnmpReader
from tests.helpers.paths import FIXTURES
from tests.simulators.snmp_switch import SimulatedSwitch
from tests.simulators.switch_kinds import KINDS

PLACE = FIXTURES / "switch-snmp"
NAMES = ["arista", "comware", "cumulus", "generic", "ios", "junos", "nxos", "onyx", "os10", "sonic"]

IEEE = {"traffic": "counted", "errors": "counted"}
FAMILIES = {
    "arista": {"pfc": "counted", "ecn": "counted", "queues": "counted"},
    "comware": {},
    "cumulus": {"pause": "counted", "pfc": "counted", "queues": "counted"},
    "generic": {"pause": "counted", "pfc": "counted"},
    "ios": {"optics": "counted"},
    "junos": {"queues": "counted", "optics": "counted"},
    "nxos": {"pfc": "counted", "pfc_duration": "counted"},
    "onyx": {
        "pause": "counted",
        "pfc": "counted",
        "pfc_duration": "counted",
        "queues": "counted",
        "buffers": "counted",
    },
    "os10": {},
    "sonic": {"pfc": "counted", "queues": "counted"},
}
"""What else than the counters of IF-MIB the fixture of a profile has."""

MICRO = 1e-6

EXPECTED = {
    "arista": {
        PRIORITIES: {
            ("Ethernet1/1", "3"): {"transmit_pfc_frames_total": 31, "receive_pfc_frames_total": 41},
            ("Ethernet2/1", "3"): {"transmit_pfc_frames_total": 32, "receive_pfc_frames_total": 42},
        },
        QUEUES: {
            ("Ethernet1/1", "3"): {
                "queue_ecn_marked_packets_total": 500,
                "queue_transmit_packets_total": 700,
                "queue_transmit_bytes_total": 701,
                "queue_full_discards_total": 702,
            },
        },
        PORTS: {
            ("Ethernet1/1",): {"ecn_marked_packets_total": 500, "congestion_discards_total": 702},
            ("Ethernet2/1",): {},
        },
    },
    "sonic": {
        PRIORITIES: {
            ("Ethernet0", "0"): {"transmit_pfc_frames_total": 2100, "receive_pfc_frames_total": 3100},
            ("Ethernet4", "7"): {"transmit_pfc_frames_total": 2507, "receive_pfc_frames_total": 3507},
        },
        QUEUES: {
            ("Ethernet0", "0"): {
                "queue_transmit_packets_total": 1101,
                "queue_transmit_bytes_total": 1102,
                "queue_full_discards_total": 1105,
            },
            ("Ethernet4", "3"): {
                "queue_transmit_packets_total": 5401,
                "queue_transmit_bytes_total": 5402,
                "queue_full_discards_total": 5405,
            },
        },
        PORTS: {("Ethernet0",): {"congestion_discards_total": 1105 + 1405}},
    },
    "nxos": {
        PRIORITIES: {
            ("Ethernet1/1", "3"): {
                "transmit_pfc_frames_total": 203,
                "receive_pfc_frames_total": 303,
                "receive_pfc_paused_seconds_total": 1.0,
                "transmit_pfc_paused_seconds_total": 1.5,
            },
            ("Ethernet1/1", "4"): {"transmit_pfc_frames_total": 204, "receive_pfc_frames_total": 304},
        },
        QUEUES: {("Ethernet1/1", "3"): {"queue_pfc_deadlocks_total": 2}},
        PORTS: {("Ethernet1/2",): {}},
    },
    "onyx": {
        PRIORITIES: {
            ("Eth1/1", "3"): {
                "receive_pfc_frames_total": 3003,
                "receive_pfc_paused_seconds_total": 4.003,
                "transmit_pfc_frames_total": 5003,
                "transmit_pfc_paused_seconds_total": 6.003,
            },
        },
        QUEUES: {
            ("Eth1/1", "3"): {
                "queue_transmit_packets_total": 33,
                "queue_transmit_bytes_total": 43,
                "queue_full_discards_total": 83,
                "queue_early_discards_total": 93,
            },
        },
        PRIORITY_GROUPS: {("Eth1/1", "3"): {"priority_group_discards_total": 63}},
        PORTS: {
            ("Eth1/1",): {
                "receive_pause_frames_total": 21,
                "transmit_pause_frames_total": 22,
                "fcs_errors_total": 23,
                "symbol_errors_total": 24,
                "congestion_discards_total": 80 + 90 + 83 + 93,
            },
        },
    },
    "cumulus": {
        PRIORITIES: {
            ("swp1", "0"): {"receive_pfc_frames_total": 304, "transmit_pfc_frames_total": 305},
            ("swp2", "7"): {"receive_pfc_frames_total": 418, "transmit_pfc_frames_total": 419},
        },
        PORTS: {
            ("swp1",): {
                "receive_pause_frames_total": 302,
                "transmit_pause_frames_total": 303,
                "congestion_discards_total": 66,
            },
            ("swp2",): {"receive_pause_frames_total": 402, "transmit_pause_frames_total": 403},
        },
    },
    "junos": {
        QUEUES: {
            ("et-0/0/0", "3"): {
                "queue_transmit_packets_total": 703,
                "queue_transmit_bytes_total": 903,
                "queue_full_discards_total": 1103,
                "queue_early_discards_total": 1303,
            },
        },
        MODULES: {("et-0/0/0",): {"module_temperature_celsius": 38.0, "module_voltage_volts": 3.31}},
        LANES: {
            ("et-0/0/0", "1"): {
                "module_lane_receive_power_watts": 501.187 * MICRO,  # -3 dBm
                "module_lane_transmit_power_watts": 1e-3,  # 0 dBm
                "module_lane_bias_amperes": 0.0654,
            },
            ("et-0/0/0", "2"): {"module_lane_receive_power_watts": 0.0},
            ("et-0/0/1", "1"): {
                "module_lane_receive_power_watts": 501.187 * MICRO,
                "module_lane_transmit_power_watts": 1e-2,  # 10 dBm
                "module_lane_bias_amperes": 0.006,
            },
        },
        PORTS: {("et-0/0/0",): {"congestion_discards_total": 1100 + 1300 + 1103 + 1303}},
    },
    "generic": {
        PORTS: {
            ("e1",): {
                "receive_pause_frames_total": 51,
                "transmit_pause_frames_total": 61,
                "fcs_errors_total": 52,
                "symbol_errors_total": 56,
                "transmit_pfc_all_priorities_frames_total": 72,
                "receive_pfc_all_priorities_frames_total": 73,
            },
            ("e2",): {
                "receive_pause_frames_total": 52,
                "transmit_pause_frames_total": 62,
                "transmit_pfc_all_priorities_frames_total": 72,
                "receive_pfc_all_priorities_frames_total": 73,
            },
        },
    },
    "ios": {
        MODULES: {("HundredGigE0/0/0/1",): {"module_temperature_celsius": 31.0, "module_voltage_volts": 3.287}},
        LANES: {
            ("HundredGigE0/0/0/1", "1"): {"module_lane_receive_power_watts": 212 * MICRO},
            ("HundredGigE0/0/0/1", "4"): {"module_lane_receive_power_watts": 215 * MICRO},
        },
    },
    "os10": {PORTS: {("ethernet1/1/1",): {}}},
    "comware": {PORTS: {("FourHundredGigE1/0/1",): {}}},
}
"""Rows of a profile for its fixture, in addition to those of IF-MIB."""

COMMON = {
    "receive_bytes_total",
    "transmit_bytes_total",
    "receive_errors_total",
    "link_up",
    "admin_up",
    "link_speed_bytes_per_second",
    "info",
}


async def harvest_of(name, served=None, **options):
    """Read a switch once: that of a fixture, other rows, or those of an agent."""
    if not isinstance(served, SnmpAgent):
        served = SnmpAgent(served or load_recording(PLACE / f"{name}.snmprec").rows)
    async with served as agent:
        snmp = Snmp(community="public", timeout=20.0)
        address = "{}:{}".format(*await agent.start())
        target = Target(name="t", address=address, snmp=snmp, optics=True, **options)
        reader = SnmpReader(target, snmp, 60.0, builtin())
        try:
            return await reader.read()
        finally:
            await reader.close()


def rows_of(harvest, schema):
    """Return rows by key, exported: raw x factor / divisor."""
    found = {}
    for part in harvest.parts:
        if part.schema is schema:
            for ending, column in part.columns.items():
                for key, value in zip(part.keys, column.values, strict=True):
                    if value is not None:
                        exact = column.factor == column.divisor == 1
                        found.setdefault(key, {})[ending] = value if exact else value * column.factor / column.divisor
    return found


def test_there_are_profiles_and_each_has_a_fixture():
    assert builtin().names == NAMES
    assert {path.stem for path in PLACE.glob("*.snmprec")} == set(NAMES)
    assert all(path.read_text().startswith("# Synthetic") for path in PLACE.glob("*.snmprec"))


@pytest.mark.parametrize("name", NAMES)
async def test_the_rows_of_a_profile_for_its_fixture(name):
    harvest = await harvest_of(name)
    assert harvest.failures == []
    assert harvest.device.profile == name
    for schema, rows in EXPECTED[name].items():
        found = rows_of(harvest, schema)
        for key, expected in rows.items():
            got = {ending: value for ending, value in found[key].items() if ending not in COMMON}
            assert got == pytest.approx(expected, rel=1e-5), (schema.labels, key)
    families = {family.value: support.value for family, support in harvest.families.items()}
    asked = {table.family.value for table in builtin().by_name(name).tables} | {"lldp", "optics"}
    assert families == dict.fromkeys(asked, "unsupported") | {**IEEE, **FAMILIES[name]}


async def test_a_table_without_counted_rows_has_none():
    """aristaEcnQueueCounterEnabled is 2, false, on all rows, and the counters beside it are 0."""
    rows = load_recording(PLACE / "arista.snmprec").rows
    enabled = (1, 3, 6, 1, 4, 1, 30065, 3, 13, 1, 9, 1, 3)
    rows |= {oid: Typed(INTEGER, 2) for oid in rows if oid[: len(enabled)] == enabled}
    harvest = await harvest_of("arista", rows)
    assert harvest.families[Family.ECN] is Support.NOT_COUNTED
    assert "ecn_marked_packets_total" not in {ending for part in harvest.parts for ending in part.columns}


async def test_queues_are_numbered_from_zero():
    """SONiC counts queues from 1: a row of queue 0 is none."""
    rows = load_recording(PLACE / "sonic.snmprec").rows
    rows[1, 3, 6, 1, 4, 1, 9, 9, 580, 1, 5, 5, 1, 4, 1, 2, 0, 1] = Typed(COUNTER64, 9)
    found = rows_of(await harvest_of("sonic", rows), QUEUES)
    assert {queue for _, queue in found} == {"0", "3"}


async def test_queue_depths_without_a_known_unit_are_not_read():
    for name in ("onyx", "junos"):
        harvest = await harvest_of(name)
        endings = {ending for part in harvest.parts for ending in part.columns}
        assert not [ending for ending in endings if "depth" in ending or "deepest" in ending]


async def test_pfc_directions_are_swapped_by_configuration():
    rows = rows_of(await harvest_of("sonic", pfc_swapped=True), PRIORITIES)
    assert rows["Ethernet0", "0"] == {"receive_pfc_frames_total": 2100, "transmit_pfc_frames_total": 3100}


async def test_a_configured_profile_is_used_whatever_the_switch_reports():
    harvest = await harvest_of("sonic", profile="generic")
    assert harvest.device.profile == "generic"
    assert QUEUES not in [part.schema for part in harvest.parts]


async def test_rows_have_the_time_at_which_the_switch_counted():
    """ARISTA-IF-MIB: sysUpTime is 1000 s; the one port was counted at 990 s, the other at 985 s."""
    harvest = await harvest_of("arista")
    part = next(part for part in harvest.parts if part.schema is PORTS)
    assert [round(part.time - time, 6) for time in part.times] == [10.0, 15.0]


@pytest.mark.parametrize("kind", KINDS)
async def test_tables_contain_what_the_simulated_switch_counted(kind):
    """By priority and by queue, in whatever tables switches of its kind have them."""
    switch = SimulatedSwitch("leaf-1", ports=4, kind=kind, seed=7)
    switch.begin("pfc-storm")
    switch.advance(60)
    harvest = await harvest_of(kind, switch.agent)
    assert harvest.failures == []
    assert harvest.device.profile == kind
    truth = switch.truth()
    ports = rows_of(harvest, PORTS)
    for name, counted in truth.items():
        assert ports[name,]["receive_bytes_total"] == counted["receive_bytes"] % 2**64  # it began near the top
        assert ports[name,]["transmit_packets_total"] == sum(
            counted[f"transmit_{cast}_packets"] for cast in ("unicast", "multicast", "broadcast")
        )
    for (name, priority), row in rows_of(harvest, PRIORITIES).items():
        for way in ("receive", "transmit"):
            assert row[f"{way}_pfc_frames_total"] == truth[name].get(f"{way}_pfc_frames_{priority}", 0)
            paused = truth[name].get(f"{way}_pfc_microseconds_{priority}", 0) / 1e6
            assert row.get(f"{way}_pfc_paused_seconds_total", paused) == pytest.approx(paused, abs=1e-3)
    for (name, queue), row in rows_of(harvest, QUEUES).items():
        expected = truth[name].get(f"queue_bytes_{queue}", 0)
        assert row.get("queue_transmit_bytes_total", expected) == expected
        marked = truth[name].get(f"queue_ecn_marked_{queue}", 0)
        assert row.get("queue_ecn_marked_packets_total", marked) == marked
    assert len(harvest.neighbours) == 4


ODD = [
    Typed(OCTET_STRING, b""),
    Typed(OCTET_STRING, b"\xff\x00 Lane 99 for e1/77"),
    Typed(INTEGER, -1),
    Typed(INTEGER, 2**31 - 1),
    Typed(COUNTER32, 2**32 - 1),
    Typed(COUNTER64, 2**64 - 1),
    Typed(TIME_TICKS, 2**32 - 1),
    Typed(OBJECT_IDENTIFIER, ()),
    Typed(OBJECT_IDENTIFIER, (1, 3, 6, 1, 2, 1, 2, 2, 1, 1, 2**32 - 1)),
    Typed(NULL, None),
    Typed(IP_ADDRESS, bytes(4)),
]
"""What an agent may send in the place of anything."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
async def test_any_response_affects_only_its_own_values(kind, seed):
    """A tenth of all rows hold something else: there is a harvest nevertheless, and only sane numbers are in it."""
    draw = random.Random(seed)
    switch = SimulatedSwitch("leaf-1", ports=6, kind=kind, seed=seed)
    switch.advance(30)
    rows = switch.agent.rows
    odd = {rows.oid(place): draw.choice(ODD) for place in draw.sample(range(len(rows)), len(rows) // 10)}
    switch.agent.set_many(odd)
    harvest = await harvest_of(kind, switch.agent, profile=kind)
    numbers = [
        value
        for part in harvest.parts
        for ending, column in part.columns.items()
        for value in column.values
        if ending != "info" and value is not None
    ]
    assert len(numbers) > 100  # sums may lie above what one counter holds
    assert [value for value in numbers if not (isinstance(value, int | float) and -100 <= value < 2**70)] == []
    assert all(len(part.keys) == len(set(part.keys)) for part in harvest.parts)


# --- recognising


@pytest.mark.parametrize(
    ("object_id", "description", "name"),
    [
        ((1, 3, 6, 1, 4, 1, 30065, 1, 3011), "", "arista"),
        ((1, 3, 6, 1, 4, 1, 33049, 1, 1, 1, 1012), "", "onyx"),
        ((1, 3, 6, 1, 4, 1, 300651), "", "generic"),
        ((1, 3, 6, 1, 4, 1, 8072, 3, 2, 10), "Linux host", "generic"),
        ((1, 3, 6, 1, 4, 1, 8072, 3, 2, 10), "SONiC Software Version: SONiC.202305", "sonic"),
        ((1, 3, 6, 1, 4, 1, 30065, 1), "Edge: SONiC Software Version: SONiC.4.1", "sonic"),
        ((), "", "generic"),
    ],
)
def test_a_profile_is_chosen_by_description_and_then_by_object_id(object_id, description, name):
    assert builtin().match(object_id, description).name == name


NET_SNMP = (1, 3, 6, 1, 4, 1, 8072, 3, 2, 10)
"""sysObjectID of net-snmp on Linux, where its configuration sets none."""

SECOND_WAYS = [
    ("arista", "Arista Networks EOS version 4.20.5F running on an Arista Networks DCS-7150S-52-CL"),
    ("comware", "H3C Comware Platform Software, Software Version 7.1.045, Release 1005P09\r\nH3C S12510-X"),
    ("comware", "HPE Comware Platform Software, Software Version 7.1.070, Release 3208P03"),
    ("cumulus", "Cumulus-Linux 4.4.2 (Linux Kernel 4.19.206-1+cl4.4.2u1)"),
    ("cumulus", "Cumulus-linux 5.9.2 (Linux Kernel 6.1.94-1+cl5.9.2u6)"),
    ("cumulus", "Linux leaf02 4.19.0-cl-1-amd64 #1 SMP Cumulus 4.19.94-1+cl4u3 (2020-03-05) x86_64"),
    ("cumulus", "Linux leaf03 6.1.0-cl-1-amd64 #1 SMP PREEMPT_DYNAMIC Debian 6.1.94-1+cl5.9.2u6 (2024-07-02) x86_64"),
    (
        "ios",
        "Cisco IOS Software [Cupertino], Catalyst L3 Switch Software (CAT9K_IOSXE), Version 17.9.4, RELEASE SOFTWARE",
    ),
    ("ios", "Cisco IOS XR Software (ASR9K), Version 7.5.2"),
    ("junos", "Juniper Networks, Inc. qfx5100-48s-6q Ethernet Switch, kernel JUNOS 14.1X53-D40.8, Build date: 2016"),
    ("nxos", "Cisco NX-OS(tm) nxos.7.0.3.I7.8.bin, Software (nxos), Version 7.0(3)I7(8), RELEASE SOFTWARE"),
    ("onyx", "Mellanox SX1012,MLNX-OS,SWvSX_3.4.001"),
    ("onyx", "Linux Mellanox 2.6.27-MELLANOXuni-m460ex EFM_PPC_M460EX EFM_1.1.2910 #1 2012-07-11 13:55:43 ppc"),
    ("os10", "Dell EMC Networking OS10 Enterprise."),
    ("sonic", "SONiC Software Version: SONiC.Edgecore-SONiC_20230706 - HwSku: Accton-AS7326-56X - Distribution: Deb"),
    ("sonic", "Software of a Maker 4.2 - HwSku: DellEMC-Z9332f-O32 - Distribution: Debian 10.13 - Kernel: 4.19.0"),
]
"""The sysDescr of switches, by recordings and by programs that recognise them; the last has the form of SONiC's snmpd
configuration, with the name that a maker gave its build."""


@pytest.mark.parametrize(("name", "description"), SECOND_WAYS)
def test_every_profile_is_recognised_by_the_description_alone(name, description):
    assert builtin().match((), description).name == name
    assert builtin().match(NET_SNMP, description).name == name


def test_every_profile_has_a_second_way_to_be_recognised():
    specs = [read(path, ProfileSpec) for path in sorted(FOLDER.glob("*.yml"))]
    ways = {spec.name: len(spec.object_ids) + len(spec.descriptions) for spec in specs}
    assert ways.pop("generic") == 0
    assert {name for name, count in ways.items() if count < 2} == set()
    assert {name for name, _ in SECOND_WAYS} == ways.keys()


@pytest.mark.parametrize("description", ["Linux gpu-001 6.8.0-60-generic #63-Ubuntu SMP x86_64", "", "MikroTik CRS518"])
def test_other_switches_and_hosts_are_generic(description):
    assert builtin().match(NET_SNMP, description).name == "generic"


def test_the_longest_object_id_prefix_wins(tmp_path):
    file = tmp_path / "own.yml"
    file.write_text("name: own\nextends: arista\nobject_ids: [1.3.6.1.4.1.30065.1.3011]\ninterval: 5s\n")
    profiles = load([file])
    assert profiles.match((1, 3, 6, 1, 4, 1, 30065, 1, 3011, 7)).name == "own"
    assert profiles.match((1, 3, 6, 1, 4, 1, 30065, 1, 3012)).name == "arista"
    assert profiles.by_name("own").interval == 5.0
    assert [table.name for table in profiles.by_name("own").tables] == [
        table.name for table in profiles.by_name("arista").tables
    ]


def test_a_user_profile_replaces_a_builtin_one_also_as_a_base(tmp_path):
    file = tmp_path / "generic.yml"
    file.write_text(
        "name: generic\ntables:\n  only:\n    family: traffic\n    root: 1.3.6.1.2.1.31.1.1.1\n"
        "    columns: [{column: 6, metric: receive_bytes_total}]\n"
    )
    profiles = load([file])
    assert [table.name for table in profiles.by_name("os10").tables] == ["only"]


def test_a_profile_may_have_an_interval():
    assert profile.builtin().by_name("onyx").interval == 60.0
    assert profile.builtin().by_name("generic").interval is None
    with pytest.raises(ConfigError, match=r"no profile 'onix'; known are arista, comware"):
        profile.builtin().by_name("onix")


TABLE = "name: own\ntables:\n  pfc:\n    family: pfc\n    rows: priorities\n    root: 1.3.6.1\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: own\nextends: nothing\n", "extends 'nothing', which is unknown; known are"),
        ("name: own\nextends: own\n", "the profile 'own' extends itself through own; cut the cycle"),
        ("name: own\nextends: generic\nwithout: [pcf]\n", "is without the table 'pcf', which generic does not have"),
        ("name: Own!\n", "own.yml:1: name is 'Own!'"),
        ("name: own\nobject_ids: [1.3.x]\n", "own.yml:1: '1.3.x' is not an object identifier"),
        ("name: own\ntabels: {}\n", "own.yml:2: tabels: unknown key; did you mean 'tables'?"),
        (TABLE + "    columns: []\n", "own.yml:3: tables.pfc: has no columns"),
        (
            TABLE + "    columns: [{column: 2, metric: pfc_total}]\n    index: [port, priority]\n",
            "'pfc_total' is not a metric of priorities; known are",
        ),
        (
            TABLE + "    columns: [{column: 2, metric: receive_pfc_frames_total}]\n",
            "rows are priorities, so index or at must contain the priority",
        ),
        (
            TABLE + "    columns: [{column: 2, metric: receive_pfc_frames_total}]\n    index: [priority, port]\n",
            "index begins with 'priority'; the first part is the port",
        ),
        (
            TABLE + "    columns: [{column: 2, metric: receive_pfc_frames_total}]\n    index: [port, priority+1]\n",
            r"index has 'priority\+1'; a part is a name, name=NUMBER or name-NUMBER",
        ),
        (
            TABLE
            + "    columns: [{column: 2, metric: receive_pfc_frames_total, where: {kind: 1}}]\n"
            + "    index: [port, priority]\n",
            "where names 'kind', which is not a part of index",
        ),
        (
            TABLE
            + "    columns:\n      - {column: 2, metric: receive_pfc_frames_total, divisor: 0}\n"
            + "    index: [port, priority]\n",
            r"own.yml:8: tables.pfc.columns\[0\]: factor and divisor are whole numbers from 1",
        ),
    ],
)
def test_errors_in_a_user_profile_name_file_and_key(tmp_path, text, message):
    file = tmp_path / "own.yml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        load([file])
    assert str(file) in str(caught.value)


def test_two_profiles_with_one_name_are_an_error_with_both_files(tmp_path):
    files = [tmp_path / "a.yml", tmp_path / "b.yml"]
    for file in files:
        file.write_text("name: own\n")
    with pytest.raises(ConfigError, match=r"b\.yml: the profile 'own' is in .*a\.yml too; rename one"):
        load(files)


def test_profiles_of_this_package_need_no_more_than_the_struct_has():
    paths = sorted(profile.FOLDER.glob("*.yml"))
    assert paths
    for path in paths:
        spec = profile._read(path)
        assert spec.name == path.stem
        assert msgspec.structs.asdict(spec)["name"] == path.stem
