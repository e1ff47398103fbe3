"""Reader of RESTCONF: OpenConfig's interfaces become rows, and failures affect only their own values."""

import contextlib

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from exporter.core.source import SourceError
from exporter.sources.switch.merge import Family, Support
from exporter.sources.switch.metrics import PORTS
from exporter.sources.switch.options import Restconf, Target
from exporter.sources.switch.readers.restconf.reader import RestconfReader
from exporter.sources.switch.settings_metrics import SETTINGS
from exporter.switch_api.port import ShapeError
from exporter.switch_api.restconf import parser
from exporter.switch_api.restconf.client import RestconfClient
from tests.simulators.restconf import RestconfPort, RestconfSimulator, RestconfSwitch

PASSWORD = "tr0ub4dor-and-3"
LONG = 60.0
INTERFACES = "openconfig-interfaces:interfaces"
NEIGHBOURS = "openconfig-lldp:lldp/interfaces"


def model():
    return RestconfSwitch(
        password=PASSWORD,
        ports={
            "Ethernet0": RestconfPort(
                description="to gpu-001",
                counters={"in-octets": 2**63 + 5, "out-octets": 7, "in-pkts": 3, "in-errors": 0, "out-discards": 2},
                neighbour={
                    "chassis-id": "A0:88:C2:00:10:08",
                    "port-id": "ethernet1/1/9",
                    "system-name": "spine-01",
                    "port-description": "to leaf-r",
                    "system-description": "NOS\r\n4.2",
                    "management-address": "192.0.2.9",
                },
            ),
            "Ethernet4": RestconfPort(up=False, counters={"in-octets": 1}),
        },
    )


@contextlib.asynccontextmanager
async def started(switch, given=None, url=None, **options):
    async with RestconfSimulator(switch) as simulator:
        given = given or Restconf(username="monitor", password=PASSWORD, timeout=20.0)
        target = Target(name="leaf-1", address=url or simulator.url, restconf=given, **options)
        reader = RestconfReader(target, given, LONG)
        try:
            yield reader
        finally:
            await reader.close()


def rows(harvest, schema=PORTS):
    (part,) = (part for part in harvest.parts if part.schema is schema)
    return {
        key[0]: {e: c.values[place] for e, c in part.columns.items() if c.values[place] is not None}
        for place, key in enumerate(part.keys)
    }


async def test_configuration_of_ports():
    async with started(model()) as reader:
        found = rows(await reader.read(), SETTINGS)
    assert found["Ethernet0"] == {"mtu_bytes": 9100, "configured_speed_bytes_per_second": 50e9}


async def test_ports_become_rows():
    async with started(model()) as reader:
        harvest = await reader.read()
    assert harvest.failures == []
    assert rows(harvest) == {
        "Ethernet0": {
            "receive_bytes_total": 2**63 + 5,
            "transmit_bytes_total": 7,
            "receive_packets_total": 3,
            "receive_errors_total": 0,
            "transmit_discards_total": 2,
            "link_up": 1,
            "admin_up": 1,
            "link_speed_bytes_per_second": 50e9,
            "info": ("leaf-1", "1", "to gpu-001", "", "physical"),
        },
        "Ethernet4": {
            "receive_bytes_total": 1,
            "link_up": 0,
            "admin_up": 1,
            "info": ("leaf-1", "2", "", "", "physical"),
        },
    }
    assert harvest.device.name == "leaf-r"
    (one,) = harvest.neighbours
    assert (one.port, one.chassis, one.peer_port, one.name) == (
        "Ethernet0",
        "a0:88:c2:00:10:08",
        "ethernet1/1/9",
        "spine-01",
    )
    assert one.capabilities == {"bridge", "router"}
    assert one.addresses == ("192.0.2.9",)


async def test_families_that_the_models_do_not_have_are_unsupported():
    async with started(model()) as reader:
        families = (await reader.read()).families
    assert families[Family.TRAFFIC] is families[Family.LLDP] is Support.COUNTED
    assert families[Family.PAUSE] is Support.NOT_COUNTED
    assert families[Family.PFC] is families[Family.ECN] is families[Family.QUEUES] is Support.UNSUPPORTED


async def test_neighbours_are_read_rarely_and_after_a_trap():
    switch = model()
    async with started(switch) as reader:
        await reader.read()
        await reader.read()
        assert switch.paths.count(INTERFACES) == 2
        assert switch.paths.count(NEIGHBOURS) == 1
        reader.invalidate_neighbours("")
        assert (await reader.read()).neighbours is not None
        assert switch.paths.count(NEIGHBOURS) == 2


async def test_only_selected_ports():
    async with started(model(), exclude=("Ethernet4",)) as reader:
        assert rows(await reader.read()).keys() == {"Ethernet0"}


