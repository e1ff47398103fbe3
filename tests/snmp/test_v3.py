"""SNMPv3: keys of the RFCs, net-snmp's agent in every algorithm, and invalid or forged messages."""

import asyncio
import contextlib
import os
import socket
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.simulator.snmp_agent import SnmpAgent
from exporter.simulator.snmp_v3 import Engine
from exporter.snmp import usm, v3
from exporter.snmp.ber import (
    COUNTER64,
    INTEGER,
    OCTET_STRING,
    Typed,
    format_oid,
)
from exporter.snmp.client import SnmpClient
from exporter.snmp.errors import DecodeError, SnmpAuthenticationError, SnmpTimeout
from exporter.snmp.message import (
    GET,
    RESPONSE,
    V1,
    encode_pdu,
)
from exporter.snmp.security import (
    Authentication,
    Community,
    Privacy,
    User,
)
from exporter.snmp.session import MismatchError, UserSession, Verdict
from exporter.snmp.usm import (
    KEY_SECONDS,
    MAX_KEYS,
    Cipher,
    PasswordKeys,
    Signer,
    localized_key,
    password_key,
)
from tests.helpers.snmp_agents import reboot

ENGINE_OF_RFC = bytes.fromhex("000000000000000000000002")
PASSWORD, SECRET = b"authentication-1", b"privacy-secret-2"
COLUMN = (1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 6)
ROWS = {(*COLUMN, port): Typed(COUNTER64, 2**60 + port) for port in range(1, 200)}
SYSTEM = (1, 3, 6, 1, 2, 1, 1)
QUICK = {"timeout": 0.1, "retries": 1, "deadline": 5.0}
PATIENT = {"timeout": 3.0, "retries": 1, "deadline": 10.0}


def user(authentication=Authentication.SHA256, privacy=Privacy.AES, **options):
    name = f"{authentication.value if authentication else 'none'}-{privacy.value if privacy else 'none'}"
    return User(
        options.pop("name", name),
        authentication,
        options.pop("password", PASSWORD) if authentication else b"",
        privacy,
        options.pop("secret", SECRET) if privacy else b"",
        **options,
    )


EVERY = [
    user(None, None),
    *(user(authentication, None) for authentication in Authentication),
    *(user(authentication, privacy) for authentication in Authentication for privacy in Privacy),
]

every_user = pytest.mark.parametrize("asking", EVERY, ids=lambda one: one.name)


# --- keys


@pytest.mark.parametrize(
    ("authentication", "key", "local"),
    [  # RFC 3414, A.3.1 and A.3.2
        (Authentication.MD5, "9faf3283884e92834ebc9847d8edd963", "526f5eed9fcce26f8964c2930787d82b"),
        (
            Authentication.SHA,
            "9fb5cc0381497b3793528939ff788d5d79145211",
            "6695febc9288e36282235fc7151f128497b38f3f",
        ),
    ],
)
def test_keys_of_rfc_3414(authentication, key, local):
    made = password_key(authentication, b"maplesyrup")
    assert made.hex() == key
    assert localized_key(authentication, made, ENGINE_OF_RFC).hex() == local


def test_keys_of_passwords_are_kept_for_an_hour_and_are_bounded(monkeypatch):
    """Thousands of switches share a password, from which deriving the key costs milliseconds."""
    derived, now = [], [0.0]
    monkeypatch.setattr(usm, "password_key", lambda _, password: derived.append(password) or b"key")
    keys = PasswordKeys(lambda: now[0])

    def ask(number):
        asking = User("u", Authentication.SHA, b"password %d" % number)
        keys.authentication_key(asking, ENGINE_OF_RFC)

    for _ in range(3):
        ask(0)
    now[0] = KEY_SECONDS - 1
    ask(0)
    assert derived == [b"password 0"]
    now[0] = KEY_SECONDS
    ask(0)
    assert derived == [b"password 0"] * 2
    for number in range(MAX_KEYS + 1):
        ask(number)
    assert len(keys._keys) == MAX_KEYS
    ask(0)  # the oldest made room for the newest
    assert derived[2:] == [*(b"password %d" % number for number in range(1, MAX_KEYS + 1)), b"password 0"]


def test_a_key_extended_by_reeders_draft():
    """draft-reeder-snmpv3-usm-3desede-00, 5.3 has the 32 bytes that maplesyrup gives by MD5."""
    long = User("u", Authentication.MD5, b"maplesyrup", Privacy.AES256C, b"maplesyrup")
    assert PasswordKeys().privacy_key(long, ENGINE_OF_RFC).hex() == (
        "526f5eed9fcce26f8964c2930787d82b79eff44a90650ee0a3a40abfac5acc12"
    )


