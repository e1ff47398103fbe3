"""Traps and informs, sent by net-snmp: accepted only from targets, with their own credentials, within a rate limit."""

import asyncio
import contextlib
import socket
import subprocess
import time

import pytest

from exporter.core.source import SourceError
from exporter.snmp import ber, message, v3
from exporter.sources.switch import trap_head, traps
from exporter.sources.switch.options import Snmp, Target, Traps
from exporter.sources.switch.registry import SwitchRegistry
from exporter.sources.switch.targets import SwitchOptions
from exporter.sources.switch.trap_credentials import Security
from exporter.sources.switch.traps import TrapSource

LINK_DOWN, LINK_UP, COLD_START = (f"1.3.6.1.6.3.1.1.5.{number}" for number in (3, 4, 1))
IF_NAME = "1.3.6.1.2.1.31.1.1.1.1"
ENGINE = "8000000001020304"
AUTH, PRIV = "authentication-1", "privacy-secret-2"
V3 = Snmp(
    version=3, user="trapper", auth="sha256", auth_password=AUTH, priv="aes", priv_password=PRIV, engine_id=ENGINE
)
V2C = Snmp(community="traps-only")


class Listening:
    """A source that listens on loopback for one target, and the polls that it requested."""

    def __init__(self, snmp, address="127.0.0.1", others=(), host="127.0.0.1"):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as reserved:
            reserved.bind(("127.0.0.1", 0))
            self.port = reserved.getsockname()[1]
        self.registry = SwitchRegistry()
        self.registry.configure({"leaf-1": address})
        self.polled = []
        self.registry.poll_callbacks["leaf-1"] = self.polled.append
        target = Target(name="leaf-1", address=address, snmp=snmp)
        self.source = TrapSource(Traps(listen=(f"{host}:{self.port}",)), [target, *others], self.registry)
        self.failures = []

    async def counts(self):
        reading = await self.source.read()
        self.failures = reading.failures
        events, refused = reading.tables
        events_seen = {key[1]: events.values("traps_total")[place] for place, key in enumerate(events.rows.keys)}
        values = dict(zip(refused.rows.keys, refused.values("traps_refused_total"), strict=True))
        return events_seen, {reason: count for (reason,), count in values.items() if count}

    async def until(self, wanted):
        """Wait until the counts are as they should be, or show what they are."""
        for _ in range(100):
            if await self.counts() == wanted:
                return
            await asyncio.sleep(0.05)
        assert await self.counts() == wanted


@contextlib.asynccontextmanager
async def listening(snmp=V2C, **options):
    made = Listening(snmp, **options)
    try:
        await made.counts()
        yield made
    finally:
        await made.source.close()


@pytest.fixture
def send(program, tmp_path):
    """Return a function that sends a trap or an inform by net-snmp."""

    async def run(name, where, *options, event=LINK_DOWN, variables=()):
        process = await asyncio.create_subprocess_exec(
            program(name),
            *options,
            "-m",
            "",
            f"udp:127.0.0.1:{where.port}",
            "",
            event,
            *variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"SNMP_PERSISTENT_DIR": str(tmp_path), "MIBS": ""},
        )
        await process.communicate()
        return process.returncode

    return run


COMMUNITY = ("-v2c", "-c", "traps-only")
SIGNED = ("-v3", "-u", "trapper", "-l", "authPriv", "-a", "SHA-256", "-A", AUTH, "-x", "AES", "-X", PRIV)
NAMED = (f"{IF_NAME}.436207616", "s", "Ethernet1/7")


async def test_a_trap_polls_its_port_at_once_and_is_counted(send):
    async with listening() as here:
        assert await send("snmptrap", here, *COMMUNITY, variables=NAMED) == 0
        await here.until(({"link_down": 1}, {}))
        assert here.polled == ["Ethernet1/7"]


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="needs IPv6")
async def test_a_trap_of_an_ipv4_host_is_accepted_on_any_ipv6_address(send):
    async with listening(host="[::]") as here:
        assert await send("snmpinform", here, *COMMUNITY, "-r", "0", "-t", "5") == 0
        await here.until(({"link_down": 1}, {}))


@pytest.mark.parametrize(
    ("event", "word", "polls"),
    [(LINK_UP, "link_up", [""]), (COLD_START, "cold_start", [""]), ("1.3.6.1.4.1.99999.0.1", "other", [])],
)
async def test_events_have_labels(send, event, word, polls):
    async with listening() as here:
        await send("snmptrap", here, *COMMUNITY, event=event)
        await here.until(({word: 1}, {}))
        assert here.polled == polls