async def test_a_malformed_port_affects_only_its_counters():
    switch = model()
    switch.faults.malformed = "Ethernet4"
    async with started(switch) as reader:
        harvest = await reader.read()
    (failure,) = harvest.failures
    assert failure.reason == "malformed"
    assert "Ethernet4: in-octets is" in failure.detail
    assert rows(harvest)["Ethernet0"]["receive_bytes_total"] == 2**63 + 5
    assert rows(harvest)["Ethernet4"]["link_up"] == 0


@pytest.mark.parametrize(("status", "support", "failed"), [(404, Support.UNSUPPORTED, 0), (500, Support.FAILED, 1)])
async def test_neighbours_that_cannot_be_read_affect_nothing_else(status, support, failed):
    switch = model()
    switch.faults.errors[NEIGHBOURS] = status
    async with started(switch) as reader:
        harvest = await reader.read()
    assert harvest.families[Family.LLDP] is support
    assert harvest.neighbours is None
    assert len(harvest.failures) == failed
    assert rows(harvest)["Ethernet0"]["transmit_bytes_total"] == 7


async def failed_read(reader):
    with pytest.raises(SourceError) as caught:
        await reader.read()
    assert PASSWORD not in str(caught.value)
    return caught.value.reason, str(caught.value)


async def test_a_wrong_password_is_sent_once_and_read_again_when_it_was_changed(tmp_path):
    switch = model()
    file = tmp_path / "password"
    file.write_text("wrong\n")
    given = Restconf(username="monitor", password_file=str(file), timeout=20.0)
    async with started(switch, given) as reader:
        reason, text = await failed_read(reader)
        assert reason == "login"
        assert "HTTP 401: 'Authentication failed'; check user and password" in text
        reason, text = await failed_read(reader)
        assert reason == "login_backoff"
        assert "so that the account is not locked" in text
        assert switch.refused == 1
        file.write_text(PASSWORD)
        await failed_read(reader)
        assert rows(await reader.read())["Ethernet0"]["transmit_bytes_total"] == 7


async def test_a_password_changed_on_the_switch():
    switch = model()
    async with started(switch) as reader:
        await reader.read()
        switch.password = "another"
        assert (await failed_read(reader))[0] == "login"
        assert (await failed_read(reader))[0] == "login_backoff"
        assert switch.refused == 1


async def test_a_switch_that_responds_too_late():
    switch = model()
    switch.faults.delay = 30.0
    async with started(switch, Restconf(username="monitor", password=PASSWORD, timeout=0.2)) as reader:
        assert (await failed_read(reader))[0] == "timeout"
        assert (await failed_read(reader))[0] == "timeout"  # the password was not rejected, so there is no backoff
        switch.faults.delay = 0.0
        await reader.close()


async def test_an_html_page_instead_of_json():
    switch = model()
    switch.faults.html = True
    async with started(switch) as reader:
        reason, text = await failed_read(reader)
        assert reason == "malformed"
        assert "an HTML page instead of a result" in text
        switch.faults.html = False
        assert rows(await reader.read())


async def test_a_switch_without_a_port():
    async with started(RestconfSwitch(password=PASSWORD)) as reader:
        assert (await failed_read(reader))[0] == "empty"


async def test_an_untrusted_certificate(tmp_path):
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "cert.pem")
    switch = model()
    async with RestconfSimulator(switch, certificate=tmp_path / "cert.pem") as simulator:
        given = Restconf(username="monitor", password=PASSWORD, timeout=20.0)
        target = Target(name="leaf-1", address=simulator.url, restconf=given)
        reader = RestconfReader(target, given, LONG)
        reason, text = await failed_read(reader)
        await reader.close()
    assert reason == "unreachable"
    assert "give the switch's CA as ca_file or its fingerprint as sha256" in text
    assert switch.paths == []


async def test_only_known_paths_are_requested():
    async with RestconfSimulator(model()) as simulator:
        client = RestconfClient(simulator.url, "monitor", PASSWORD)
        with pytest.raises(ValueError, match="is not requested"):
            await client.get("openconfig-interfaces:interfaces/../../operations")
        await client.close()
        assert simulator.switch.paths == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["interface", "interfaces", "name", "state", "counters", "in-octets", "neighbors", "neighbor"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_json_is_parsed_or_a_shape_error(data):
    for parse in (parser.parse_interfaces, parser.parse_neighbours):
        with contextlib.suppress(ShapeError):
            parse(data)
    parser.parse_hostname(data)


@pytest.mark.parametrize(
    ("type_name", "kind"),
    [
        ("iana-if-type:ethernetCsmacd", "6"),
        ("iana-if-type:ieee8023adLag", "161"),
        ("ieee8023adLag", "161"),
        ("iana-if-type:somethingNew", "somethingNew"),
        (None, ""),
    ],
)
def test_types_of_interfaces_are_numbers(type_name, kind):
    """They distinguish a port channel from its member ports, as with SNMP."""
    data = {"interface": [{"name": "Ethernet0", "state": {"type": type_name}}]}
    assert parser.parse_interfaces(data).ports["Ethernet0"].if_type == kind
