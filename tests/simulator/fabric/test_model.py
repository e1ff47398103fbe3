"""The whole model: what each fault does to the step, and which counters move at which ends."""

from itertools import pairwise

import pytest

from exporter.simulator.fabric.fault_table import KINDS
from exporter.simulator.fabric.model import FabricModel
from tests.helpers.fabric_run import FabricRun

HEALTHY_STEP = 0.45
"""Seconds: 0.41 of computing, and the first and last transfers, with which nothing is computed."""


@pytest.fixture(scope="module")
def healthy():
    return FabricRun()


# --- healthy


def test_a_healthy_step_takes_450_ms(healthy):
    assert healthy.step == pytest.approx(HEALTHY_STEP, abs=0.01)


def test_healthy_uplinks_are_even_but_not_perfectly(healthy):
    for way in ("transmit_rdma", "receive_rdma"):
        for leaf in ("leaf-01", "leaf-02", "leaf-03", "leaf-04"):
            loads = [healthy.counted(port, way) for port in healthy.uplinks(leaf)]
            assert 1.005 < max(loads) / (sum(loads) / len(loads)) < 1.15


def test_healthy_links_have_no_errors_and_hardly_a_pause(healthy):
    for name in ("receive_errors", "symbol_errors", "transmit_discards", "out_of_sequence", "cnp_ignored", "link_down"):
        assert healthy.moved(name) == {}
    paused = healthy.moved("paused_microseconds")
    assert 0 < max(paused.values()) < 0.005 * healthy.seconds * 1e6
    assert min(healthy.moved("ecn_marked").values()) > 0


def test_the_same_seed_gives_the_same_counters_and_another_does_not():
    def counters(seed):
        return {end: port.counters.values() for end, port in FabricRun(seconds=2, seed=seed).model.ports.items()}

    assert counters(3) == counters(3)
    assert counters(3) != counters(4)


def test_a_model_that_is_advanced_in_other_steps_counts_the_same():
    one, other = FabricModel(["flapping-link@1s"]), FabricModel(["flapping-link@1s"])
    one.advance(8.0)
    for _ in range(32):
        other.advance(0.25)
    sent = [sum(port.counters["transmit_rdma"] for port in model.ports.values()) for model in (one, other)]
    assert sent[0] == pytest.approx(sent[1], rel=1e-6)


# --- every fault


@pytest.mark.parametrize("name", KINDS)
def test_both_ends_of_each_link_count_the_same(name):
    run = FabricRun([name], seconds=3)
    links = [pair for cable in run.model.cabling.cables for pair in (tuple(cable), tuple(reversed(cable)))]
    assert len(links) == 2 * 48
    for sender, receiver in links:
        for kind in ("rdma", "bulk", "kernel", "multicast"):
            damaged = run.counted(receiver, "receive_errors") if kind == ("bulk" if name == "tcp" else "rdma") else 0
            assert run.counted(sender, f"transmit_{kind}") == run.counted(receiver, f"receive_{kind}") + damaged
        assert run.counted(sender, "pause_frames") == run.counted(receiver, "sent_pause_frames")
        assert run.counted(sender, "paused_microseconds") == run.counted(receiver, "sent_paused_microseconds")
        ports = run.model.ports[sender], run.model.ports[receiver]
        assert ports[0].up == ports[1].up
        assert ports[0].speed == ports[1].speed
        assert ports[0].alias == f"{receiver.device} {receiver.port}"


@pytest.mark.parametrize("name", KINDS)
def test_a_fault_that_ended_leaves_a_healthy_job(name):
    model = FabricModel([f"{name}@1s-2s"])
    model.advance(9.0)  # a job that hung begins again 5 s after its end
    durations = [later - earlier for earlier, later in pairwise(model.job.steps)]
    assert sum(durations[-3:]) / 3 == pytest.approx(HEALTHY_STEP, abs=0.015)
    assert all(port.up for port in model.ports.values())


# --- faults of links


