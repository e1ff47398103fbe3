"""Traps and informs, sent by net-snmp: accepted only from targets, with their own credentials, within a rate limit."""

import asyncio
import contextlib
import socket
import subprocess

import pytest

from exporter.core.source import SourceError
from exporter.sources.switch import traps
from exporter.sources.switch.options import Snmp, Target, Traps
from exporter.sources.switch.registry import SwitchRegistry
from exporter.sources.switch.targets import SwitchOptions
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

    def __init__(self, snmp, address="127.0.0.1"):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as reserved:
            reserved.bind(("127.0.0.1", 0))
            self.port = reserved.getsockname()[1]
        self.registry = SwitchRegistry()
        self.registry.configure({"leaf-1": address})
        self.polled = []
        self.registry.poll_callbacks["leaf-1"] = self.polled.append
        target = Target(name="leaf-1", address=address, snmp=snmp)
        self.source = TrapSource(Traps(listen=(f"127.0.0.1:{self.port}",)), [target], self.registry)

    async def counts(self):
        reading = await self.source.read()
        assert reading.failures == []
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
    await made.counts()
    try:
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
        (V3, (*SIGNED[:-1], "another-password", "-e", f"0x{ENGINE}")),
        (V3, ("-v3", "-u", "unknown", *SIGNED[3:], "-e", f"0x{ENGINE}")),
        (V3, (*SIGNED, "-e", "0x8000000009090909")),
    ],
    ids=["community", "password", "user", "engine"],
)
async def test_wrong_credentials_are_refused(send, snmp, options):
    async with listening(snmp) as here:
        await send("snmptrap", here, *options)
        await send("snmptrap", here, *(COMMUNITY if snmp is V2C else (*SIGNED, "-e", f"0x{ENGINE}")))
        for _ in range(100):
            if (await here.counts())[0]:
                break
            await asyncio.sleep(0.05)
        assert (await here.counts())[0] == {"link_down": 1}  # the second alone


async def test_a_trap_with_a_lower_security_level_is_refused(send):
    async with listening(V3) as here:
        await send("snmptrap", here, "-v3", "-u", "trapper", "-l", "noAuthNoPriv", "-e", f"0x{ENGINE}")
        await here.until(({}, {"credentials": 1}))
        assert here.polled == []


async def test_a_community_of_another_target_is_refused(send):
    async with listening() as here:
        other = Target(name="other", address="127.0.0.2", snmp=Snmp(community="of-the-other"))
        here.source._targets.append(other)
        await here.source.close()
        here.source._resolved_at = float("-inf")
        await here.counts()
        await send("snmptrap", here, "-v2c", "-c", "of-the-other")
        await here.until(({}, {"credentials": 1}))


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


async def test_malformed_datagrams_are_counted_and_do_no_harm(send):
    async with listening() as here:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for datagram in (b"not SNMP", b"", b"\x30\x82\xff\xff", b"\x30\x03\x02\x01\x05", b"\x30" * 1000):
                sock.sendto(datagram, ("127.0.0.1", here.port))
        await send("snmptrap", here, *COMMUNITY)
        for _ in range(100):
            events_seen, refused = await here.counts()
            if events_seen:
                break
            await asyncio.sleep(0.05)
        assert events_seen == {"link_down": 1}
        assert set(refused) <= {"malformed"}


async def test_a_port_in_use_is_an_error():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        options = Traps(listen=(f"127.0.0.1:{taken.getsockname()[1]}",))
        source = TrapSource(options, [], SwitchRegistry())
        with pytest.raises(SourceError, match=r"switches\.traps\.listen: .*in use; ports below 1024"):
            await source.read()
        await source.close()


def test_listening_is_off_unless_it_is_configured():
    assert SwitchOptions().traps is None
