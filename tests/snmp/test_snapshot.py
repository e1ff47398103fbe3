"""Snapshots: what is read of a switch, what is left of it for others to see, and that a replay counts the same."""

import ipaddress
import re

import pytest

from exporter import cli
from exporter.config.secret import SecretError
from exporter.simulator.snmp_agent import SnmpAgent
from exporter.simulator.snmp_faults import SnmpFaults
from exporter.snmp import recording as snmp_recording
from exporter.snmp.anonymise import anonymise
from exporter.snmp.ber import (
    COUNTER64,
    INTEGER,
    IP_ADDRESS,
    OBJECT_IDENTIFIER,
    OCTET_STRING,
    Typed,
    parse_oid,
)
from exporter.snmp.client import SnmpClient
from exporter.snmp.errors import SnmpTimeout
from exporter.snmp.snapshot import SnapshotLimits, snapshot
from exporter.sources.switch.credentials import read_credentials
from exporter.sources.switch.options import Snmp
from tests.helpers.paths import FIXTURES
from tests.simulators.snmp_switch import SimulatedSwitch

NAMES = [
    "acme-leaf-07",
    "acme-leaf-07.dc2.acme.example",
    "Ada Lovelace",
    "hall 9 rack 12",
    "acme-gpu-112",
    "customer-blue",
]
SERIALS = ["JPE21330517", "XCVR4711A", "ASSET-00815"]
MACS = ["28:99:3a:1b:2c:3d", "0c:42:a1:5e:6f:70", "41:42:43:44:45:46"]
ADDRESSES = ["172.29.14.53", "10.66.7.8", "2a04:41c0::17"]


def text(content):
    return Typed(OCTET_STRING, content.encode() if isinstance(content, str) else content)


def mac(place):
    return bytes.fromhex(MACS[place].replace(":", ""))


def dotted(numbers):
    return ".".join(map(str, numbers))


IPV4, IPV6 = (ipaddress.ip_address(one).packed for one in (ADDRESSES[0], ADDRESSES[2]))
V1, V2 = "1.0.8802.1.1.2.1", "1.3.111.2.802.1.1.13.1"