def test_a_link_at_a_quarter_of_its_speed(healthy):
    run = FabricRun(["degraded-link:gpu-001/3"])
    adapter, leaf_port = run.adapter("gpu-001", 3), run.leaf_port("gpu-001", 3)
    assert run.model.ports[adapter].speed == run.model.ports[leaf_port].speed == 100e9
    # 36 transfers of a 1/8 of 2,400 MiB times 31/32 at 100 Gb/s, all of them longer than what is computed meanwhile
    assert run.step == pytest.approx(36 * 2400 * 2**20 / 8 * 31 / 32 * 4158 / 4096 * 8 / 100e9, rel=0.05)
    marks = run.moved("ecn_marked", "leaf")
    assert max(marks, key=marks.get) == leaf_port
    assert run.model.queues[leaf_port].peak > 10 * healthy.model.queues[leaf_port].peak
    assert run.counted(run.adapter("gpu-004", 3), "cnp_handled") > 10 * healthy.counted(
        run.adapter("gpu-004", 3), "cnp_handled"
    )  # the adapter that sends to it


def test_a_link_that_goes_down_and_comes_up():
    run = FabricRun(["link-down:gpu-001/6@5s-8s"], before=4.0, seconds=8)
    ends = {run.adapter("gpu-001", 6), run.leaf_port("gpu-001", 6)}
    assert run.moved("link_down") == dict.fromkeys(ends, 1)
    assert run.moved("carrier_changes") == dict.fromkeys(ends, 2)


def test_next_to_a_link_that_is_down_another_adapter_has_its_bytes(healthy):
    run = FabricRun(["link-down:gpu-001/6"])
    sent = [run.counted(run.adapter("gpu-001", rail), "transmit_rdma") for rail in (5, 6, 7)]
    assert sent[1] == 0
    assert sent[2] / sent[0] == pytest.approx(2, rel=0.01)
    assert run.step > 1.05 * healthy.step


def test_a_link_between_switches_that_is_down_costs_no_time(healthy):
    run = FabricRun(["link-down:leaf-02/spine-03"])
    sent = [run.counted(port, "transmit_rdma") for port in run.uplinks("leaf-02")]
    assert sent[2] == 0
    assert min(sent[:2] + sent[3:]) > 1.15 * sum(sent) / 4
    assert run.step == pytest.approx(healthy.step, rel=0.01)


def test_a_flapping_link():
    run = FabricRun(["flapping-link:gpu-002/1@4s"], before=3.5, seconds=27)
    ends = {run.adapter("gpu-002", 1), run.leaf_port("gpu-002", 1)}
    assert run.moved("link_down") == dict.fromkeys(ends, 2)
    assert run.moved("ack_timeouts").keys() == {run.adapter("gpu-002", 1)}
    durations = [later - earlier for earlier, later in pairwise(run.model.job.steps)]
    assert [round(one) for one in durations if one > 1] == [5, 5]


def test_a_dirty_optic(healthy):
    run = FabricRun(["dirty-optic:gpu-001/2"])
    adapter = run.adapter("gpu-001", 2)
    assert run.moved("receive_errors").keys() == {adapter}
    assert run.moved("out_of_sequence") == {adapter: run.counted(adapter, "receive_errors")}
    assert run.moved("sequence_errors").keys() == {run.adapter("gpu-004", 2)}  # it sends to gpu-001
    corrected = {end: run.counted(end, "fec_corrected_bits") for end in run.model.ports}
    assert corrected.pop(adapter) == 400 * max(corrected.values())
    arrived = run.counted(adapter, "receive_rdma")
    assert run.counted(adapter, "receive_errors") / arrived == pytest.approx(2e-4, rel=0.01)
    # 800 packets are sent again for each of them.
    sent_again = run.counted(run.adapter("gpu-004", 2), "transmit_rdma") / run.counted(
        run.adapter("gpu-004", 3), "transmit_rdma"
    )
    assert sent_again == pytest.approx(1.16, abs=0.01)
    assert run.transfer / healthy.transfer == pytest.approx(1.16, abs=0.03)


def test_symbol_errors_on_a_switch_port(healthy):
    run = FabricRun(["symbol-errors:gpu-003/6"])
    leaf_port = run.leaf_port("gpu-003", 6)
    assert run.moved("symbol_errors").keys() == run.moved("receive_errors").keys() == {leaf_port}
    assert run.moved("out_of_sequence").keys() == {run.adapter("gpu-004", 6)}  # gpu-003 sends to it
    assert run.moved("sequence_errors").keys() == {run.adapter("gpu-003", 6)}
    assert run.transfer / healthy.transfer == pytest.approx(1.08, abs=0.03)


# --- faults of adapters


