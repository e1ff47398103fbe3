"""The source on fabrics simulated by ibsim: its output matches the net file and the output of Debian's programs."""

import json
import re
import subprocess
import sys
from contextlib import contextmanager

import pytest

from tests.helpers import ibsim
from tests.helpers.paths import ROOT

pytestmark = pytest.mark.slow

PROGRAM = """
import asyncio, json, sys
from exporter.sources.ibfabric.options import IbFabricOptions, PortChoice
from exporter.sources.ibfabric.source import IbFabricSource

async def main():
    options = IbFabricOptions(enabled=True, **json.loads(sys.argv[1]))
    source = IbFabricSource(options, PortChoice(), "poller")
    for _ in sys.stdin:
        reading = await source.read()
        found = {}
        for table in reading.tables:
            for column in table.columns.values():
                metric = column.metric
                rows = found.setdefault(metric.name if "sweep" in metric.name else metric.ending, [])
                rows += [
                    [*key, value if column.factor == 1 or value is None else value * column.factor]
                    for key, value in zip(table.rows.keys, column.values, strict=True)
                    if value is not None
                ]
        print(json.dumps([found, [[one.device, one.reason] for one in reading.failures]]), flush=True)
    await source.close()

asyncio.run(main())
"""

ERRORS = {
    "SymbolErrorCounter": "symbol_errors_total",
    "LinkErrorRecoveryCounter": "link_error_recovery_total",
    "LinkDownedCounter": "link_down_total",
    "PortRcvErrors": "receive_errors_total",
    "PortRcvRemotePhysicalErrors": "receive_remote_physical_errors_total",
    "PortRcvSwitchRelayErrors": "receive_switch_relay_errors_total",
    "PortXmitDiscards": "transmit_discards_total",
    "PortXmitConstraintErrors": "transmit_constraint_errors_total",
    "PortRcvConstraintErrors": "receive_constraint_errors_total",
    "LocalLinkIntegrityErrors": "local_link_integrity_errors_total",
    "ExcessiveBufferOverrunErrors": "excessive_buffer_overrun_errors_total",
    "VL15Dropped": "vl15_dropped_total",
    "PortXmitWait": "transmit_wait_ticks_total",
}
TRAFFIC = {
    "PortXmitData": ("transmit_bytes_total", 4),
    "PortRcvData": ("receive_bytes_total", 4),
    "PortXmitPkts": ("transmit_packets_total", 1),
    "PortRcvPkts": ("receive_packets_total", 1),
    "PortUnicastXmitPkts": ("transmit_unicast_packets_total", 1),
    "PortUnicastRcvPkts": ("receive_unicast_packets_total", 1),
    "PortMulticastXmitPkts": ("transmit_multicast_packets_total", 1),
    "PortMulticastRcvPkts": ("receive_multicast_packets_total", 1),
}


class SweepOutput:
    """The output of one sweep."""

    def __init__(self, output):
        found, self.failures = output
        self.rows = {name: {tuple(row[:-1]): row[-1] for row in rows} for name, rows in found.items()}
        self.names = {key[0]: values[0] for key, values in self.rows["node_info"].items()}
        self.guids = {name: guid for guid, name in self.names.items()}

    def links(self):
        """Return the links by names."""
        ends = [(key, values) for key, values in self.rows["link_info"].items() if values[0]]
        return {
            frozenset({(self.names[guid], int(port)), (self.names[peer[0]], int(peer[1]))})
            for (guid, port), peer in ends
        }

    def guid_links(self):
        return {
            frozenset({(int(guid, 16), int(port)), (int(peer[0], 16), int(peer[1]))})
            for (guid, port), peer in self.rows["link_info"].items()
            if peer[0]
        }

    def at(self, name, node, port):
        return self.rows.get(name, {}).get((self.guids[node], str(port)))


@contextmanager
def sweeping(fabric, host="H1", **options):
    """Return a function that sweeps a fabric from one of its hosts."""
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            PROGRAM,
            json.dumps({"timeout": 0.25, **options}),
        ],  # the subnet manager has ended: one timeout per sweep
        env={**fabric.env(host), "PYTHONPATH": str(ROOT)},
        cwd=fabric.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:

        def sweep():
            process.stdin.write("\n")
            process.stdin.flush()
            line = process.stdout.readline()
            assert line, "the source ended"
            return SweepOutput(json.loads(line))

        try:
            yield sweep
        finally:
            process.stdin.close()
            process.wait(60)


@pytest.fixture(autouse=True)
def _programs(program):
    for name in ("ibsim", "opensm", "ibnetdiscover", "perfquery", "smpquery", "ibqueryerrors"):
        program(name)