@every_user
def test_encryption_round_trips_and_never_repeats_a_salt(asking):
    if asking.privacy is None:
        return
    cipher = Cipher(asking.privacy, PasswordKeys().privacy_key(asking, ENGINE_OF_RFC))
    (first, salt), (second, other) = (
        cipher.encrypt(b"sixteen bytes or", 7, 8),
        cipher.encrypt(b"sixteen bytes or", 7, 8),
    )
    assert salt != other
    assert first != second
    assert b"sixteen" not in first
    assert cipher.decrypt(first, salt, 7, 8) == b"sixteen bytes or"


def test_passwords_are_never_shown():
    shown = repr([*EVERY, Community(b"hush-hush")])
    assert PASSWORD.decode() not in shown
    assert SECRET.decode() not in shown
    assert "hush" not in shown


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"name": ""}, "1 to 32 bytes"),
        ({"name": "x" * 33}, "1 to 32 bytes"),
        ({"name": "u", "privacy": Privacy.AES, "privacy_password": SECRET}, "needs authentication"),
        ({"name": "u", "authentication": Authentication.SHA, "authentication_password": b"short"}, "shorter than 8"),
    ],
)
def test_invalid_users_are_rejected(options, text):
    with pytest.raises(ValueError, match=text):
        User(**options)


# --- net-snmp's agent and programs

THEIRS = {
    Authentication.MD5: "MD5",
    Authentication.SHA: "SHA",
    Authentication.SHA224: "SHA-224",
    Authentication.SHA256: "SHA-256",
    Authentication.SHA384: "SHA-384",
    Authentication.SHA512: "SHA-512",
    Privacy.DES: "DES",
    Privacy.AES: "AES",
    Privacy.AES192: "AES-192",
    Privacy.AES256: "AES-256",
    Privacy.AES192C: "AES-192-C",
    Privacy.AES256C: "AES-256-C",
}
"""How net-snmp spells what it has."""


def free_port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as reserved:
        reserved.bind(("127.0.0.1", 0))
        return reserved.getsockname()[1]


def level(asking):
    return "authPriv" if asking.privacy else "authNoPriv" if asking.authentication else "noAuthNoPriv"


def created(asking):
    """Write the line by which snmpd learns of a user; it has no longer DES or MD5 where its OpenSSL has not."""
    words = ["createUser", asking.name]
    if asking.authentication:
        words += [THEIRS[asking.authentication], PASSWORD.decode()]
    if asking.privacy:
        words += [THEIRS[asking.privacy], SECRET.decode()]
    return " ".join(words) + "\nrouser {} {}\n".format(
        asking.name, {"authPriv": "priv", "authNoPriv": "auth"}.get(level(asking), "noauth")
    )


class Snmpd:
    """net-snmp's agent on a port of its own, which can be started again."""

    def __init__(self, path, folder):
        self.path, self.folder, self.port = path, folder, free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.process = None
        (folder / "state").mkdir()
        (folder / "snmpd.conf").write_text(
            f"rocommunity public 127.0.0.1\nsysname leaf-01\n{''.join(map(created, EVERY))}"
        )

    def start(self):
        # Without other files it would not read its own state either: snmpEngineBoots.
        files = f"{self.folder}/snmpd.conf,{self.folder}/state/snmpd.conf"
        self.process = subprocess.Popen(
            [
                self.path,
                "-f",
                "-Lo",
                "-r",
                "-C",
                "-c",
                files,
                "-I",
                "-smux",
                f"udp:{self.address}",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"SNMP_PERSISTENT_DIR": str(self.folder / "state"), "MIBS": ""},
        )
        seen = ""
        while "NET-SNMP version" not in seen:  # printed when it listens
            line = self.process.stdout.readline()
            assert line, seen
            seen += line

    def stop(self):
        self.process.terminate()
        self.process.communicate()


@pytest.fixture(scope="module")
def snmpd(program, tmp_path_factory):
    agent = Snmpd(program("snmpd"), tmp_path_factory.mktemp("snmpd"))
    agent.start()
    yield agent
    agent.stop()


@every_user
async def test_snmpd_responds_with_every_algorithm_it_supports(snmpd, asking):
    async with SnmpClient(snmpd.address, asking, **PATIENT) as client:
        found = await client.get([(*SYSTEM, 5, 0)])
        walked = await client.walk([(*SYSTEM, 9, 1, 2)])
        assert found.values == {(*SYSTEM, 5, 0): Typed(OCTET_STRING, b"leaf-01")}
        assert len(walked.columns[*SYSTEM, 9, 1, 2].rows) > 2
        assert walked.problems == []
        assert client.engine_id[:5].hex() == "80001f8880"
        assert client.boots == (1 if asking.authentication else client.boots)