def test_a_missing_port(healthy):
    run = FabricRun(["missing-port:gpu-001/7@4s-6s"], before=3.0, seconds=5)
    adapter, leaf_port = run.adapter("gpu-001", 7), run.leaf_port("gpu-001", 7)
    assert run.counted(leaf_port, "link_down") == 1
    counted = run.model.ports[adapter].counters["transmit_rdma"]
    assert 0 < counted < healthy.counted(adapter, "transmit_rdma")  # it counts from 0 again


def test_a_slow_pcie_link(healthy):
    run = FabricRun(["slow-pcie:gpu-001/5"])
    adapter, leaf_port = run.adapter("gpu-001", 5), run.leaf_port("gpu-001", 5)
    paused = run.moved("sent_paused_microseconds", "gpu")
    assert paused.keys() == {adapter}
    assert run.counted(leaf_port, "paused_microseconds") == paused[adapter]
    # It takes 107 of 400 Gb/s, and all wait for it nearly all the time.
    assert paused[adapter] / 1e6 / run.seconds == pytest.approx(1 - 107 / 400, abs=0.05)
    assert run.moved("pci_errors").keys() == {adapter}
    assert run.step > 1.7 * healthy.step


def test_a_pause_storm(healthy):
    run = FabricRun(["pause-storm:gpu-002/4"])
    adapter, leaf_port = run.adapter("gpu-002", 4), run.leaf_port("gpu-002", 4)
    paused = run.moved("sent_paused_microseconds", "gpu")
    assert paused.keys() == {adapter}
    assert paused[adapter] / 1e6 / run.seconds == pytest.approx(0.6, rel=0.01)
    assert run.counted(leaf_port, "pause_frames") == run.counted(adapter, "sent_pause_frames")
    # The leaf pauses the adapter that sends to it, and marks what waits.
    back = {end: amount / 1e6 / run.seconds for end, amount in run.moved("paused_microseconds", "gpu").items()}
    assert max(back, key=back.get) == run.adapter("gpu-001", 4)
    assert back[run.adapter("gpu-001", 4)] > 0.05
    marks = run.moved("ecn_marked", "leaf")
    assert max(marks, key=marks.get) == leaf_port
    assert run.step > 1.25 * healthy.step
    assert run.transfer == pytest.approx(healthy.transfer / 0.4, rel=0.05)


def test_a_pause_storm_goes_on_while_the_job_hangs():
    run = FabricRun(["pause-storm:gpu-002/4", "hanging-process:3@1s"], before=3.0, seconds=4)
    assert run.model.job.hangs
    assert run.moved("transmit_rdma") == {}
    assert run.moved("sent_paused_microseconds") == {run.adapter("gpu-002", 4): pytest.approx(0.6 * 4e6, abs=2)}


def test_short_pauses_are_7_percent_of_the_time_and_more_of_that_with_traffic(healthy):
    run = FabricRun(["short-pauses:gpu-003"])
    shares = {end: one / 1e6 / run.seconds for end, one in run.moved("sent_paused_microseconds", "gpu").items()}
    assert shares.keys() == {run.adapter("gpu-003", rail) for rail in range(8)}
    assert list(shares.values()) == pytest.approx([0.07] * 8, abs=0.005)
    assert run.transfer == pytest.approx(healthy.transfer / (1 - 0.125), rel=0.03)


def test_marks_without_reaction(healthy):
    run = FabricRun(["marks-ignored:gpu-004"])
    ignoring = {run.adapter("gpu-004", rail) for rail in range(8)}
    assert run.moved("cnp_ignored").keys() == ignoring
    assert not run.moved("cnp_handled").keys() & ignoring
    receivers = {end for end, amount in run.moved("ecn_marked", "gpu").items() if amount > 1000}
    assert receivers == {run.adapter("gpu-001", rail) for rail in range(8)}
    marked, before = (sum(one.moved("ecn_marked", "leaf").values()) for one in (run, healthy))
    assert marked > 20 * before
    paused, before = (one.counted(run.adapter("gpu-004", 0), "paused_microseconds") for one in (run, healthy))
    assert paused > 5 * before


def test_gpudirect_off_is_in_no_counter_but_all_transfers_are_slower(healthy):
    run = FabricRun(["gpudirect-off:gpu-002"])
    assert run.transfer == pytest.approx(healthy.transfer * 400 / 160, rel=0.03)
    assert run.step > 1.25 * healthy.step
    assert run.moved("sent_paused_microseconds", "gpu") == {}
    assert sum(run.moved("ecn_marked").values()) < sum(healthy.moved("ecn_marked").values())