@pytest.fixture
def fabric():
    """Return a small fabric whose ports have LIDs."""
    with ibsim.simulator(ibsim.fat_tree()) as made:
        made.opensm()
        yield made


def perfquery(fabric, found, *flags):
    """Run perfquery for each linked port, once per node: {(name, port): {counter: value}}."""
    ports = {}
    for guid, port in sorted(end for link in found.links for end in link):
        ports.setdefault(guid, []).append(str(port))
    commands = ["set -e"]
    for guid, numbers in ports.items():
        node = found.nodes[guid]
        lid = node.lids[0] if node.kind == "Switch" else node.lids[int(numbers[0])]
        commands.append(f"echo '@ {node.description}'; perfquery {' '.join(flags)} {lid} {','.join(numbers)}")
    (fabric.folder / "ask.sh").write_text("\n".join(commands))
    text = fabric.run("sh", fabric.folder / "ask.sh")
    counters_by_port = {}
    for block in text.split("@ ")[1:]:
        name = block.splitlines()[0]
        for port, counters in re.findall(r"^# .* port (\d+) \(CapMask.*\n((?:\w+:.*\n)*)", block, re.MULTILINE):
            counters_by_port[name, int(port)] = ibsim.counters_of_perfquery(counters)
    return counters_by_port


@pytest.mark.parametrize("shape", [(2, 2, 1), (10, 10, 5)])
def test_links_match_the_net_file_and_counters_match_perfquery(shape):
    """Traffic counters include the requests themselves: the exported value is between two values of perfquery."""
    with ibsim.simulator(ibsim.fat_tree(*shape)) as fabric:
        fabric.opensm()
        found = fabric.discover()
        fabric.set_counter("Leaf1", 1, "PortCountersExtended.PortXmitData", 70_000_000_000)
        fabric.set_counter("Leaf2", 1, "PortCounters.PortRcvErrors", 12)
        before = perfquery(fabric, found, "-x")
        with sweeping(fabric) as sweep:
            output = sweep()
        after, errors = perfquery(fabric, found, "-x"), perfquery(fabric, found)
    assert output.links() == ibsim.links_of_net(fabric.net)
    assert output.guid_links() == found.links
    assert len(after) == 2 * len(found.links)
    assert not output.failures
    for end in after:
        for counter, (name, factor) in TRAFFIC.items():
            assert before[end][counter] * factor <= output.at(name, *end) <= after[end][counter] * factor, (
                end,
                counter,
            )
        for counter, name in ERRORS.items():
            assert output.at(name, *end) == errors[end][counter], (end, counter)
        assert output.at("port_responding", *end) == 1
        assert output.at("link_up", *end) == 1
    assert output.at("transmit_bytes_total", "Leaf1", 1) >= 280_000_000_000
    assert output.at("receive_errors_total", "Leaf2", 1) == 12


def test_nodes_and_ports_match_smpquery(fabric):
    found = fabric.discover()
    with sweeping(fabric) as sweep:
        output = sweep()
    speeds = {"2.5 Gbps": 2.5e9, "5.0 Gbps": 5e9, "10.0 Gbps": 10e9}
    states = {"Down": 1, "Initialize": 2, "Armed": 3, "Active": 4}
    assert found.nodes
    for node in found.nodes.values():
        lid = next(iter(node.lids.values()))
        fields = dict(re.findall(r"^([\w ]+):\.+(.*)$", fabric.run("smpquery", "nodeinfo", lid), re.MULTILINE))
        guid = f"{int(fields['Guid'], 16):016x}"
        info = output.rows["node_info"][guid,]
        assert output.rows["node_ports"][guid,] == int(fields["NumPorts"])
        assert info[1] == {"Switch": "switch", "Channel Adapter": "adapter"}[fields["NodeType"]]
        assert info[4:7] == [f"{int(fields['SystemGuid'], 16):016x}", fields["VendorId"], fields["DevId"]]
        description = fabric.run("smpquery", "nodedesc", lid)
        assert info[0] == re.match(r"Node Description:\.+(.*)", description)[1]
        ports = [int(port) for key, port in output.rows["port_state"] if key == guid]
        for port in ports[:8]:
            fields = dict(re.findall(r"^(\w+):\.+(.*)$", fabric.run("smpquery", "portinfo", lid, port), re.MULTILINE))
            assert output.rows["port_state"][guid, str(port)] == states[fields["LinkState"]]
            physical = {"LinkUp": 5, "Polling": 2}[fields["PhysLinkState"]]
            assert output.rows["port_physical_state"][guid, str(port)] == physical
            if physical == 5:
                lanes = int(fields["LinkWidthActive"].rstrip("X"))
                speed = lanes * speeds[fields["LinkSpeedActive"]] / 8
                assert output.rows["link_speed_bytes_per_second"][guid, str(port)] == speed
                widest = max(int(one.rstrip("X")) for one in fields["LinkWidthSupported"].split(" or "))
                fastest = max(speeds[one] for one in fields["LinkSpeedSupported"].split(" or "))
                assert output.rows["link_expected_speed_bytes_per_second"][guid, str(port)] == widest * fastest / 8