PRIVATE = {
    "1.3.6.1.2.1.1.1.0": text(
        f"Example NOS version 4.31.2F on EX-9064 ({NAMES[0]}, s/n {SERIALS[0]}, {MACS[0].upper()}, {ADDRESSES[1]})"
    ),
    "1.3.6.1.2.1.1.2.0": Typed(OBJECT_IDENTIFIER, parse_oid("1.3.6.1.4.1.30065.1.3011")),
    "1.3.6.1.2.1.1.4.0": text(NAMES[2]),
    "1.3.6.1.2.1.1.5.0": text(NAMES[1]),
    "1.3.6.1.2.1.1.6.0": text(NAMES[3]),
    "1.3.6.1.2.1.2.2.1.2.1": text("Ethernet1/1"),
    "1.3.6.1.2.1.2.2.1.2.2": text(NAMES[5]),
    "1.3.6.1.2.1.2.2.1.6.1": text(mac(0)),
    "1.3.6.1.2.1.2.2.1.6.2": text(mac(2)),
    "1.3.6.1.2.1.31.1.1.1.1.1": text("Ethernet1/1"),
    "1.3.6.1.2.1.31.1.1.1.1.2": text(NAMES[5]),
    "1.3.6.1.2.1.31.1.1.1.6.1": Typed(COUNTER64, 2**63 + 12345),
    "1.3.6.1.2.1.31.1.1.1.18.1": text(f"{NAMES[4]} eth2 ({ADDRESSES[1]})"),
    "1.3.6.1.2.1.47.1.1.1.1.2.1": text(f"EX-9064 of {NAMES[0]}"),
    "1.3.6.1.2.1.47.1.1.1.1.11.1": text(SERIALS[0]),
    "1.3.6.1.2.1.47.1.1.1.1.11.2": text(SERIALS[1]),
    "1.3.6.1.2.1.47.1.1.1.1.7.2": text(f"Transceiver {SERIALS[1].lower()}"),
    "1.3.6.1.2.1.47.1.1.1.1.14.1": text(NAMES[0]),
    "1.3.6.1.2.1.47.1.1.1.1.15.1": text(SERIALS[2]),
    "1.3.6.1.2.1.47.1.1.1.1.13.1": text("EX-9064"),
    "1.3.6.1.2.1.47.1.1.1.1.18.1": text(f"https://{NAMES[1]}/"),
    f"{V1}.3.1.0": Typed(INTEGER, 4),
    f"{V1}.3.2.0": text(mac(0)),
    f"{V1}.3.3.0": text(NAMES[1]),
    f"{V1}.3.7.1.2.1": Typed(INTEGER, 5),
    f"{V1}.3.7.1.3.1": text("Ethernet1/1"),
    f"{V1}.3.8.1.3.1.4.{dotted(IPV4)}": Typed(INTEGER, 1),
    f"{V1}.4.1.1.4.0.1.1": Typed(INTEGER, 4),
    f"{V1}.4.1.1.5.0.1.1": text(mac(1)),
    f"{V1}.4.1.1.6.0.1.1": Typed(INTEGER, 3),
    f"{V1}.4.1.1.7.0.1.1": text(mac(2)),
    f"{V1}.4.1.1.8.0.1.1": text(f"eth2 of {NAMES[4]}"),
    f"{V1}.4.1.1.9.0.1.1": text(NAMES[4]),
    f"{V1}.4.1.1.10.0.1.1": text(f"Linux {NAMES[4]} 6.8.0"),
    f"{V1}.4.1.1.4.0.2.1": Typed(INTEGER, 5),
    f"{V1}.4.1.1.5.0.2.1": text(b"\x01" + IPV4),
    f"{V1}.4.1.1.6.0.2.1": Typed(INTEGER, 7),
    f"{V1}.4.1.1.7.0.2.1": text(MACS[1].replace(":", "-")),
    f"{V1}.4.2.1.3.0.1.1.1.4.{dotted(IPV4)}": Typed(INTEGER, 2),
    f"{V1}.4.2.1.3.0.1.1.2.16.{dotted(IPV6)}": Typed(INTEGER, 2),
    f"{V1}.4.2.1.4.0.2.1.6.6.{dotted(mac(0))}": Typed(INTEGER, 7),
    f"{V1}.4.3.1.2.0.1.1.9": text(NAMES[4]),
    f"{V2}.4.1.1.10.0.1.1.1": text(f"eth2 of {NAMES[4]}"),
    f"{V2}.4.1.1.6.0.1.1.1": text(mac(1)),
    f"{V2}.4.1.1.5.0.1.1.1": Typed(INTEGER, 4),
    f"{V2}.4.2.1.3.0.1.1.1.1.4.{dotted(IPV4)}": Typed(INTEGER, 2),
    "1.3.6.1.4.1.30065.3.11.1.1.1.3.1.3": Typed(COUNTER64, 77),
    "1.3.6.1.4.1.30065.3.15.1.1.1.10.1": text(NAMES[5]),
    "1.3.6.1.4.1.9.9.580.1.5.5.1.4.1.2.4.2": Typed(COUNTER64, 88),
    # Tables that are not read, or not known: dropped, with the content of their indexes.
    f"1.3.6.1.2.1.4.20.1.1.{dotted(IPV4)}": Typed(IP_ADDRESS, IPV4),
    f"1.3.6.1.4.1.30065.9.1.{dotted(mac(0))}": Typed(INTEGER, 1),
    "1.3.6.1.4.1.30065.9.2.0": Typed(IP_ADDRESS, IPV4),
}
ROWS = {parse_oid(oid): value for oid, value in PRIVATE.items()}


def spellings(secret):
    """List the notations of a name or the bytes of an address in a file: plain, hexadecimal, part of an index."""
    if isinstance(secret, str):
        yield secret.lower()
        secret = secret.encode()
    for mark in ("", ":", "-", " "):
        yield secret.hex(mark) if mark else secret.hex()
    yield f".{dotted(secret)}"


def secrets():
    yield from (*NAMES, *SERIALS)
    for one in MACS:
        yield one
        yield bytes.fromhex(one.replace(":", ""))
    for one in ADDRESSES:
        yield one
        yield ipaddress.ip_address(one).packed