async def test_an_inform_is_answered(send):
    async with listening() as here:
        assert await send("snmpinform", here, *COMMUNITY, "-r", "0", "-t", "5", variables=NAMED) == 0
        await here.until(({"link_down": 1}, {}))


async def test_a_v3_trap_has_the_senders_engine_id(send):
    async with listening(V3) as here:
        assert await send("snmptrap", here, *SIGNED, "-e", f"0x{ENGINE}", variables=NAMED) == 0
        await here.until(({"link_down": 1}, {}))
        assert here.polled == ["Ethernet1/7"]


async def test_a_v3_inform_discovers_our_engine(send):
    async with listening(V3) as here:
        assert await send("snmpinform", here, *SIGNED, "-r", "0", "-t", "5") == 0
        await here.until(({"link_down": 1}, {}))


@pytest.mark.parametrize(
    ("snmp", "options"),
    [
        (V2C, ("-v2c", "-c", "another")),
        (V3, (*SIGNED[:8], "another-password", *SIGNED[9:], "-e", f"0x{ENGINE}")),
        (V3, (*SIGNED[:-1], "another-password", "-e", f"0x{ENGINE}")),
        (V3, ("-v3", "-u", "unknown", *SIGNED[3:], "-e", f"0x{ENGINE}")),
        (V3, (*SIGNED, "-e", "0x8000000009090909")),
    ],
    ids=["community", "password", "privacy password", "user", "engine"],
)
async def test_wrong_credentials_are_refused_and_counted(send, snmp, options):
    async with listening(snmp) as here:
        await send("snmptrap", here, *options)
        await here.until(({}, {"credentials": 1}))
        await send("snmptrap", here, *(COMMUNITY if snmp is V2C else (*SIGNED, "-e", f"0x{ENGINE}")))
        await here.until(({"link_down": 1}, {"credentials": 1}))


async def test_an_inform_with_a_wrong_password_is_refused_and_its_discovery_is_not_counted(send):
    async with listening(V3) as here:
        options = (*SIGNED[:8], "another-password", *SIGNED[9:], "-r", "0", "-t", "2")
        assert await send("snmpinform", here, *options) != 0
        await here.until(({}, {"credentials": 1}))


async def test_a_trap_with_a_lower_security_level_is_refused(send):
    async with listening(V3) as here:
        await send("snmptrap", here, "-v3", "-u", "trapper", "-l", "noAuthNoPriv", "-e", f"0x{ENGINE}")
        await here.until(({}, {"credentials": 1}))
        assert here.polled == []


async def test_a_community_of_another_target_is_refused(send):
    other = Target(name="other", address="127.0.0.2", snmp=Snmp(community="of-the-other"))
    async with listening(others=[other]) as here:
        await send("snmptrap", here, "-v2c", "-c", "of-the-other")
        await here.until(({}, {"credentials": 1}))


def replace_file(path, content):
    """Write a file as a rotation of secrets does."""
    new = path.with_name("new")
    new.write_text(content)
    new.replace(path)


async def test_a_secret_that_appears_later_is_read(send, tmp_path):
    secret = tmp_path / "community"
    async with listening(Snmp(community_file=str(secret))) as here:
        await send("snmptrap", here, *COMMUNITY)
        await here.until(({}, {"credentials": 1}))
        (failure,) = here.failures
        assert (failure.device, failure.reason) == ("leaf-1", "credentials")
        assert failure.detail.startswith(f"its traps are refused: {secret}: the secret cannot be read: ")
        replace_file(secret, "traps-only\n")
        await here.counts()
        assert here.failures == []
        await send("snmptrap", here, *COMMUNITY)
        await here.until(({"link_down": 1}, {"credentials": 1}))


async def test_a_changed_community_is_read_and_the_one_before_is_refused(send, tmp_path, monkeypatch):
    monkeypatch.setattr(traps, "UPDATE_SECONDS", 0.0)
    secret = tmp_path / "community"
    secret.write_text("before")
    same = Target(name="same", address="127.0.0.2", snmp=Snmp(community="before"))
    async with listening(Snmp(community_file=str(secret)), others=[same]) as here:
        replace_file(secret, "traps-only")
        await here.counts()
        await send("snmptrap", here, *COMMUNITY)
        await here.until(({"link_down": 1}, {}))
        await send("snmptrap", here, "-v2c", "-c", "before")
        await here.until(({"link_down": 1}, {"credentials": 1}))
        replace_file(secret, "once-more")
        await here.counts()
        await send("snmptrap", here, *COMMUNITY)
        await here.until(({"link_down": 1}, {"credentials": 2}))