def assert_unchanged(before, after, *but):
    """Check that all ports are unchanged except those of some nodes."""
    for name in ("link_up", "link_info", "port_state", "link_speed_bytes_per_second", *ERRORS.values()):
        keep = [
            {key: value for key, value in one.rows.get(name, {}).items() if one.names.get(key[0]) not in but}
            for one in (before, after)
        ]
        assert keep[0] == keep[1], name
        assert keep[0], name
    assert all(answers for key, answers in after.rows["port_responding"].items() if after.names.get(key[0]) not in but)


def test_a_link_down_is_detected_in_the_next_sweep_and_other_ports_are_unchanged(fabric):
    with sweeping(fabric) as sweep:
        before = sweep()
        fabric.unlink("Leaf2", 2)
        output = sweep()
        assert output.links() == ibsim.links_of_net(fabric.net) - {frozenset({("Leaf2", 2), ("H4", 1)})}
        assert (output.at("link_up", "Leaf2", 2), output.rows["node_up"][output.guids["H4"],]) == (0, 0)
        assert_unchanged(before, output, "Leaf2", "H4")
        assert output.at("link_up", "Leaf2", 1) == 1
        assert output.guid_links() == fabric.discover().links
        fabric.relink("Leaf2", 2)
        output = sweep()
        assert output.links() == ibsim.links_of_net(fabric.net)
        assert output.guid_links() == fabric.discover().links
        assert_unchanged(before, output, "Leaf2", "H4")
        fabric.opensm()  # assigns its LID
        output = sweep()
        assert all(output.rows["port_responding"].values())
        assert output.links() == ibsim.links_of_net(fabric.net)
    assert output.rows["fabric_ib_sweep_discoveries_total"] == {("ibsim0:1",): 1}


def test_an_unplugged_node_is_unreachable_and_other_ports_are_unchanged(fabric):
    with sweeping(fabric) as sweep:
        before = sweep()
        fabric.unlink("H3")
        output = sweep()
        assert output.links() == ibsim.links_of_net(fabric.net) - {frozenset({("Leaf2", 1), ("H3", 1)})}
        assert output.rows["node_up"][output.guids["H3"],] == 0
        assert_unchanged(before, output, "Leaf2", "H3")


def test_nodes_behind_an_unplugged_switch_are_unreachable(fabric):
    with sweeping(fabric) as sweep:
        before = sweep()
        fabric.unlink("Spine1")
        output = sweep()
        assert output.links() == {frozenset({("Leaf1", port), (f"H{port}", 1)}) for port in (1, 2)}
        assert output.guid_links() == fabric.discover().links
        assert {before.names[guid] for (guid,), up in output.rows["node_up"].items() if not up} == {
            "Spine1",
            "Leaf2",
            "H3",
            "H4",
        }
        fabric.relink("Spine1")
        assert sweep().links() == ibsim.links_of_net(fabric.net)


def test_a_moved_cable_has_its_new_peer(fabric):
    with sweeping(fabric) as sweep:
        before = sweep()
        fabric.unlink("Leaf2", 2)
        fabric.command('Link "H4"[1] "Leaf1"[9]')
        output = sweep()
        moved = frozenset({("Leaf1", 9), ("H4", 1)})
        assert output.links() == ibsim.links_of_net(fabric.net) - {frozenset({("Leaf2", 2), ("H4", 1)})} | {moved}
        assert output.guid_links() == fabric.discover().links
        assert output.at("port_responding", "H4", 1) in (0, 1)
        assert_unchanged(before, output, "Leaf1", "Leaf2", "H4")


def test_cables_swapped_between_two_sweeps_are_detected_by_link_downed_counters(fabric):
    with sweeping(fabric) as sweep:
        sweep()
        for port in (1, 2):
            fabric.unlink("Leaf2", port)
        fabric.command('Link "H4"[1] "Leaf2"[1]')
        fabric.command('Link "H3"[1] "Leaf2"[2]')
        for port in (1, 2):
            fabric.set_counter("Leaf2", port, "PortCounters.LinkDownedCounter", 1)
        fabric.opensm("H1")
        output = sweep()
        assert output.guid_links() == fabric.discover().links
        assert frozenset({("Leaf2", 1), ("H4", 1)}) in output.links()
        assert len(output.links()) == 6