def test_no_name_address_or_serial_number_remains_in_any_notation():
    written = snmp_recording.dump(anonymise(ROWS)).lower()
    # What is hexadecimal is read as text too.
    strings = " ".join(
        bytes.fromhex(found).decode("latin-1").lower() for found in re.findall(r"\|4x\|([0-9a-f]*)", written)
    )
    original = snmp_recording.dump(ROWS).lower()
    checked = 0
    for secret in secrets():
        for spelling in spellings(secret):
            assert spelling not in written
            assert spelling not in strings
            checked += spelling in original
    assert checked >= 20, "the secrets are in what went in"


def test_counters_models_and_interface_names_are_kept():
    rows = {".".join(map(str, oid)): value for oid, value in anonymise(ROWS).items()}
    for oid in (
        "1.3.6.1.2.1.1.2.0",
        "1.3.6.1.2.1.2.2.1.2.1",
        "1.3.6.1.2.1.31.1.1.1.1.1",
        "1.3.6.1.2.1.31.1.1.1.6.1",
        "1.3.6.1.2.1.47.1.1.1.1.13.1",
        f"{V1}.3.7.1.3.1",
        f"{V1}.4.1.1.4.0.1.1",
        "1.3.6.1.4.1.30065.3.11.1.1.1.3.1.3",
        "1.3.6.1.4.1.9.9.580.1.5.5.1.4.1.2.4.2",
    ):
        assert rows[oid] == PRIVATE[oid]
    description = rows["1.3.6.1.2.1.1.1.0"].value.decode()
    assert description.startswith("Example NOS version 4.31.2F on EX-9064 (name-")
    gone = {oid for oid in PRIVATE if oid.startswith(("1.3.6.1.2.1.4.", "1.3.6.1.4.1.30065.9.", f"{V1}.4.3"))}
    gone |= {"1.3.6.1.4.1.30065.3.15.1.1.1.10.1", "1.3.6.1.2.1.47.1.1.1.1.18.1"}
    assert len(rows) == len(PRIVATE) - len(gone)
    assert not gone & rows.keys()


def test_replacements_are_equal_within_a_file_and_differ_between_files():
    rows = anonymise(ROWS)

    def at(oid, made=rows):
        return made[parse_oid(oid)].value

    assert at("1.3.6.1.2.1.1.5.0") == at(f"{V1}.3.3.0")
    assert at("1.3.6.1.2.1.31.1.1.1.1.2") == at("1.3.6.1.2.1.2.2.1.2.2")
    assert at("1.3.6.1.2.1.2.2.1.6.1") == at(f"{V1}.3.2.0") != at("1.3.6.1.2.1.2.2.1.6.2")
    assert at(f"{V1}.4.1.1.5.0.1.1") == at(f"{V2}.4.1.1.6.0.1.1.1")
    assert at(f"{V1}.4.1.1.7.0.2.1").decode().replace("-", "") == at(f"{V1}.4.1.1.5.0.1.1").hex()
    assert at(f"{V1}.4.1.1.7.0.1.1") == at("1.3.6.1.2.1.2.2.1.6.2"), "a MAC address that could be text"
    assert at("1.3.6.1.2.1.31.1.1.1.1.2") != at("1.3.6.1.2.1.31.1.1.1.1.2", anonymise(ROWS))
    # An address in an index and the same in a value.
    (index,) = (oid[-4:] for oid in rows if oid[: len(parse_oid(f"{V1}.4.2.1.3.0.1.1.1.4"))] == parse_oid(f"{V1}.4.2.1.3.0.1.1.1.4"))  # fmt: skip # noqa: E501
    assert at(f"{V1}.4.1.1.5.0.2.1") == b"\x01" + bytes(index)
    assert ipaddress.ip_address(bytes(index)).is_reserved