async def test_a_changed_password_of_a_user_is_read(send, tmp_path, monkeypatch):
    monkeypatch.setattr(traps, "UPDATE_SECONDS", 0.0)
    secret = tmp_path / "password"
    secret.write_text("password-before")
    user = Snmp(version=3, user="trapper", auth="sha256", auth_password_file=str(secret), engine_id=ENGINE)
    signed = ("-v3", "-u", "trapper", "-l", "authNoPriv", "-a", "SHA-256", "-e", f"0x{ENGINE}", "-A")
    async with listening(user) as here:
        await send("snmptrap", here, *signed, "password-before")
        await here.until(({"link_down": 1}, {}))
        replace_file(secret, "password-after")
        await here.counts()
        await send("snmptrap", here, *signed, "password-after")
        await here.until(({"link_down": 2}, {}))
        await send("snmptrap", here, *signed, "password-before")
        await here.until(({"link_down": 2}, {"credentials": 1}))


async def test_a_secret_that_cannot_be_read_any_more_leaves_the_one_before(send, tmp_path, monkeypatch):
    monkeypatch.setattr(traps, "UPDATE_SECONDS", 0.0)
    secret = tmp_path / "community"
    secret.write_text("traps-only")
    async with listening(Snmp(community_file=str(secret))) as here:
        secret.unlink()
        await send("snmptrap", here, *COMMUNITY)
        await here.until(({"link_down": 1}, {}))
        assert here.failures[0].detail.startswith(f"the credentials read before are used: {secret}: ")


class Resolver:
    """The name server of the test: its answers by host; an exception is raised, and None is no answer."""

    def __init__(self, monkeypatch):
        self.answers = {}
        self.asked = []
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", self._resolve, raising=False)

    async def _resolve(self, host, port, **_):
        self.asked.append(host)
        answer = self.answers[host]
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        return [(socket.AF_INET, socket.SOCK_DGRAM, 17, "", (answer, 0))]


NO_ANSWER = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")


async def test_a_failure_of_the_name_server_leaves_the_address_before(send, monkeypatch):
    resolver = Resolver(monkeypatch)
    resolver.answers = {"leaf.example": "127.0.0.1"}
    async with listening(address="leaf.example") as here:
        monkeypatch.setattr(traps, "UPDATE_SECONDS", 0.0)
        resolver.answers["leaf.example"] = NO_ANSWER
        await here.counts()
        assert "the addresses resolved before are used: leaf.example: " in here.failures[0].detail
        await send("snmptrap", here, *COMMUNITY)
        await here.until(({"link_down": 1}, {}))


async def test_a_name_that_was_not_resolved_is_resolved_at_the_next_reading(send, monkeypatch):
    resolver = Resolver(monkeypatch)
    resolver.answers = {"leaf.example": NO_ANSWER, "other.example": "127.0.0.2"}
    other = Target(name="other", address="other.example", snmp=V2C)
    async with listening(address="leaf.example", others=[other]) as here:
        assert [(one.device, one.reason) for one in here.failures] == [("leaf-1", "unreachable")]
        await send("snmptrap", here, *COMMUNITY)
        await here.until(({}, {"unknown_sender": 1}))
        resolver.answers["leaf.example"] = "127.0.0.1"
        await here.counts()
        assert here.failures == []
        await send("snmptrap", here, *COMMUNITY)
        await here.until(({"link_down": 1}, {"unknown_sender": 1}))
        assert resolver.asked.count("other.example") == 1, "the one that was resolved"


@pytest.mark.parametrize("answer", [UnicodeError("label empty or too long"), None], ids=["error", "no answer"])
async def test_a_name_that_cannot_be_resolved_refuses_the_traps_of_no_other_target(send, monkeypatch, answer):
    monkeypatch.setattr(traps, "LOOKUP_SECONDS", 0.1)
    resolver = Resolver(monkeypatch)
    resolver.answers = {"leaf.example": answer, "other.example": "127.0.0.1"}
    other = Target(name="other", address="other.example", snmp=V2C)
    async with listening(address="leaf.example", others=[other]) as here:
        here.registry.configure({"leaf-1": "leaf.example", "other": "other.example"})
        assert [(one.device, one.reason) for one in here.failures] == [("leaf-1", "unreachable")]
        await here.counts()  # if the time for the first reading passed
        await send("snmptrap", here, *COMMUNITY)
        await here.until(({"link_down": 1}, {}))


