"""Probes: allowed targets, credentials, the cache, results and limits."""

import asyncio
import contextlib
import socket

import pytest
from blockbuster import blockbuster_ctx

from exporter.config.errors import ConfigError
from exporter.config.yaml_reader import parse
from exporter.daemon import probe
from exporter.daemon.probe import Prober, ProbeRefusedError
from exporter.daemon.probe_options import ProbeOptions, is_allowed
from exporter.meaning.ports import rates
from exporter.simulator.snmp_agent import SnmpAgent
from exporter.snmp.ber import (
    COUNTER64,
    INTEGER,
    OCTET_STRING,
    TIME_TICKS,
    Typed,
)
from exporter.sources.switch.options import Snmp
from exporter.sources.switch.readers.snmp import profile
from exporter.sources.switch.registry import SwitchRegistry
from exporter.sources.switch.targets import CommonOptions, SwitchOptions, TargetOptions

IFX = (1, 3, 6, 1, 2, 1, 31, 1, 1, 1)
IN_OCTETS = (*IFX, 6, 1)
ROWS = {
    (1, 3, 6, 1, 2, 1, 1, 3, 0): Typed(TIME_TICKS, 100_000),
    (1, 3, 6, 1, 2, 1, 1, 5, 0): Typed(OCTET_STRING, b"leaf-a"),
    (1, 3, 6, 1, 2, 1, 2, 2, 1, 8, 1): Typed(INTEGER, 1),
    (*IFX, 1, 1): Typed(OCTET_STRING, b"Ethernet1"),
    IN_OCTETS: Typed(COUNTER64, 1_000),
}
SNMP = Snmp(community="public", timeout=5.0, retries=0)
QUICK = Snmp(community="public", timeout=0.1, retries=0)
LOOPBACK = ("127.0.0.0/8",)


@pytest.fixture
async def agent():
    async with SnmpAgent(ROWS) as running:
        running.address = "{}:{}".format(*await running.start())
        yield running


@contextlib.asynccontextmanager
async def prober(*, allow=(), modules=None, auths=None, targets=(), snmp=SNMP, **options):
    given = ProbeOptions(allow=allow, modules=modules or {}, auths=auths or {}, **options)
    switches = SwitchOptions(defaults=CommonOptions(snmp=snmp), targets=tuple(targets))
    made = Prober(given, switches, SwitchRegistry(), lambda: [rates.step])
    try:
        yield made
    finally:
        await made.close()


def values(result):
    """Return the values of all columns by metric and labels."""
    return {
        (column.metric.name, key): value
        for table in result.tables
        for column in table.columns.values()
        for key, value in zip(table.rows.keys, column.values, strict=True)
        if value is not None
    }


async def test_a_probe_of_an_allowed_target(agent):
    async with prober(allow=LOOPBACK) as probing:
        result = await probing.probe(agent.address)
    found = values(result)
    assert found["fabric_switch_receive_bytes_total", ("leaf-a", "Ethernet1")] == 1_000
    assert found["fabric_switch_link_up", ("leaf-a", "Ethernet1")] == 1
    assert found["fabric_probe_success", ()] == 1
    assert found["fabric_probe_duration_seconds", ()] > 0
    assert result.report.startswith("success after")
    assert f"polled {agent.address} by snmp, profile chosen by sysDescr and sysObjectID" in result.report
    assert "traffic: counted" in result.report
    assert "pfc: unsupported" in result.report
    assert "1 row of switch, port by snmp\n" in result.report
    assert "  receive_bytes_total: 1" in result.report


async def test_the_next_probe_has_rates_and_sends_fewer_requests(agent):
    async with prober(allow=LOOPBACK) as probing:
        await probing.probe(agent.address)
        first, agent.requests = agent.requests, 0
        agent.set(IN_OCTETS, Typed(COUNTER64, 5_000))
        found = values(await probing.probe(agent.address))
    assert found["fabric_switch_receive_bytes_total", ("leaf-a", "Ethernet1")] == 5_000
    assert found["fabric_switch_receive_bytes_per_second", ("leaf-a", "Ethernet1")] > 0
    assert 0 < agent.requests < first