def test_interface_names_are_kept_and_other_names_are_replaced():
    table = parse_oid("1.3.6.1.2.1.31.1.1.1.1")
    usual = [
        "Ethernet1/1",
        "Ethernet0",
        "swp12s3",
        "Eth1/15/3",
        "et-0/0/1.0",
        "port-channel10",
        "mgmt0",
        "lo",
        "1/1/3",
        "1/1/33:1",
    ]
    usual += ["Eth6/3(Port1)", "vlan 1002", "Management1", "ethernet1/1/30"]
    made = ["acme7", "blue", "Ethernet1 to acme", "to-gpu-7", "Red Hat, Inc Device 0001"]
    rows = {(*table, index): text(name) for index, name in enumerate(usual + made)}
    kept = {value.value.decode() for value in anonymise(rows).values()}
    assert kept & {*usual, *made} == {*usual}
    assert len(kept) == len(usual) + len(made)


def test_addresses_of_their_own_type_are_replaced_in_any_table():
    oid = parse_oid("1.3.6.1.4.1.9.9.813.1.9.1.1.5")
    made = anonymise({oid: Typed(IP_ADDRESS, IPV4)})
    assert made[oid].tag == IP_ADDRESS
    assert ipaddress.ip_address(made[oid].value).is_reserved
    assert anonymise({oid: Typed(IP_ADDRESS, bytes(4))})[oid].value == bytes(4), "which is nobody's"


def test_texts_with_any_bytes_are_accepted():
    rows = {
        parse_oid("1.3.6.1.2.1.1.5.0"): text(b"\xff\xfe\x00"),
        parse_oid("1.3.6.1.2.1.1.1.0"): text(b"Notel\xe9 \xff"),
    }
    made = anonymise(rows)
    assert made[parse_oid("1.3.6.1.2.1.1.1.0")].value.startswith(b"Notel")
    assert made[parse_oid("1.3.6.1.2.1.1.5.0")].value.startswith(b"name-")


@pytest.mark.parametrize(
    ("name", "description", "left"),
    [
        ("cumulus", "Cumulus-Linux 4.4.2 (Linux Kernel 4.19.206)", "Cumulus-Linux 4.4.2 (Linux Kernel 4.19.206)"),
        ("a", "Hardware Model:EX, Software version: EX,6.5.2.101", "Hardware Model:EX, Software version: EX,6.5.2.101"),
        ("sw", "switch sw at 172.16.0.1, version 3.1", "switch NAME at ADDRESS, version 3.1"),
        ("spine", "Version 4.1 of 10.20.30.40", "Version 4.1 of ADDRESS"),
        ("spine", "EX-9064, Serial Number: QQ1234X 4.1", "EX-9064, Serial Number: NAME 4.1"),
        ("spine", "EX-9064 28993a1b2c3d", "EX-9064 MAC"),
        ("spine", "EX-9064 built 202405121530", "EX-9064 built 202405121530"),
        ("spine", "EX-9064 s/n:QQ1234X", "EX-9064 s/n:NAME"),
        ("blue", "built 02:23:05 on BLUE.lab 2a04:41c0::17", "built 02:23:05 on NAME.lab ADDRESS"),
    ],
)
def test_descriptions_keep_model_and_version(name, description, left):
    """A neighbour of the same make describes itself in the same words, which is no reason to take them for a name."""
    rows = {
        "1.3.6.1.2.1.1.1.0": text(description),
        "1.3.6.1.2.1.1.5.0": text(name),
        f"{V1}.4.1.1.10.0.1.1": text(description),
    }
    made = anonymise({parse_oid(oid): value for oid, value in rows.items()})
    shown = made[parse_oid("1.3.6.1.2.1.1.1.0")].value.decode()
    pattern = (
        re.escape(left)
        .replace("NAME", "name-[0-9a-f]{10}")
        .replace("MAC", "02[0-9a-f]{10}")
        .replace("ADDRESS", "(?:2[45][0-9][.0-9]+|2001:db8:[0-9a-f:]+)")
    )
    assert re.fullmatch(pattern, shown)


async def walked(agent, column):
    address = "{}:{}".format(*await agent.start())
    async with SnmpClient(address, "public", timeout=20, deadline=60) as client:
        result = await client.walk([parse_oid(column)])
    return result.columns[parse_oid(column)].rows