async def test_snmpd_by_v1(snmpd):
    async with SnmpClient(snmpd.address, Community(b"public", V1), **PATIENT) as client:
        missing = (*SYSTEM, 77, 0)
        found = await client.get([missing, (*SYSTEM, 5, 0)])
        walked = await client.walk([(*SYSTEM, 9, 1, 2), (*SYSTEM, 9, 1, 4), (1, 3, 6, 1, 77)])
    assert found.values == {(*SYSTEM, 5, 0): Typed(OCTET_STRING, b"leaf-01")}
    assert found.problems == walked.problems == []
    counts = [len(column.rows) for column in walked.columns.values()]
    assert counts[0] == counts[1] > 2
    assert counts[2] == 0
    assert all(column.complete for column in walked.columns.values())


@pytest.mark.parametrize(
    ("asking", "text"),
    [
        (user(name="nobody"), "does not know the user 'nobody'"),
        (user(password=b"not-the-password"), "rejects our signature; check the authentication password and algorithm"),
        (user(Authentication.SHA512, name="sha256-aes"), "rejects our signature"),
        (user(privacy=None, name="none-none"), "rejects the security level|rejects our signature"),
    ],
)
async def test_snmpd_rejections_name_the_cause(snmpd, asking, text):
    async with SnmpClient(snmpd.address, asking, **PATIENT) as client:
        with pytest.raises(SnmpAuthenticationError, match=text) as caught:
            await client.get([(*SYSTEM, 5, 0)])
    assert caught.value.args[0].startswith(snmpd.address)
    assert PASSWORD.decode() not in str(caught.value)


async def test_snmpd_that_was_restarted(program, tmp_path):
    agent = Snmpd(program("snmpd"), tmp_path)
    agent.start()
    try:
        async with SnmpClient(agent.address, user(), **PATIENT) as client:
            await client.get([(*SYSTEM, 5, 0)])
            assert client.boots == 1
            agent.stop()
            agent.start()
            found = await client.get([(*SYSTEM, 5, 0)])
            assert found.values
            assert client.boots == 2
    finally:
        agent.stop()


# --- the simulated agent


@pytest.fixture
async def agent():
    async with SnmpAgent(ROWS, engine=Engine(EVERY)) as running:
        running.address = "{}:{}".format(*await running.start())
        yield running


@every_user
async def test_snmpbulkwalk_of_the_simulated_v3_agent(agent, program, asking):
    if asking.privacy in (Privacy.AES192C, Privacy.AES256C):
        return  # this agent has them; net-snmp's programs take the same keys by other names in some builds alone
    options = ["-v3", "-u", asking.name, "-l", level(asking), "-t", "20", "-m", "", "-On"]
    if asking.authentication:
        options += ["-a", THEIRS[asking.authentication], "-A", PASSWORD.decode()]
    if asking.privacy:
        options += ["-x", THEIRS[asking.privacy], "-X", SECRET.decode()]
    process = await asyncio.create_subprocess_exec(
        program("snmpbulkwalk"), *options, f"udp:{agent.address}", format_oid(COLUMN), stdout=subprocess.PIPE
    )
    out, _ = await process.communicate()
    lines = [line for line in out.decode().splitlines() if "No more variables" not in line]
    assert len(lines) == len(ROWS)
    assert lines[0] == f".{format_oid(COLUMN)}.1 = Counter64: {2**60 + 1}"


async def walked(client):
    result = await client.walk([COLUMN])
    assert result.problems == []
    return result.columns[COLUMN].rows


WANTED = {(port,): 2**60 + port for port in range(1, 200)}


@every_user
async def test_a_walk_of_the_simulated_agent(agent, asking):
    async with SnmpClient(agent.address, asking, **PATIENT) as client:
        assert await walked(client) == WANTED
        assert client.counters.reports == 1  # the engine discovery, which contains the time
        assert client.counters.retries == client.counters.mismatched == 0
        assert client.boots == 1


async def test_an_agent_restart_is_followed_within_the_request(agent):
    async with SnmpClient(agent.address, user(), **PATIENT) as client:
        await walked(client)
        reboot(agent.engine)
        assert await walked(client) == WANTED
        assert client.boots == 2
        assert client.counters.retries == 0


