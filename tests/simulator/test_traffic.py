"""The traffic model: both ends of a link count the same, and the effect of each fault."""

import pytest

from exporter.simulator.faults import FAULTS
from exporter.simulator.traffic import Training


def totals(training, rail, way="transmit"):
    return training.rails[rail].port.packets(way, ["rdma"])


def moved(training, seconds):
    """Advance, and return the packets that each rail sent."""
    before = [totals(training, rail) for rail in range(8)]
    for _ in range(round(seconds * 4)):
        training.advance(0.25)
    return [totals(training, rail) - old for rail, old in enumerate(before)]


def everything(training):
    ports = [
        *(nic.port for nic in (training.management, *training.rails)),
        *(port for leaf in training.leaves for port in (*leaf.ports, leaf.management)),
    ]
    return [(port.name, port.wire_bytes(way), port.packets(way)) for port in ports for way in ("receive", "transmit")]


def test_the_same_seed_gives_the_same_counters():
    one, same, other = Training(seed=7), Training(seed=7), Training(seed=8)
    for training in (one, same, other):
        moved(training, 30)
    assert everything(one) == everything(same)
    assert everything(one) != everything(other)


def test_the_leaf_receives_the_packets_of_the_host():
    training = Training(FAULTS)
    pairs = [(training.rails[rail].port, training.leaf_port(rail)) for rail in range(8)]

    def gaps():
        return [
            (nic.wire_bytes(way) - leaf.wire_bytes(other), nic.packets(way) - leaf.packets(other))
            for nic, leaf in pairs
            for way, other in (("transmit", "receive"), ("receive", "transmit"))
        ]

    before = gaps()
    assert sum(moved(training, 60)) > 0
    assert gaps() == before


def test_a_leaf_sends_all_that_it_receives():
    training = Training()

    def sums(leaf):
        hosts = [port for ports in leaf.hosts.values() for port in ports]
        return [
            sum(port.packets(way, ["rdma"]) for port in ports)
            for ports, way in (
                (hosts, "receive"),
                (leaf.uplinks, "transmit"),
                (leaf.uplinks, "receive"),
                (hosts, "transmit"),
            )
        ]

    before = [sums(leaf) for leaf in training.leaves]
    moved(training, 40)
    assert training.leaves
    for leaf, old in zip(training.leaves, before, strict=True):
        up, sent_up, down, sent_down = (new - was for new, was in zip(sums(leaf), old, strict=True))
        assert up == sent_up > 0
        assert down == sent_down > 0


def test_the_wire_carries_more_than_rdma_counts_and_less_than_the_link():
    training = Training()
    port = training.rails[0].port
    before = (port.wire_bytes("transmit"), port.counted_bytes("transmit", ["rdma"]))
    moved(training, 100)
    wire, rdma = port.wire_bytes("transmit") - before[0], port.counted_bytes("transmit", ["rdma"]) - before[1]
    assert rdma < wire < 1.03 * rdma
    assert 0.2 * 50e9 < wire / 100 < 0.9 * 50e9


def test_rates_move_between_computing_and_exchanging():
    training = Training()
    rates = [moved(training, 1)[0] for _ in range(30)]
    assert min(rates) == 0
    assert max(rates) * 4158 * 8 > 0.8 * 400e9


def test_healthy_rails_are_balanced():
    sent = moved(Training(), 60)
    assert max(sent) / (sum(sent) / 8) - 1 < 0.02


def test_imbalance_loads_one_rail():
    sent = moved(Training(["imbalance"]), 60)
    assert max(sent) == sent[0]
    assert 0.35 < max(sent) / (sum(sent) / 8) - 1 < 0.5  # 1.5 / (8.5 / 8) - 1


def test_a_degraded_link_slows_the_whole_ring():
    healthy, slow = moved(Training(), 100), moved(Training(["degraded-link"]), 100)
    assert all(new < 0.85 * old for new, old in zip(slow, healthy, strict=True))
    assert slow[3] < 0.6 * slow[2]


def test_a_link_that_goes_down_is_counted_and_its_share_is_carried_by_the_others():
    training = Training()
    port, other = training.rails[6].port, training.leaf_port(6)
    changes = port.counters["carrier_changes"]
    training.begin("link-down")
    training.begin("link-down")
    sent = moved(training, 60)
    assert (port.up, other.up, port.counters["link_down"]) == (False, False, 1)
    assert sent[6] == 0
    assert min(sent[:6] + sent[7:]) > 0
    training.end("link-down")
    assert (port.up, other.up) == (True, True)
    assert (port.counters["link_down"], port.counters["carrier_changes"]) == (1, changes + 2)
    assert moved(training, 60)[6] > 0