def test_a_rail_on_the_wrong_leaf(healthy):
    run = FabricRun(["rail-swapped:gpu-002/3@4s"], before=3.0)
    ports = run.model.ports
    assert ports[run.adapter("gpu-002", 3)].alias.startswith("leaf-02 ")
    assert ports[run.adapter("gpu-002", 7)].alias.startswith("leaf-01 ")
    assert ports[run.leaf_port("gpu-002", 3)].alias == "gpu-002 eth5"
    assert run.moved("link_down", "gpu") == {run.adapter("gpu-002", rail): 1 for rail in (3, 7)}
    up, before = (sum(one.moved("transmit_rdma", "spine").values()) / one.seconds for one in (run, healthy))
    assert up > 1.05 * before  # flows within the pod cross the spines


def test_a_host_of_which_all_cables_are_swapped():
    run = FabricRun(["rail-swapped:gpu-002@1s"])
    leaves = [run.model.ports[run.adapter("gpu-002", rail)].alias.split()[0] for rail in range(8)]
    assert leaves == ["leaf-02"] * 4 + ["leaf-01"] * 4


# --- faults of switches


def test_flows_hashed_onto_one_spine(healthy):
    run = FabricRun(["one-spine:spine-02"])
    loads = [run.counted(port, "transmit_rdma") for port in run.uplinks("leaf-01")]
    assert max(loads) == loads[1]
    assert loads[1] / (sum(loads) - loads[1]) * 3 == pytest.approx(3, abs=0.4)
    # Half of the traffic of four adapters of 400 Gb/s fills 800 Gb/s, while there is traffic.
    wire = loads[1] * 4158 * 8 / run.seconds
    assert 0.4 < wire / 800e9 < 0.65
    marks = run.moved("ecn_marked", "spine")
    assert {end.device for end, amount in marks.items() if amount == max(marks.values())} == {"spine-02"}
    assert run.step == pytest.approx(healthy.step, rel=0.02)


def test_a_spine_that_is_gone(healthy):
    run = FabricRun(["spine-gone:spine-03@4s"], before=3.0)
    assert {end.device for end in run.moved("link_down")} == {"spine-03", "leaf-01", "leaf-02", "leaf-03", "leaf-04"}
    assert set(run.moved("link_down").values()) == {1}
    after, before = (one.counted(run.uplinks("leaf-01")[0], "transmit_rdma") / one.seconds for one in (run, healthy))
    assert after > 1.15 * before
    assert run.step == pytest.approx(healthy.step, rel=0.01)


def test_an_oversubscribed_leaf(healthy):
    run = FabricRun(["oversubscribed-leaf:leaf-01"])
    assert {run.model.ports[port].speed for port in run.uplinks("leaf-01")} == {200e9}
    marks = {end for end, amount in run.moved("ecn_marked", "leaf").items() if amount > 500}
    assert marks == set(run.uplinks("leaf-01"))
    assert run.step > 1.1 * healthy.step
    # The hottest uplink is full in the time of a transfer.
    assert run.transfer == pytest.approx(healthy.transfer * 2 * 1.06, rel=0.06)
    paused = run.moved("paused_microseconds", "gpu")
    assert {end for end, one in paused.items() if one > 1e5} == {run.adapter("gpu-002", rail) for rail in range(4)}


def test_a_silent_switch_forwards_as_before(healthy):
    run = FabricRun(["switch-silent:leaf-01"])
    assert not run.model.conditions.switch("leaf-01").answers
    assert run.model.conditions.switch("leaf-02").answers
    assert run.step == healthy.step


def test_a_switch_that_restarts_counts_from_0_and_the_others_have_its_traffic():
    model = FabricModel(["switch-rebooted:spine-01@2s"])
    port = model.topology.uplink("leaf-01", "spine-01").upper
    model.advance(10.0)
    before = model.ports[port].counters["receive_rdma"]
    assert not model.ports[port].up
    model.advance(24.0)
    assert model.ports[port].up
    assert 0 < model.ports[port].counters["receive_rdma"] < before
    assert model.booted["spine-01"] == 32.0
    assert model.booted["spine-02"] == 0.0


# --- faults of the job


def test_a_job_on_tcp_is_in_the_counters_of_the_links_and_not_in_those_of_rdma(healthy):
    run = FabricRun(["tcp"], seconds=12)
    assert run.moved("transmit_rdma") == {}
    assert len(run.moved("transmit_bulk", "gpu")) == 32
    assert run.step > 4 * healthy.step