async def test_another_engine_id_is_discovered_again(agent):
    async with SnmpClient(agent.address, user(), **PATIENT) as client:
        await walked(client)
        agent.engine.set_engine_id(bytes.fromhex("80000000050a0b0c0d0e"))
        reboot(agent.engine, 1)
        assert await walked(client) == WANTED
        assert client.engine_id.hex() == "80000000050a0b0c0d0e"


async def test_an_agent_that_loses_its_boots_is_discovered_again_after_the_timeout(agent):
    """Its clock jumps back with the same boots: its responses look like replays until the next discovery."""
    now = [10_000.0]
    agent.engine.clock = lambda: now[0]
    reboot(agent.engine, 5)
    now[0] += 5_000
    async with SnmpClient(agent.address, user(), **QUICK) as client:
        await walked(client)
        reboot(agent.engine, 5)
        with pytest.raises(SnmpTimeout, match="with another community, user or signature"):
            await client.walk([COLUMN])
        assert await walked(client) == WANTED


async def test_a_clock_outside_the_window_is_set_once(agent):
    now = [10_000.0]
    agent.engine.clock = lambda: now[0]
    reboot(agent.engine)
    async with SnmpClient(agent.address, user(), **PATIENT) as client:
        await walked(client)
        now[0] += 1_000
        assert await walked(client) == WANTED
        assert agent.engine.reports == {4: 1, 2: 1}


async def test_lost_responses_are_retried(agent):
    agent.faults.drop_every = 3
    async with SnmpClient(agent.address, user(), timeout=0.1, retries=5, deadline=60) as client:
        assert await walked(client) == WANTED
        assert client.counters.retries > 0


async def test_an_unresponsive_agent_times_out_at_the_engine_discovery(agent):
    agent.faults.silent = True
    async with SnmpClient(agent.address, user(), **QUICK) as client:
        with pytest.raises(SnmpTimeout, match=r"the engine discovery, tried 2 times \(an agent without v3"):
            await client.walk([COLUMN])


async def test_endless_reports_are_an_error():
    """An agent that reports after each request that the time is wrong, with a valid signature."""

    class Contrary(Engine):
        def open(self, data):
            reboot(self)
            return super().open(data)

    async with SnmpAgent(ROWS, engine=Contrary(EVERY)) as agent:
        agent.address = "{}:{}".format(*await agent.start())
        async with SnmpClient(agent.address, user(), **PATIENT) as client:
            with pytest.raises(SnmpAuthenticationError, match="clock differs, after each of 3 requests"):
                await client.get([COLUMN])


# --- attacks by a man in the middle


@pytest.fixture
def clock():
    return [1000.0]


@pytest.fixture
def met(clock):
    """Return an engine and a session after the engine discovery."""
    engine = Engine(EVERY, clock=lambda: clock[0])
    session = UserSession(user(), clock=lambda: clock[0])
    report = session.unwrap(engine.open(session.discovery(7)))
    assert report.request_id == 7
    assert session.handle_report(report)[0] is Verdict.RESEND
    return engine, session


def answered(engine, session, number=8):
    asked = engine.open(session.wrap(number, encode_pdu(GET, number, 0, 0, ())))
    return asked.wrap(encode_pdu(RESPONSE, number, 0, 0, ()))


def test_a_response_is_accepted(met):
    engine, session = met
    assert session.unwrap(answered(engine, session)).request_id == 8
    assert session.boots == 1


@pytest.mark.parametrize("place", range(1, 160, 7))
def test_a_modified_response_is_rejected(met, place):
    engine, session = met
    data = bytearray(answered(engine, session))
    data[-place % len(data)] ^= 0x10
    with pytest.raises((MismatchError, DecodeError)):
        session.unwrap(bytes(data))


@pytest.mark.parametrize("asking", [user(None, None), user(privacy=None)], ids=lambda one: one.name)
def test_a_response_with_a_lower_security_level_is_rejected(met, asking):
    engine, session = met
    lesser = engine._keys[asking.name.encode()]._replace(user=user())
    data = engine._wrap(lesser, b"", 8, encode_pdu(RESPONSE, 8, 0, 0, ()))
    with pytest.raises(MismatchError, match=r"lower security level|signature"):
        session.unwrap(data)


def test_an_old_response_is_rejected(met, clock):
    engine, session = met
    old = answered(engine, session)
    clock[0] += 149
    assert session.unwrap(old)
    clock[0] += 3
    with pytest.raises(MismatchError, match="outside of the time window"):
        session.unwrap(old)