def test_a_pause_storm_stops_one_rail_for_most_of_the_time():
    training = Training(["pause-storm"])
    moved(training, 100)
    paused = [rail.port.counters["paused_microseconds"] / 100e6 for rail in training.rails]
    assert paused[4] == pytest.approx(0.6, rel=0.01)
    assert max(paused[:4] + paused[5:]) < 0.01
    assert training.leaf_port(4).counters["sent_pause_frames"] == training.rails[4].port.counters["pause_frames"] > 0


@pytest.mark.parametrize("step", [0.25, 3.0, 59.0])
def test_a_flapping_link_goes_down_every_20_seconds_on_both_ends(step):
    training = Training()
    port, other = training.rails[1].port, training.leaf_port(1)
    changes = port.counters["carrier_changes"]
    training.begin("flapping-link")
    training.begin("flapping-link")
    assert (port.up, other.up) == (False, False)
    for _ in range(int(59 / step)):
        training.advance(step)
    training.advance(59 % step)
    assert (port.up, other.up) == (True, True)
    assert port.counters["link_down"] == 3  # after 0, 20 and 40 s, for 5 s each
    assert port.counters["carrier_changes"] == changes + 6
    assert {rail.port.counters["link_down"] for rail in training.rails if rail.number != 1} == {0}


def test_while_a_flapping_link_is_down_the_others_carry_its_share():
    training = Training(["flapping-link"])
    assert moved(training, 4.75)[1] == 0
    assert moved(training, 15)[1] > 0


def test_a_slow_pcie_link_pauses_the_switch_and_slows_the_whole_ring():
    training = Training(["slow-pcie"])
    sent = moved(training, 100)
    healthy = moved(Training(), 100)
    assert all(new < 0.6 * old for new, old in zip(sent, healthy, strict=True))
    rail, other = training.rails[5].port.counters, training.leaf_port(5).counters
    assert rail["sent_pause_frames"] == other["pause_frames"] > 0
    assert rail["sent_paused_microseconds"] == other["paused_microseconds"]
    # It takes 107 of 360 Gb/s while there is an exchange, which is so for all that it sent.
    exchanging = sent[5] * 4158 * 8 / 107e9
    assert rail["sent_paused_microseconds"] / 1e6 == pytest.approx((1 - 107 / 360) * exchanging, rel=0.02)
    assert {one.port.counters["sent_pause_frames"] for one in training.rails if one.number != 5} == {0}


def test_a_dirty_optic_loses_packets_that_are_sent_again():
    training, healthy = Training(["dirty-optic"]), Training()
    sent = moved(training, 60)
    moved(healthy, 60)
    dirty = training.rails[2].port.counters
    wrong = [dirty["fec_corrected_blocks"], healthy.rails[2].port.counters["fec_corrected_blocks"]]
    begun = Training().rails[2].port.counters["fec_corrected_blocks"]
    assert (wrong[0] - begun) / (wrong[1] - begun) == pytest.approx(400, rel=0.01)
    assert dirty["fec_uncorrectable_blocks"] / sent[2] == pytest.approx(2e-4, rel=0.01)
    assert dirty["out_of_sequence"] >= dirty["fec_uncorrectable_blocks"]
    assert training.leaf_port(2).counters["receive_errors"] == dirty["fec_uncorrectable_blocks"]
    clean = [rail for rail in training.rails if rail.number != 2]
    assert {rail.port.counters["fec_uncorrectable_blocks"] for rail in clean} == {0}


def test_a_missing_port_is_down_at_its_switch_and_counts_from_nothing_when_it_is_back():
    training = Training(["missing-port"])
    assert not training.leaf_port(7).up
    sent = moved(training, 30)
    assert sent[7] == 0 < min(sent[:7])
    training.end("missing-port")
    port = training.rails[7].port
    assert (port.up, training.leaf_port(7).up) == (True, True)
    assert port.packets("transmit") == 0
    sent = moved(training, 30)
    assert totals(training, 7) == sent[7] > 0


def test_bandwidth_falls_when_a_rail_is_slow():
    assert Training().bandwidth_share() > 0.95
    assert Training(["degraded-link"]).bandwidth_share() < 0.6
    assert Training(["pause-storm"]).bandwidth_share() < 0.5
    assert Training(["slow-pcie"]).bandwidth_share() < 0.35
    assert 0.75 < Training(["dirty-optic"]).bandwidth_share() < 0.9


def test_an_unknown_fault_is_refused_by_name():
    with pytest.raises(ValueError, match="'fire' is not a fault; known are degraded-link, "):
        Training(["fire"])