async def test_a_replay_of_a_snapshot_has_the_same_ports_and_counters(tmp_path):
    switch = SimulatedSwitch("acme-leaf-07", ports=8, kind="arista")
    switch.advance(60)
    lines = []
    async with switch.agent as agent:
        address = "{}:{}".format(*await agent.start())
        recording = await snapshot(address, "public", progress=lines.append)
    assert recording.problems == []
    path = tmp_path / "one.snmprec"
    path.write_text(snmp_recording.dump(anonymise(recording.rows)))
    assert "acme" not in path.read_text()
    loaded = snmp_recording.load(path)
    assert loaded.problems == []
    for column in (
        "1.3.6.1.2.1.31.1.1.1.1",
        "1.3.6.1.2.1.31.1.1.1.6",
        "1.3.6.1.2.1.2.2.1.14",
        "1.3.6.1.4.1.30065.3.11.1.1.1.4",
        "1.3.6.1.4.1.30065.3.13.1.9.1.4",
        "1.3.6.1.2.1.99.1.1.1.4",
    ):
        async with switch.agent as live, SnmpAgent(loaded.rows) as replayed:
            assert await walked(live, column) == await walked(replayed, column) != {}
    assert any(re.fullmatch(r"ifXTable: \d+ rows", line) for line in lines)
    assert any(line.startswith("enterprise 30065: ") for line in lines)


async def test_a_section_that_never_ends_is_cut_off_and_the_others_are_read():
    rows = {**ROWS, **{parse_oid(f"{V1}.4.1.1.9.0.{port}.1"): text("h") for port in range(3, 9)}}
    loop = parse_oid(f"{V1}.4.1.1.9")
    async with SnmpAgent(rows, faults=SnmpFaults(loop={loop})) as agent:
        address = "{}:{}".format(*await agent.start())
        recording = await snapshot(address, "public", limits=SnapshotLimits(rows=50, seconds=20, bytes=10**6))
    (problem,) = recording.problems
    assert problem.startswith(f"LLDP, neighbours: {V1}.4.1.1.9: ")
    assert parse_oid(f"{V1}.4.1.1.10.0.1.1") in recording.rows, "the column behind it"
    assert parse_oid("1.3.6.1.4.1.30065.3.11.1.1.1.3.1.3") in recording.rows
    assert parse_oid(f"{V1}.4.1.1.9.0.8.1") in recording.rows


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr("exporter.snmp.snapshot._TIMEOUT", 0.2)
    monkeypatch.setattr("exporter.snmp.snapshot._RETRIES", 1)


async def test_a_table_that_times_out_affects_no_other(impatient):
    async with SnmpAgent(ROWS, faults=SnmpFaults(silent_on={parse_oid("1.3.6.1.2.1.31")})) as agent:
        address = "{}:{}".format(*await agent.start())
        recording = await snapshot(address, "public")
    assert any(problem.startswith("ifXTable: ") for problem in recording.problems)
    assert parse_oid("1.3.6.1.4.1.30065.3.11.1.1.1.3.1.3") in recording.rows
    assert parse_oid("1.3.6.1.2.1.31.1.1.1.6.1") not in recording.rows


async def test_a_switch_that_stops_responding_ends_the_snapshot(impatient):
    async with SnmpAgent(ROWS) as agent:
        address = "{}:{}".format(*await agent.start())

        def progress(line):
            agent.faults.silent = agent.faults.silent or line.startswith("ifTable: ")

        recording = await snapshot(address, "public", progress=progress)
    assert parse_oid("1.3.6.1.2.1.2.2.1.2.1") in recording.rows
    left_out = [problem for problem in recording.problems if problem.endswith("stopped responding")]
    assert len(recording.problems) - len(left_out) == 1
    assert left_out[-1].startswith("enterprise 30065: ")


async def test_sections_over_the_limits_are_skipped_and_reported():
    async with SnmpAgent(ROWS) as agent:
        address = "{}:{}".format(*await agent.start())
        recording = await snapshot(address, "public", limits=SnapshotLimits(bytes=100))
    assert parse_oid("1.3.6.1.2.1.1.5.0") in recording.rows
    assert parse_oid("1.3.6.1.2.1.2.2.1.2.1") not in recording.rows
    assert any(problem.startswith("ifTable: skipped, since ") for problem in recording.problems)