def test_half_of_the_adapters(healthy):
    run = FabricRun(["half-adapters"])
    used = {run.adapter(host, rail) for host in run.model.topology.hosts for rail in (0, 2, 4, 6)}
    assert run.moved("transmit_rdma", "gpu").keys() == used
    assert run.transfer == pytest.approx(2 * healthy.transfer, rel=0.03)
    assert run.step > 1.05 * healthy.step


def test_rdma_without_pfc_loses_packets_and_pauses_nothing(healthy):
    run = FabricRun(["no-pfc"])
    assert run.moved("pause_frames") == {}
    assert set(run.moved("out_of_sequence")) == set(run.adapters())
    lost, dropped = (sum(run.moved(name).values()) for name in ("out_of_sequence", "transmit_discards"))
    assert lost == pytest.approx(dropped, rel=0.01)
    assert {end.device[:2] for end in run.moved("transmit_discards")} == {"le", "sp"}
    assert run.transfer > 1.1 * healthy.transfer


@pytest.mark.parametrize(
    ("fault", "longer"),
    [("slower-job", 1.21), ("late-rank:5", 1.45), ("late-host:gpu-003", 1.45), ("rotating-late-rank", 1.45)],
)
def test_slower_computing_makes_steps_longer_and_transfers_not(healthy, fault, longer):
    run = FabricRun([fault])
    assert run.step / healthy.step == pytest.approx(longer, abs=0.03)
    assert run.transfer == pytest.approx(healthy.transfer, rel=0.02)
    sent = [one.counted(run.adapter("gpu-001", 0), "transmit_rdma") / one.seconds for one in (run, healthy)]
    assert sent[0] / sent[1] == pytest.approx(1 / longer, rel=0.06)


@pytest.mark.parametrize(
    ("fault", "late"),
    [("late-rank:5", {5}), ("late-host:gpu-003", set(range(16, 24)))],
)
def test_late_ranks_are_the_last_to_start_collectives(fault, late):
    run = FabricRun([fault], before=1.0)
    last = [max(one.starts, key=one.starts.get) for one in run.collectives if one.kind == "ReduceScatter"]
    assert len(last) > 50
    assert sum(rank in late for rank in last) > 0.9 * len(last)


def test_a_rotating_late_rank_is_another_one_every_few_steps():
    run = FabricRun(["rotating-late-rank"], before=1.0, seconds=12)
    last = [max(one.starts, key=one.starts.get) for one in run.collectives if one.kind == "ReduceScatter"]
    most = {rank for rank in range(32) if last.count(rank) > 10}
    assert 4 < len(most) < 12


@pytest.mark.parametrize("fault", ["hanging-process:19@3s", "hanging-link:gpu-004/2@3s"])
def test_a_hang_stops_all_steps_and_all_traffic(fault):
    run = FabricRun([fault], before=4.0, seconds=10)
    assert run.model.job.hangs
    assert len(run.model.job.steps) == run._steps
    assert run.moved("transmit_rdma") == {}
    assert all(port.up for port in run.model.ports.values())
    timeouts = {run.adapter("gpu-004", 2)} if "link" in fault else set()
    assert run.moved("ack_timeouts").keys() == timeouts


@pytest.mark.parametrize("fault", ["poller-gone", "broker-gone"])
def test_faults_of_the_monitoring_change_nothing_else(healthy, fault):
    run = FabricRun([fault])
    state = run.model.conditions.monitoring
    assert (state.poller, state.broker) == (fault != "poller-gone", fault != "broker-gone")
    assert run.step == healthy.step


def test_two_faults_at_once_have_the_effects_of_both(healthy):
    run = FabricRun(["late-rank:5", "degraded-link:gpu-001/3", "symbol-errors:gpu-003/6"])
    assert run.step > 2 * healthy.step
    assert run.moved("symbol_errors").keys() == {run.leaf_port("gpu-003", 6)}


def test_a_fault_between_switches_is_at_both_ends():
    run = FabricRun(["symbol-errors:leaf-01/spine-02"])
    spine_port = run.model.topology.uplink("leaf-01", "spine-02").upper
    assert run.moved("symbol_errors").keys() == {spine_port}
    assert {end.device for end in run.moved("sequence_errors")} == {"gpu-002"}
    assert {end.device for end in run.moved("out_of_sequence")} == {"gpu-003"}