def test_each_error_counter_is_exported_in_the_next_sweep_under_its_own_name_only(fabric):
    lid = fabric.discover().lid("Leaf1")
    with sweeping(fabric) as sweep:
        before = sweep()
        assert ERRORS
        for value, (counter, ending) in enumerate(ERRORS.items(), start=1):
            fabric.set_counter("Leaf1", 2, f"PortCounters.{counter}", value)
            output = sweep()
            assert output.at(ending, "Leaf1", 2) == value
            assert ibsim.counters_of_perfquery(fabric.run("perfquery", lid, 2))[counter] == value
            for name in ERRORS.values():
                changed = {key for key, value in output.rows[name].items() if value != before.rows[name][key]}
                assert changed == ({(output.guids["Leaf1"], "2")} if name == ending else set())
            before = output


def test_ports_with_errors_match_ibqueryerrors():
    with ibsim.simulator(ibsim.fat_tree(3, 3, 2)) as fabric, fabric.manager():
        values = {("Leaf1", 4, "SymbolErrorCounter"): 77, ("Leaf2", 1, "PortRcvErrors"): 5}
        values |= {("H5", 1, "PortXmitDiscards"): 65535, ("Spine2", 3, "LinkDownedCounter"): 255}
        values |= {("Leaf3", 2, "LinkErrorRecoveryCounter"): 1, ("H9", 1, "VL15Dropped"): 12}
        for (node, port, counter), value in values.items():
            fabric.set_counter(node, port, f"PortCounters.{counter}", value)
        text = fabric.run("ibqueryerrors", "--switch", "--ca", statuses=(0, 1))
        with sweeping(fabric) as sweep:
            output = sweep()
    theirs = set()
    for block in text.split("Errors for ")[1:]:
        (name,) = re.findall(r'"(.*?)"', block.splitlines()[0])
        for port, listed in re.findall(r"GUID 0x\w+ port (\d+): (.*)", block):
            counters = re.findall(r"\[(\w+) == (\d+)[^\]]*\]", listed)
            theirs |= {
                (name, int(port), ERRORS[counter], int(value)) for counter, value in counters if counter in ERRORS
            }
    ours = {
        (output.names[guid], int(port), name, value)
        for name in ERRORS.values()
        for (guid, port), value in output.rows[name].items()
        if value
    }
    assert ours == theirs == {(node, port, ERRORS[counter], value) for (node, port, counter), value in values.items()}


def test_a_node_that_drops_all_datagrams_is_reported_and_delays_no_other(fabric):
    with sweeping(fabric) as sweep:
        before = sweep()
        fabric.error_rate("H3", 100)
        output = sweep()
        assert output.at("port_responding", "H3", 1) == 0
        assert [reason for _, reason in output.failures] == ["timeout"]
        others = {key for key in output.rows["port_responding"] if output.names[key[0]] != "H3"}
        assert all(output.rows["port_responding"][key] == 1 for key in others)
        assert output.links() == before.links()
        fabric.error_rate("H3", 0)
        assert not sweep().failures


def test_requests_to_a_node_that_drops_some_datagrams_are_retried(fabric):
    with sweeping(fabric, retries=5, timeout=0.1) as sweep:
        sweep()
        fabric.error_rate("Leaf2", 20)
        output = sweep()
        sent = output.rows["fabric_ib_sweep_datagrams_total"]
    assert sent["ibsim0:1", "retried"] > 0
    assert output.at("port_responding", "Leaf2", 1) == 1


def test_without_a_subnet_manager_links_are_found_and_counters_fail_with_no_lid():
    with ibsim.simulator(ibsim.fat_tree()) as fabric, sweeping(fabric) as sweep:
        output = sweep()
        assert output.links() == ibsim.links_of_net(fabric.net)
        assert {reason for _, reason in output.failures} == {"no_lid"}
        fabric.opensm()
        output = sweep()
        assert not output.failures
        assert all(output.rows["port_responding"].values())


def test_no_counter_is_ever_reset(fabric):
    fabric.set_counter("Leaf1", 2, "PortCounters.SymbolErrorCounter", 9)
    with sweeping(fabric) as sweep:
        for _ in range(3):
            sweep()
    counters = ibsim.counters_of_perfquery(fabric.run("perfquery", fabric.discover().lid("Leaf1"), 2))
    assert counters["SymbolErrorCounter"] == 9