async def test_an_unresponsive_switch_is_an_error():
    async with SnmpAgent(ROWS, faults=SnmpFaults(silent=True)) as agent:
        address = "{}:{}".format(*await agent.start())
        with pytest.raises(SnmpTimeout):
            await snapshot(address, "public", limits=SnapshotLimits(seconds=0.2))


@pytest.mark.parametrize("flags", [["--snmp.community-env", "SECRET"], ["--snmp.version", "3", "--snmp.user", "u"]])
@pytest.mark.parametrize("host", ["leaf..example", f"{'x' * 64}.example", "leaf\udcff", "..:161"])
def test_a_host_that_cannot_be_a_name_is_one_line(capsys, monkeypatch, host, flags):
    monkeypatch.setenv("SECRET", "public")
    assert cli.main(["snapshot", host, *flags]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"fabric-exporter: address {host!r}: ")


@pytest.mark.parametrize(
    ("flags", "place"),
    [
        (["--snmp.community-env", "SECRET"], "environment variable SECRET: the secret"),
        (["--snmp.version=3", "--snmp.user=\udcff"], "user or context: it"),
    ],
)
def test_a_secret_that_is_not_utf8_is_one_line_without_it(capsys, monkeypatch, flags, place):
    monkeypatch.setenv("SECRET", "in-secret-\udcff")
    assert cli.main(["snapshot", "127.0.0.1:9", *flags]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"fabric-exporter: {place} is not valid UTF-8"


def test_a_password_that_is_not_utf8_is_an_error_without_it(monkeypatch):
    monkeypatch.setenv("SECRET", "in-secret-\udcff")
    options = Snmp(version=3, user="u", auth="sha", auth_password_env="SECRET")
    with pytest.raises(SecretError, match=r"^environment variable SECRET: the secret is not valid UTF-8$"):
        read_credentials(options)


IDENTITIES = [
    "1.3.6.1.2.1.1.4", "1.3.6.1.2.1.1.5", "1.3.6.1.2.1.1.6", "1.3.6.1.2.1.2.2.1.6", "1.3.6.1.2.1.31.1.1.1.18",
    "1.3.6.1.2.1.47.1.1.1.1.11", f"{V1}.3.2", f"{V1}.3.3", f"{V1}.4.1.1.5", f"{V1}.4.1.1.9",
]  # fmt: skip
"""sysContact, sysName, sysLocation, MAC addresses, aliases, serial numbers, chassis IDs and names of LLDP."""


@pytest.mark.parametrize("origin", ["own", "corpus"])
def test_of_recorded_switches_no_name_address_or_serial_number_remains(request, origin):
    own = FIXTURES / "switch-snapshots"
    folder = own if origin == "own" else request.getfixturevalue("corpus") / "switch" / "snmprec"
    paths = sorted(folder.rglob("*.snmprec"))
    assert paths
    for path in paths:
        rows = snmp_recording.load(path).rows
        kept = anonymise(rows)
        written = snmp_recording.dump(kept).lower()
        ports = {value.value for oid, value in kept.items() if oid[:10] == parse_oid("1.3.6.1.2.1.31.1.1.1")}
        beginnings = tuple(map(parse_oid, IDENTITIES))
        private = {value.value for oid, value in rows.items() if any(oid[: len(one)] == one for one in beginnings)}
        # Aliases that are port names, and words such as `none`, identify nothing.
        for content in private - ports:
            if isinstance(content, bytes) and len(content) > 5 and any(content):
                assert content.hex() not in written, path.name
                assert content.decode("latin-1").strip().lower() not in written, path.name
        names = [oid for oid in rows if oid[:11] == parse_oid("1.3.6.1.2.1.31.1.1.1.1")]
        same = sum(kept[oid] == rows[oid] for oid in names)
        assert same >= 0.8 * len(names), f"{path.name}: interfaces keep their names"
        counters = [oid for oid in rows if oid[:11] == parse_oid("1.3.6.1.2.1.31.1.1.1.6")]
        assert all(kept[oid] == rows[oid] for oid in counters)