async def test_concurrent_probes_share_one_poll(agent):
    async with prober(allow=LOOPBACK) as probing:
        await probing.probe(agent.address)
        agent.requests = 0
        await probing.probe(agent.address)
        alone, agent.requests = agent.requests, 0
        results = await asyncio.gather(*(probing.probe(agent.address) for _ in range(20)))
    assert agent.requests == alone
    assert all(values(result)["fabric_probe_success", ()] == 1 for result in results)


# --- allowed targets


@pytest.mark.parametrize(
    ("allow", "host"),
    [
        ((), "127.0.0.1"),
        (("192.0.2.0/24",), "127.0.0.1"),
        (("leaf-*",), "127.0.0.1"),
        (("192.0.2.0/24", "spine-*"), "localhost"),
        (("127.0.0.1/32",), "127.0.0.2"),
    ],
)
async def test_targets_that_are_not_allowed_get_no_packet(allow, host):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.setblocking(False)
        async with prober(allow=allow) as probing:
            with pytest.raises(ProbeRefusedError, match="neither a configured switch nor allowed") as caught:
                await probing.probe(f"{host}:{listening.getsockname()[1]}")
        assert caught.value.status == 403
        with pytest.raises(BlockingIOError):
            listening.recv(1)


async def test_without_networks_a_name_that_is_not_allowed_is_not_resolved(monkeypatch):
    async with prober(allow=("leaf-*",)) as probing:

        async def refuse(*_, **__):
            raise AssertionError("a question to the name server")

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", refuse)
        with pytest.raises(ProbeRefusedError, match="neither"):
            await probing.probe("spine-01.example.com")


async def test_a_name_is_resolved_once_and_that_address_is_polled(agent, monkeypatch):
    """Else a name could point elsewhere once it was checked."""
    port = agent.address.rpartition(":")[2]
    looked_up = []

    async def lookup(host, *_, **__):
        looked_up.append(host)
        address = "127.0.0.1" if len(looked_up) == 1 else "192.0.2.66"
        return [(socket.AF_INET, socket.SOCK_DGRAM, 17, "", (address, 0))]

    async with prober(allow=LOOPBACK) as probing:
        loop = asyncio.get_running_loop()
        usual = loop.getaddrinfo
        resolved = []

        async def watched(host, *given, **more):
            if host == "leaf-a.example.com":
                return await lookup(host)
            resolved.append(host)
            return await usual(host, *given, **more)

        monkeypatch.setattr(loop, "getaddrinfo", watched)
        result = await probing.probe(f"leaf-a.example.com:{port}")
    assert values(result)["fabric_probe_success", ()] == 1
    assert looked_up == ["leaf-a.example.com"]
    assert set(resolved) <= {"127.0.0.1"}


async def test_a_name_that_cannot_be_resolved_is_a_failed_probe(monkeypatch):
    async with prober(allow=("leaf-*",)) as probing:

        async def unknown(*_, **__):
            raise socket.gaierror(-2, "Name or service not known")

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", unknown)
        result = await probing.probe("leaf-1.example.com")
    assert values(result)["fabric_probe_success", ()] == 0
    assert "unreachable: the name 'leaf-1.example.com' cannot be resolved" in result.report


async def test_a_switch_that_moved_is_found_where_its_name_leads_to_now(agent, monkeypatch):
    port = agent.address.rpartition(":")[2]
    homes = ["127.0.0.2"]
    async with prober(allow=("leaf-*",), snmp=QUICK) as probing:
        loop = asyncio.get_running_loop()
        usual = loop.getaddrinfo

        async def lookup(host, *given, **more):
            return await usual(homes[0] if host.startswith("leaf-") else host, *given, **more)

        monkeypatch.setattr(loop, "getaddrinfo", lookup)
        assert values(await probing.probe(f"leaf-a:{port}"))["fabric_probe_success", ()] == 0
        homes[:] = ["127.0.0.1"]
        assert values(await probing.probe(f"leaf-a:{port}"))["fabric_probe_success", ()] == 1