def test_a_response_from_before_the_restart_is_rejected(met):
    engine, session = met
    old = answered(engine, session)
    reboot(engine)
    report = session.unwrap(engine.open(session.wrap(9, encode_pdu(GET, 9, 0, 0, ()))))
    assert session.handle_report(report)[0] is Verdict.RESEND
    with pytest.raises(MismatchError, match="outside of the time window"):
        session.unwrap(old)


def test_an_unsigned_time_is_rejected(met):
    engine, session = met
    lie = Engine([user(None, None)], engine_id=engine.engine_id, boots=99)
    data = lie._report(2, v3.decode(session.wrap(9, encode_pdu(GET, 9, 0, 0, ()))))
    verdict, text = session.handle_report(session.unwrap(data))
    assert verdict is Verdict.FAIL
    assert "in an unsigned Report" in text
    assert session.boots is None


def test_an_engine_id_that_is_too_short_is_rejected():
    session = UserSession(user())
    report = session.unwrap(Engine([], engine_id=b"1234").open(session.discovery(1)))
    assert session.handle_report(report) == (Verdict.FAIL, "the agent's snmpEngineID is too short (31323334)")
    assert not session.is_ready


# --- malformed datagrams


@given(st.binary(max_size=300))
def test_random_bytes_raise_only_decode_error(data):
    for read in (v3.decode, v3.decode_scoped):
        with contextlib.suppress(DecodeError):
            read(data)


@given(st.integers(0, 10_000), st.integers(0, 255), st.integers(0, 400))
def test_modified_and_truncated_messages_raise_only_their_errors(place, value, size):
    asking = user(None, None)
    engine, session = Engine([asking]), UserSession(asking)
    session.handle_report(session.unwrap(engine.open(session.discovery(1))))
    data = bytearray(answered(engine, session))
    data[place % len(data)] = value
    for one in (bytes(data), bytes(data[:size])):
        with contextlib.suppress(DecodeError, MismatchError):
            session.unwrap(one)
        engine.open(one)  # returns a request, a report or nothing, and raises nothing


def test_signatures_have_the_length_of_their_rfc():
    keys = PasswordKeys()
    sizes = {one: Signer(one, keys.authentication_key(user(one, None), ENGINE_OF_RFC)).size for one in Authentication}
    assert list(sizes.values()) == [12, 12, 16, 24, 32, 48]


# --- several requests in flight, and responses from other addresses


async def test_two_requests_in_flight(agent):
    columns = [(*COLUMN[:-1], number) for number in range(1, 11)]
    agent.set_many({(*column, row): Typed(INTEGER, row) for column in columns for row in range(50)})
    async with SnmpClient(agent.address, user(), window=2, **PATIENT) as client:
        both = await client.walk(columns)
    async with SnmpClient(agent.address, user(), **PATIENT) as client:
        one = await client.walk(columns)
    assert list(both.columns) == list(one.columns) == columns
    assert {oid: column.rows for oid, column in both.columns.items()} == {
        oid: column.rows for oid, column in one.columns.items()
    }


async def test_two_requests_in_flight_with_losses(agent):
    agent.faults.drop_every = 4
    columns = [(*COLUMN[:-1], number) for number in range(20, 30)]
    agent.set_many({(*column, row): Typed(INTEGER, row) for column in columns for row in range(50)})
    async with SnmpClient(agent.address, user(), window=2, timeout=0.1, retries=6, deadline=60) as client:
        result = await client.walk(columns)
    assert result.problems == []
    assert [column.rows for column in result.columns.values()] == [{(row,): row for row in range(50)}] * 10


@pytest.mark.parametrize("credentials", [Community(b"public"), user()], ids=["v2c", "v3"])
async def test_responses_from_another_port_are_accepted_if_unconnected(credentials):
    async with SnmpAgent(ROWS, engine=Engine(EVERY)) as agent:
        agent.address = "{}:{}".format(*await agent.start())
        async with SnmpClient(agent.address, credentials, unconnected=True, **QUICK) as client:
            assert await walked(client) == WANTED
            agent.faults.other_port = True
            assert await walked(client) == WANTED
        async with SnmpClient(agent.address, credentials, **QUICK) as client:
            with pytest.raises(SnmpTimeout):
                await client.walk([COLUMN])


async def test_reports_from_another_port_are_never_accepted():
    async with SnmpAgent(ROWS, engine=Engine(EVERY)) as agent:
        agent.address = "{}:{}".format(*await agent.start())
        agent.faults.other_port = True
        async with SnmpClient(agent.address, user(), unconnected=True, **QUICK) as client:
            with pytest.raises(SnmpTimeout):
                await client.walk([COLUMN])
            assert client.counters.mismatched == 2