async def test_keys_of_many_users_are_derived_in_several_readings(monkeypatch):
    derived = []

    def slowly(engine, credentials, engine_id):
        time.sleep(0.06)  # as the keys of version 3, for which passwords are hashed
        derived.append(credentials.community)

    monkeypatch.setattr(traps, "add_credentials", slowly)
    monkeypatch.setattr(traps, "LOOKUP_SECONDS", 0.1)
    others = [Target(name=f"t{n}", address=f"127.0.0.{n}", snmp=Snmp(community=f"c{n}")) for n in range(2, 6)]
    async with listening(others=others) as here:
        assert 1 <= len(derived) <= 2
        for _ in range(4):
            await here.counts()
    assert derived == [b"traps-only", b"c2", b"c3", b"c4", b"c5"]


async def test_datagrams_of_unknown_senders_are_refused(send):
    async with listening(address="127.0.0.9") as here:
        await send("snmptrap", here, *COMMUNITY)
        await here.until(({}, {"unknown_sender": 1}))


async def test_a_flood_is_rate_limited(send, monkeypatch):
    monkeypatch.setattr(traps, "RATE", 0.0)
    async with listening() as here:
        here.source._buckets["127.0.0.1"] = traps.TokenBucket(tokens=2.0)
        for _ in range(5):
            await send("snmptrap", here, *COMMUNITY)
        await here.until(({"link_down": 2}, {"rate_limited": 3}))
        assert here.polled == [""]  # and the second came too soon for another poll


MALFORMED = (b"not SNMP", b"", b"\x30\x82\xff\xff", b"\x30\x03\x02\x01\x05", b"\x30" * 1000)


async def test_malformed_datagrams_are_counted_and_do_no_harm(send):
    async with listening() as here:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for datagram in MALFORMED:
                sock.sendto(datagram, ("127.0.0.1", here.port))
        await send("snmptrap", here, *COMMUNITY)
        await here.until(({"link_down": 1}, {"malformed": len(MALFORMED)}))