async def test_a_name_that_leads_elsewhere_after_a_failed_probe_is_refused(monkeypatch):
    """DNS rebinding: the name is resolved again after a failure, and what it leads to is checked again."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as forbidden:
        forbidden.bind(("127.0.0.2", 0))
        forbidden.setblocking(False)
        homes = ["127.0.0.1"]
        async with prober(allow=("127.0.0.1/32",), snmp=QUICK) as probing:
            loop = asyncio.get_running_loop()
            usual = loop.getaddrinfo

            async def lookup(host, *given, **more):
                return await usual(homes[0] if host.startswith("leaf-") else host, *given, **more)

            monkeypatch.setattr(loop, "getaddrinfo", lookup)
            name = f"leaf-a.example.com:{forbidden.getsockname()[1]}"
            assert values(await probing.probe(name))["fabric_probe_success", ()] == 0
            homes[:] = ["127.0.0.2"]
            with pytest.raises(ProbeRefusedError, match="neither a configured switch nor allowed"):
                await probing.probe(name)
        with pytest.raises(BlockingIOError):
            forbidden.recv(1)


async def test_every_address_of_a_name_must_be_allowed(monkeypatch):
    async with prober(allow=LOOPBACK) as probing:

        async def both(*_, **__):
            return [(socket.AF_INET, socket.SOCK_DGRAM, 17, "", (one, 0)) for one in ("127.0.0.1", "192.0.2.1")]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", both)
        with pytest.raises(ProbeRefusedError, match="neither"):
            await probing.probe("leaf-a.example.com")


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("", "give target"),
        ("a" * 300, "give target"),
        ("a\nb", "give target"),
        ("leaf:0", "port '0'"),
        ("[::1", "IPv6"),
    ],
)
async def test_targets_that_are_none(target, text):
    async with prober(allow=LOOPBACK) as probing:
        with pytest.raises(ProbeRefusedError, match=text) as caught:
            await probing.probe(target)
    assert caught.value.status == 400


# --- switches of the configuration


async def test_a_switch_of_the_configuration_that_is_not_polled(agent):
    target = TargetOptions(name="leaf-1", address=agent.address, poll=False)
    async with prober(targets=[target]) as probing:
        assert values(await probing.probe("leaf-1"))["fabric_probe_success", ()] == 1
        with pytest.raises(ProbeRefusedError, match="remove module and auth"):
            await probing.probe("leaf-1", module="arista")


async def test_a_switch_that_is_polled_is_not_probed_too(agent):
    target = TargetOptions(name="leaf-1", address=agent.address)
    async with prober(targets=[target], allow=LOOPBACK) as probing:
        for name in ("leaf-1", agent.address):
            with pytest.raises(ProbeRefusedError, match="polled in the background") as caught:
                await probing.probe(name)
            assert caught.value.status == 400
    assert agent.requests == 0


@pytest.mark.parametrize(
    ("address", "probed"),
    [("127.0.0.1", "127.0.0.1:161"), ("127.0.0.1:161", "127.0.0.1"), ("LocalHost", "localhost")],
)
async def test_an_address_is_that_of_a_polled_switch_however_it_is_written(address, probed):
    target = TargetOptions(name="leaf-1", address=address)
    async with prober(targets=[target], allow=(*LOOPBACK, "localhost")) as probing:
        with pytest.raises(ProbeRefusedError, match=r"is the switch 'leaf-1', which is polled in the background"):
            await probing.probe(probed)


ALL = ("0.0.0.0/0", "::/0", "*")


@pytest.mark.parametrize(
    ("address", "probed"),
    [
        ("192.0.2.1", "::ffff:192.0.2.1"),
        ("192.0.2.1", "::ffff:c000:201"),
        ("192.0.2.1:1161", "[::ffff:192.0.2.1]:1161"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("192.0.2.1", "64:ff9b::c000:201"),
        ("192.0.2.1", "2002:c000:201::1"),
        ("192.0.2.1", "::192.0.2.1"),
        ("192.0.2.1", "3221225985"),
        ("192.0.2.1", "0xc0.0.0x201"),
        ("127.0.0.1", "0.0.0.0"),
        ("::1", "::"),
        ("fe80::1%eth0", "fe80::1%7"),
        ("2001:DB8::1", "2001:db8:0:0::1"),
        ("leaf-1.example", "LEAF-1.example."),
    ],
)
async def test_a_polled_switch_is_recognised_in_every_form_of_its_address(address, probed, monkeypatch):
    async def found(*_, **__):
        return [(socket.AF_INET, socket.SOCK_DGRAM, 17, "", ("192.0.2.77", 0))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", found)
    target = TargetOptions(name="leaf-1", address=address)
    async with prober(targets=[target], allow=ALL) as probing:
        with pytest.raises(ProbeRefusedError, match="is the switch 'leaf-1', which is polled in the background"):
            await probing.probe(probed)


@pytest.mark.parametrize("address", ["::ffff:192.0.2.1", "64:ff9b::c000:201", "2002:c000:201::1", "::ffff:127.0.0.1"])
@pytest.mark.parametrize("by_name", [True, False])
async def test_an_address_that_embeds_one_that_is_not_allowed_gets_no_packet(address, by_name, monkeypatch):
    """A network of IPv6, or a name in it, must not lead to hosts of IPv4 that no network allows."""

    async def found(*_, **__):
        return [(socket.AF_INET6, socket.SOCK_DGRAM, 17, "", (address, 0, 0, 0))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", found)
    async with prober(allow=("::/0", "198.51.100.0/24")) as probing:
        with pytest.raises(ProbeRefusedError, match="neither a configured switch nor allowed") as caught:
            await probing.probe("leaf-1.example" if by_name else address)
    assert caught.value.status == 403


# --- modules and credentials


async def test_a_module_sets_the_options_of_a_probe(agent):
    modules = {"careful": CommonOptions(snmp=SNMP, exclude=("Ethernet*",))}
    async with prober(allow=LOOPBACK, modules=modules, snmp=None) as probing:
        with pytest.raises(ProbeRefusedError, match="has no protocol to poll it"):
            await probing.probe(agent.address)
        found = values(await probing.probe(agent.address, module="careful"))
    assert found["fabric_probe_success", ()] == 1
    assert ("fabric_switch_link_up", ("leaf-a", "Ethernet1")) not in found


async def test_a_profile_is_a_module_too(agent):
    async with prober(allow=LOOPBACK) as probing:
        assert values(await probing.probe(agent.address, module="arista"))["fabric_probe_success", ()] == 1
        with pytest.raises(
            ProbeRefusedError, match=r"no module 'cisco-ios'; probe\.modules has none, and profiles are"
        ):
            await probing.probe(agent.address, module="cisco-ios")


async def test_credentials_by_name(agent):
    auths = {"right": CommonOptions(snmp=SNMP)}
    wrong = Snmp(community="wrong", timeout=0.1, retries=0)
    async with prober(allow=LOOPBACK, auths=auths, snmp=wrong) as probing:
        assert values(await probing.probe(agent.address)) == {
            ("fabric_probe_success", ()): 0,
            ("fabric_probe_duration_seconds", ()): pytest.approx(0.1, abs=5),
        }
        assert values(await probing.probe(agent.address, auth="right"))["fabric_probe_success", ()] == 1
        with pytest.raises(ProbeRefusedError, match=r"no auth 'left'; probe\.auths has right"):
            await probing.probe(agent.address, auth="left")


# --- what goes wrong


async def test_the_report_of_a_silent_switch_has_no_community(agent):
    agent.faults.silent = True
    async with prober(allow=LOOPBACK, snmp=Snmp(community="hush-hush", timeout=0.1, retries=0)) as probing:
        result = await probing.probe(agent.address)
    assert values(result)["fabric_probe_success", ()] == 0
    assert result.report.startswith("FAILURE after")
    assert "timeout: " in result.report
    assert "hush" not in result.report


async def test_a_probe_ends_before_the_timeout_of_the_client(agent):
    agent.faults.silent = True
    patient = Snmp(community="public", timeout=60.0, retries=0)
    async with prober(allow=LOOPBACK, snmp=patient, modules={"slow": CommonOptions(interval=60.0)}) as probing:
        result = await probing.probe(agent.address, timeout=0.7)
        assert not result.success
        assert "before a response to GET" in result.report  # the last request to the switch
        result = await probing.probe(agent.address, module="slow", timeout=0.7)
        assert not result.success
        assert "no response within 0.5 s" in result.report


async def test_an_earlier_success_is_not_one_of_this_probe(agent):
    async with prober(allow=LOOPBACK) as probing:
        assert values(await probing.probe(agent.address))["fabric_probe_success", ()] == 1
        agent.faults.silent = True
        found = values(await probing.probe(agent.address, timeout=0.6))
    assert set(found) == {("fabric_probe_success", ()), ("fabric_probe_duration_seconds", ())}
    assert found["fabric_probe_success", ()] == 0


async def test_a_longer_timeout_gives_the_switch_more_time(agent):
    async with prober(allow=LOOPBACK) as probing:
        for timeout, limit in ((5.0, 4.5), (20.0, 19.5), (5.0, 19.5)):
            assert (await probing.probe(agent.address, timeout=timeout)).success
            (kept,) = probing._cache.values()
            assert kept.source.interval == limit


async def test_a_reload_ends_waiting_probes_with_an_error(agent):
    agent.faults.silent = True
    async with prober(allow=LOOPBACK) as probing:
        waiting = asyncio.create_task(probing.probe(agent.address))
        while not agent.requests:  # noqa: ASYNC110  # the agent has nothing to wait for
            await asyncio.sleep(0)
        await probing.close()
        result = await waiting
        assert not result.success
        assert "the configuration was reloaded in the meantime; try again" in result.report
        with pytest.raises(ProbeRefusedError, match="reloaded") as caught:
            await probing.probe(agent.address)
    assert caught.value.status == 503


@pytest.mark.parametrize("module", ["", "arista"])
async def test_the_first_probe_blocks_nothing_though_profiles_are_read_for_it(agent, module):
    profile.builtin.cache_clear()
    async with prober(allow=LOOPBACK) as probing:
        with blockbuster_ctx("exporter"):
            result = await probing.probe(agent.address, module=module)
    assert result.success, result.report
    assert profile.builtin.cache_info().currsize == 1


async def test_probes_above_the_maximum_are_refused(agent, monkeypatch):
    monkeypatch.setattr(probe, "MAX_PROBES", 1)
    agent.faults.silent = True
    async with prober(allow=LOOPBACK, snmp=QUICK) as probing:
        first = asyncio.create_task(probing.probe(agent.address))
        await asyncio.sleep(0)
        with pytest.raises(ProbeRefusedError) as caught:
            await probing.probe(agent.address)
        assert caught.value.status == 503
        await first
        await probing.probe(agent.address)


async def test_targets_that_are_not_probed_are_removed_from_the_cache(agent, monkeypatch):
    monkeypatch.setattr(probe, "MAX_CACHED", 2)
    async with prober(allow=LOOPBACK) as probing:
        for module in ("", "arista", "cumulus", "nxos"):
            await probing.probe(agent.address, module=module)
        assert [key[1] for key in probing._cache] == ["cumulus", "nxos"]
        assert agent.address in probing._registry.known


async def test_removed_targets_leave_the_registry_unless_configured(agent):
    target = TargetOptions(name="leaf-1", address=agent.address, poll=False)
    async with prober(allow=LOOPBACK, targets=[target]) as probing:
        probing._registry.configure({"leaf-1": agent.address})
        for name in (agent.address, "leaf-1"):
            await probing.probe(name)
        assert set(probing._registry.known) == {agent.address, "leaf-1"}
        for kept in probing._cache.values():
            kept.used -= probe.CACHE_SECONDS
        probing._expire()
        await asyncio.gather(*probing._closing)
        assert not probing._cache
        assert list(probing._registry.known) == ["leaf-1"]


# --- configuration


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("allow: [leaf-*, 10.0.0.0/33]", r"^c\.yml:1: allow\[1\]: is not a network: '10\.0\.0\.0/33'"),
        ("allow: [10.0.0.1/24]", r"is not a network: 10\.0\.0\.1/24 has host bits set"),
        ("allow: ['10.0.*']", r"'10\.0\.\*' is not a name; write addresses as a network, such as 192\.0\.2\.0/24"),
        ("allow: ['2001:db8:*']", "is not a name; write addresses as a network"),
        ("allow: ['leaf-[0']", r"allow\[0\]: the pattern 'leaf-\[0' has an unclosed \["),
        ("auths: {a: {profile: arista}}", r"auths\.a\.profile: does not belong here; known are snmp, onyx"),
        (
            "modules: {a: {snmp: {community: c, address: 192.0.2.1}}}",
            r"modules\.a\.snmp\.address: does not belong here: the address is that of the probe's target",
        ),
        ("modules: {a: {profle: arista}}", "unknown key; did you mean 'profile'"),
        ("allowed: [x]", "unknown key; did you mean 'allow'"),
    ],
)
def test_configurations_that_are_wrong(text, error):
    with pytest.raises(ConfigError, match=error):
        parse(text.encode(), "c.yml", ProbeOptions)


def test_nothing_is_allowed_unless_it_is_configured():
    assert ProbeOptions().allow == ()


@pytest.mark.parametrize(
    ("host", "allow", "allowed"),
    [
        ("leaf-1", ("leaf-*",), True),
        ("spine-1", ("leaf-*",), False),
        ("192.0.2.7", ("192.0.2.0/24",), True),
        ("192.0.3.7", ("192.0.2.0/24",), False),
        ("2001:db8::1", ("2001:db8::/32",), True),
        ("192.0.2.7", ("192.0.2.7",), True),
        ("leaf-1", ("0.0.0.0/0",), False),
        ("LEAF-1", ("leaf-*",), True),
        ("leaf-1", ("*",), True),
        ("192.0.2.7", ("*",), False),  # by networks alone
        ("::ffff:192.0.2.7", ("192.0.2.0/24",), False),
        ("::ffff:192.0.2.7", ("::/0",), False),
        ("::ffff:192.0.2.7", ("::/0", "192.0.2.0/24"), True),
        ("::ffff:192.0.2.7", ("::ffff:192.0.2.0/120",), True),
        ("64:ff9b::192.0.2.7", ("64:ff9b::/96",), False),
        ("64:ff9b::192.0.2.7", ("64:ff9b::/96", "192.0.2.0/24"), True),
        ("3221225991", ("*",), False),  # 192.0.2.7
        ("3221225991", ("192.0.2.7",), True),
        ("\uff11\uff19\uff12.0.2.7", ("*",), False),  # the same in digits of full width
        ("leaf-1.", ("leaf-1",), True),
        ("0.0.0.0", ("0.0.0.0/32",), False),
    ],
)
def test_hosts_that_a_list_allows(host, allow, allowed):
    assert is_allowed(host, allow) is allowed