def notification(community, size=0, kind=0xA7, version=1):
    """Return a trap about link 1 with so many bytes of variable bindings more, by the encoder of the poller."""
    trap_oid = ber.encode_value(ber.OBJECT_IDENTIFIER, ber.parse_oid(LINK_DOWN))
    bindings = [
        message.encode_varbind(ber.encode_oid(ber.parse_oid("1.3.6.1.2.1.1.3.0")), ber.encode_value(ber.TIME_TICKS, 1)),
        message.encode_varbind(ber.encode_oid(ber.parse_oid("1.3.6.1.6.3.1.1.4.1.0")), trap_oid),
    ]
    one = message.encode_varbind(ber.encode_oid((1, 3, 6, 1)), ber.encode_value(ber.OCTET_STRING, b"12345678"))
    bindings += [one] * (size // len(one))
    return message.encode_message(version, community, message.encode_pdu(kind, 1, 0, 0, bindings))


@contextlib.contextmanager
def senders(*addresses):
    """Open a socket for each address."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in addresses]
        for sock, address in zip(sockets, addresses, strict=True):
            sock.bind((address, 0))
        yield sockets


async def cpu_of(here, datagrams, sock):
    """Return the CPU time of datagrams, each counted before the next one is sent."""
    used = 0.0
    for datagram in datagrams:
        before = sum(here.source._refused.values()) + sum(here.source._counts.values())
        begun = time.process_time()
        sock.sendto(datagram, ("127.0.0.1", here.port))
        while sum(here.source._refused.values()) + sum(here.source._counts.values()) == before:  # noqa: ASYNC110
            await asyncio.sleep(0)
        used += time.process_time() - begun
    return used


@pytest.mark.parametrize("size", [60_000, 3_000], ids=["too large", "not too large"])
async def test_datagrams_without_the_community_cost_less_than_a_trap_with_it(size):
    """Seen on the running daemon: 40 of 64 kB a second took 92 % of the CPU, and blocked the loop."""
    async with listening() as here:
        with senders("127.0.0.1") as (sock,):
            await cpu_of(here, [notification(b"traps-only")] * 3, sock)  # what is loaded at the first
            usual = min([await cpu_of(here, [notification(b"traps-only")], sock) for _ in range(5)])
            flood = min([await cpu_of(here, [notification(b"wrong", size)], sock) for _ in range(20)])
        assert flood < usual
        reason = "too_large" if size > 4096 else "credentials"
        assert (await here.counts())[1] == {reason: 20}


async def test_a_flood_with_another_community_keeps_no_trap_out(send):
    async with listening() as here:
        with senders("127.0.0.1") as (sock,):
            await cpu_of(here, [notification(b"wrong")] * 100, sock)
        await send("snmptrap", here, *COMMUNITY)
        await here.until(({"link_down": 1}, {"credentials": 100}))


async def test_one_bucket_for_all_senders(monkeypatch):
    """The source of a datagram can be any target's address."""
    monkeypatch.setattr(traps, "LOOKUP_SECONDS", 60.0)  # all in the first reading
    addresses = [f"127.0.0.{number}" for number in range(1, 41)]
    others = [Target(name=address, address=address, snmp=V2C) for address in addresses[1:]]
    async with listening(others=others) as here:
        here.source._bucket_of_all.rate = 0.0
        with senders(*addresses) as sockets:
            for sock in sockets * 3:
                await cpu_of(here, [notification(b"traps-only", 600)], sock)  # two pieces of 512 bytes
        _, refused = await here.counts()
        assert refused == {"overload": 120 - 50}


@pytest.mark.parametrize(
    ("datagram", "reason"),
    [
        (notification(b"traps-only", kind=0xA0), "malformed"),  # GET
        (notification(b"traps-only", kind=0xA2), "malformed"),  # a response
        (notification(b"traps-only", version=0), "malformed"),  # of version 2, in a message of version 1
        (notification(b"traps-only", version=2), "malformed"),  # version 2u, which is historic
        (notification(b"traps-only", 4096), "too_large"),
        (notification(b"traps-onl"), "credentials"),
        (notification(b""), "credentials"),
        (notification(b"x" * 3000), "credentials"),
    ],
)
async def test_what_the_first_fields_refuse_is_counted_by_reason(datagram, reason):
    async with listening() as here:
        with senders("127.0.0.1") as (sock,):
            await cpu_of(here, [datagram], sock)
        assert await here.counts() == ({}, {reason: 1})


def v3_message(user, engine, flags=1):
    return v3.encode(1, flags, (engine, 1, 1), user, b"\x30\x00", signature_size=24)[0]


@pytest.mark.parametrize(
    ("datagram", "reason"),
    [
        (v3_message(b"trapper", bytes.fromhex(ENGINE), flags=3), None),
        (v3_message(b"trapper", b"our-own-engine", flags=3), None),
        (v3_message(b"", b"", flags=4), None),  # the discovery of an inform
        (v3_message(b"trapper", b"another-engine", flags=3), "credentials"),
        (v3_message(b"mallory", bytes.fromhex(ENGINE), flags=3), "credentials"),
        (v3_message(b"trapper", bytes.fromhex(ENGINE), flags=0), "credentials"),
        (v3_message(b"trapper", bytes.fromhex(ENGINE), flags=3)[:-9], "malformed"),
    ],
)
def test_user_engine_and_level_come_before_the_signature(datagram, reason):
    sender = trap_head.TrapSender("leaf-1", Security("trapper", 3, is_user=True), bytes.fromhex(ENGINE))
    other = trap_head.TrapSender("leaf-2", None)
    assert trap_head.refusal(datagram, [other, sender], b"our-own-engine") == reason
    assert trap_head.refusal(datagram, [other], b"our-own-engine") == (reason or "credentials")


async def test_a_target_with_a_mapped_address_is_its_ipv4_host(send):
    async with listening(address="::ffff:127.0.0.1") as here:
        await send("snmptrap", here, *COMMUNITY)
        await here.until(({"link_down": 1}, {}))


async def test_a_port_in_use_is_an_error():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        options = Traps(listen=(f"127.0.0.1:{taken.getsockname()[1]}",))
        source = TrapSource(options, [], SwitchRegistry())
        with pytest.raises(SourceError, match=r"switches\.traps\.listen: .*in use; ports below 1024"):
            await source.read()
        await source.close()


@pytest.mark.parametrize(
    "address",
    [
        "foo:1162",
        "localhost:1162",
        "::1:1162",
        "[127.0.0.1]:1162",
        "1162",
        "127.0.0.1",
        "[::1]",
        ":65536",
        ":snmp",
        ":",
    ],
)
def test_listening_needs_an_ip_address_and_a_port(address):
    with pytest.raises(ValueError, match=r"^listen has '.*'; write :PORT, IPV4:PORT or \[IPV6\]:PORT"):
        Traps(listen=(address,))


@pytest.mark.parametrize("address", [":162", "0.0.0.0:1162", "192.0.2.1:162", "[::]:162", "[2001:db8::1]:1162"])
def test_listening_on_an_ip_address_is_valid(address):
    assert Traps(listen=(address,)).listen == (address,)


def test_listening_is_off_unless_it_is_configured():
    assert SwitchOptions().traps is None
