"""Forty publicly reported faults of collectives, and the evidence of each: a fact of NCCL's log, or why there is none.

The lines are ours, in the format of those in the reports. The tests show that the facts are read; conclusions from
several facts are tested elsewhere.
"""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from exporter.nccl.debug_log import ScanStats, scan
from exporter.nccl.log_facts import (
    AdapterGdr,
    Adapters,
    AsyncEvent,
    Channel,
    Completion,
    Ece,
    Failover,
    GpuGdr,
    LogEntry,
    Network,
    NoAdapters,
    Paths,
    Provider,
    Recovered,
    RingSummary,
    Setting,
    VerbsFailure,
    WatchdogTimeout,
)
from exporter.nccl.nccl_tests import baseline, parse_text
from exporter.nccl.ras import (
    RasCommunicator,
    RasRank,
    count_mismatches,
    is_stalled,
)


class Case(NamedTuple):
    """A report: its symptom, lines of a log, and a check of the facts in them."""

    symptom: str
    lines: tuple[str, ...]
    matches: Callable[[list[LogEntry]], bool]


def info(text, host="a1", gpu=0):
    return f"{host}:100:101 [{gpu}] NCCL INFO {text}"


def warn(text, host="a1", gpu=0):
    return f"{host}:100:101 [{gpu}] transport/net_ib.cc:93 NCCL WARN {text}"


def of(entries, kind):
    return [entry.fact for entry in entries if isinstance(entry.fact, kind)]


def channel(number, adapter, suffix="/GDRDMA", gpu=0, proxy=""):
    return info(f"Channel {number:02}/0 : {gpu}[{gpu}] -> 8[{gpu}] [send] via NET/IB/{adapter}{proxy}{suffix}", gpu=gpu)


def completion(status, vendor, host="a1", peer="10.0.0.2", hca=""):
    return warn(
        f"NET/IB : Got completion from peer {peer}<4> with status={status} opcode=0 len=0 "
        f"vendor err {vendor} (Recv){hca}",
        host,
    )


TWO_KINDS = info("NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_bond_0:1/RoCE [RO]; OOB e:1<0>")
TIMEOUT = (
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum={number}, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
    "Timeout(ms)=600000) ran for 600001 milliseconds before timing out."
)
FOUR = info("NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_2:1/IB [3]mlx5_3:1/IB [RO]; OOB e:1<0>")

LOGS = {
    1: Case(
        "a random hang after hours: links flap",
        (
            warn("NET/IB : Got async event : port error"),
            warn("NET/IB : Got async event : port error"),
            completion(12, 129),
        ),
        lambda entries: (
            ["port error" in event.event for event in of(entries, AsyncEvent)] == [True, True]
            and [one.status for one in of(entries, Completion)] == [12]
        ),
    ),
    2: Case(
        "a job stalls: the port of one node is down",
        (
            *(warn("NET/IB : Got async event : port error", "a48", gpu) for gpu in range(8)),
            completion(12, 129, "a51", "a48"),
        ),
        lambda entries: (
            {entry.host for entry in entries if isinstance(entry.fact, AsyncEvent)}
            == {one.peer for one in of(entries, Completion)}
            == {"a48"}
        ),
    ),
    3: Case(
        "ten minutes between the error of a port and the watchdog",
        (
            "7: [2026-01-02 12:00:00] " + warn("NET/IB : mlx5_3:1 Got non-fatal async event: port error(10)"),
            "9: [rank9]:[E102 12:10:01.4 ProcessGroupNCCL.cpp:697] " + TIMEOUT.format(number=5),
        ),
        lambda entries: (
            [(one.device, one.port) for one in of(entries, AsyncEvent)] == [("mlx5_3", 1)]
            and [one.sequence for one in of(entries, WatchdogTimeout)] == [5]
            and [entry.stamp for entry in entries] == ["2026-01-02 12:00:00", "102 12:10:01.4"]
        ),
    ),
    4: Case(
        "a crash after many steps: the adapter itself",
        (warn("NET/IB : Got async event : local catastrophic error"),),
        lambda entries: [event.event for event in of(entries, AsyncEvent)] == ["local catastrophic error"],
    ),
    5: Case(
        "a crash with status 12: the peer does not answer; what is flushed only follows",
        (completion(12, 129, hca=" hca mlx5_10"), completion(5, 249, hca=" hca mlx5_10")),
        lambda entries: (
            [(one.status, one.device) for one in of(entries, Completion) if not one.consequence] == [(12, "mlx5_10")]
        ),
    ),
    6: Case(
        "error 12 on a loaded network: loss outlasts the time-out",
        (info("NCCL_IB_TIMEOUT set by environment to 1."), completion(12, 129)),
        lambda entries: (
            of(entries, Setting) == [Setting("NCCL_IB_TIMEOUT", "1")] and of(entries, Completion)[0].status == 12
        ),
    ),
    9: Case(
        "low bandwidth that varies: enhanced connection establishment is on",
        (info("NET/IB: IbDev 4 Port 1 qpn 1 query_ece={supported=1, vendor_id=0x15b3}"),),
        lambda entries: of(entries, Ece) == [Ece(supported=True)],
    ),
    11: Case(
        "low bandwidth between nodes: GPUDirect is off for the adapter",
        (info("NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'"),),
        lambda entries: of(entries, AdapterGdr) == [AdapterGdr(enabled=False, index=0, device="mlx5_0")],
    ),
    12: Case(
        "GPUDirect is not used: GPU and adapter are too far apart",
        (info("GPU Direct RDMA Disabled for GPU ca000 / HCA 0 (distance 7 > 4)"),),
        lambda entries: [(one.enabled, one.distance > one.limit) for one in of(entries, GpuGdr)] == [(False, True)],
    ),
    13: Case(
        "half of the channels go without GPUDirect",
        (channel(0, 0), channel(1, 0, "")),
        lambda entries: [one.gdr for one in of(entries, Channel)] == [True, False],
    ),
    14: Case(
        "very low bandwidth: no GPUDirect at all",
        (info("Connected all rings, use ring PXN 0 GDR 0"),),
        lambda entries: of(entries, RingSummary) == [RingSummary(pxn=False, gdr=False)],
    ),
    15: Case(
        "error 4, vendor 81: access control on PCIe",
        (completion(4, 81),),
        lambda entries: [(one.status, one.vendor) for one in of(entries, Completion)] == [(4, 81)],
    ),
    16: Case(
        "slow: no GPUDirect, and GPU to adapter through the processor",
        (channel(0, 0, ""), info("GPU/8F000 :GPU/16000 (2/264.0/NVL) NET/0 (6/24.0/PHB)")),
        lambda entries: (
            of(entries, Channel)[0].gdr is False and [one.kind for one in of(entries, Paths)[0].adapters] == ["PHB"]
        ),
    ),
    19: Case(
        "two GPUs share an adapter, another is idle",
        (FOUR, channel(0, 0, gpu=0), channel(1, 0, gpu=1), channel(2, 2, gpu=2), channel(3, 3, gpu=3)),
        lambda entries: (
            {one.index for one in of(entries, Adapters)[0].adapters} - {one.adapter for one in of(entries, Channel)}
            == {1}
        ),
    ),
    24: Case(
        "a quarter of the bandwidth: one of four adapters is used",
        (FOUR, channel(0, 0), channel(1, 0)),
        lambda entries: (
            (len(of(entries, Adapters)[0].adapters), {one.adapter for one in of(entries, Channel)}) == (4, {0})
        ),
    ),
    25: Case(
        "EFA is slow: libfabric fell back on TCP",
        (info("NET/OFI Selected Provider is tcp;ofi_rxm"),),
        lambda entries: [one.tcp for one in of(entries, Provider)] == [True],
    ),
    27: Case(
        "slow over several nodes: TCP only",
        (warn("Failed to open libibverbs.so[.1]"), info("Using network Socket")),
        lambda entries: of(entries, NoAdapters) == [NoAdapters("no_library")] and of(entries, Network)[0].tcp,
    ),
    28: Case(
        "low bandwidth: a bond of Ethernet among InfiniBand",
        (TWO_KINDS,),
        lambda entries: {adapter.link for adapter in of(entries, Adapters)[0].adapters} == {"IB", "RoCE"},
    ),
    29: Case(
        "slower than before: InfiniBand and Ethernet mixed",
        (TWO_KINDS,),
        lambda entries: (
            ("mlx5_bond_0", "RoCE") in [(one.device, one.link) for one in of(entries, Adapters)[0].adapters]
        ),
    ),
    30: Case(
        "time-outs although Ethernet works: nodes are on fabrics apart",
        (completion(12, 129),),
        lambda entries: (
            [(one.status, one.vendor, one.peer) for one in of(entries, Completion)] == [(12, 129, "10.0.0.2")]
        ),
    ),
    31: Case(
        "no connection from seven nodes on: rails are not joined",
        (
            info("NCCL_CROSS_NIC set by environment to 0."),
            warn(
                "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_6:1, curr state INIT, "
                "next state RTR, local GID index 3"
            ),
        ),
        lambda entries: (
            of(entries, VerbsFailure)
            == [VerbsFailure("ibv_modify_qp", "Connection timed out", "mlx5_6", 1, ("INIT", "RTR"))]
            and of(entries, Setting) == [Setting("NCCL_CROSS_NIC", "0")]
        ),
    ),
    32: Case(
        "no connection: the way to the peer is not routed",
        (warn("Call to ibv_modify_qp failed with error Network is unreachable"),),
        lambda entries: [one.error for one in of(entries, VerbsFailure)] == ["Network is unreachable"],
    ),
    33: Case(
        "bandwidth does not come back after the adapter has",
        (warn("NET/IB: Device 0 marked as failed. Initiating recovery? No (send comm=0x1)"),),
        lambda entries: of(entries, Failover) == [Failover(0)] and not of(entries, Recovered),
    ),
    34: Case(
        "240 of 395 Gb/s: a bond puts connections on one port (its ports' counters tell which)",
        (info("NET/IB : Using [0]mlx5_bond_0:1/RoCE [RO]; OOB e:1<0>"),),
        lambda entries: [one.device for one in of(entries, Adapters)[0].adapters] == ["mlx5_bond_0"],
    ),
    36: Case(
        "ReduceScatter collapses with PXN",
        (channel(0, 3, proxy="(5)"), info("Connected all rings, use ring PXN 1 GDR 1")),
        lambda entries: of(entries, Channel)[0].proxy_rank == 5 and of(entries, RingSummary)[0].pxn is True,
    ),
    37: Case(
        "RAS says OK while the watchdog waits for half an hour",
        ("[rank1]:[E102 01:02:03.4 ProcessGroupNCCL.cpp:6] [Rank 1] " + TIMEOUT.format(number=9),),
        lambda entries: of(entries, WatchdogTimeout)[0].sequence == 9,
    ),
}

OTHER_EVIDENCE = {
    7: "Ethernet without flow control: drops and PFC are counted by ports, and NCCL's log is silent",
    8: "congestion: pause frames are counted by ports",
    10: "a cost of each step within NCCL: the link alone is fast, which no file shows",
    17: "a setting of the adapter's PCIe: only the bandwidth is low, against a baseline",
    18: "one bad node: baselines by pairs of nodes, see test_pairwise_baselines_identify_the_slow_node",
    20: "one GPU is always late: its times are the shortest, which is for the alignment of ranks to find",
    21: "ranks do unequal work: times again",
    22: "kernels overlap: times are long at all ranks alike, and the traces that show why are not read",
    23: "a cliff by size: see test_bandwidth_cliff_shows_in_the_table",
    26: "limits of EFA by number of nodes: baselines by number of nodes",
    35: "unexplained in public too: baselines by number of nodes are all there is",
    38: "unequal counts: see test_ranks_behind_have_the_lowest_count",
    39: "a wish, not a fault",
    40: "a deadlock in the replay of graphs: RAS does not count these, see test_equal_counts_have_no_rank_behind",
}
"""Reports without evidence in the log, and where it is instead."""


def test_every_reported_fault_has_a_case():
    assert sorted([*LOGS, *OTHER_EVIDENCE]) == list(range(1, 41))


@pytest.mark.parametrize("number", LOGS)
def test_log_contains_the_evidence(number):
    case = LOGS[number]
    noise = ["", "iteration 1/2", info("Trees [0] 1/-1/-1->0->-1")]
    entries = list(scan("\n".join([*noise, *case.lines, *noise]).encode(), ScanStats()))
    assert len(entries) == len(case.lines)
    assert case.matches(entries)


@pytest.mark.parametrize("number", LOGS)
def test_healthy_log_does_not_contain_the_evidence(number):
    healthy = (
        info("NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB e:1<0>"),
        info("Using network IB"),
        channel(0, 0),
        info("Connected all rings, use ring PXN 0 GDR 1"),
        info("GPU Direct RDMA Enabled for GPU 81000 / HCA 0 (distance 4 <= 7), read 1"),
    )
    entries = list(scan("\n".join(healthy).encode(), ScanStats()))
    try:
        matches = LOGS[number].matches(entries)
    except IndexError:
        matches = False
    assert not matches


ROW = "{size:12d} {size:12d} float sum -1 {time:.2f} {speed:.2f} {speed:.2f} 0 {time:.2f} {speed:.2f} {speed:.2f} 0\n"


def test_bandwidth_cliff_shows_in_the_table():
    text = "".join(ROW.format(size=1 << power, time=10, speed=29.5 if power < 26 else 5.3) for power in range(22, 30))
    found = baseline([parse_text(text.encode())], "AllReduce")
    assert found["AllReduce", 1 << 25].bus_bandwidth > 5 * found["AllReduce", 1 << 26].bus_bandwidth


def test_pairwise_baselines_identify_the_slow_node():
    speeds = {}
    for pair, speed in (("a1 a2", 88.0), ("a1 a3", 49.0), ("a2 a3", 49.0)):
        ranks = [
            f"#  Rank  {rank} Group  0 Pid 1 on {host} device  0 [0x0f] X\n" for rank, host in enumerate(pair.split())
        ]
        run = parse_text(("".join(ranks) + ROW.format(size=1 << 30, time=9, speed=speed)).encode())
        speeds[frozenset(run.hosts)] = baseline([run], "AllReduce")["AllReduce", 1 << 30].bus_bandwidth
    slow = [hosts for hosts, speed in speeds.items() if speed < 60e9]
    assert frozenset.intersection(*slow) == {"a3"}


def ranks(**counts):
    return RasCommunicator(
        "0x1", 32, "", tuple(RasRank(int(name[1:]), collective_counts={"AllGather": n}) for name, n in counts.items())
    )


def test_ranks_behind_have_the_lowest_count():
    thirty = {f"r{rank}": 640 for rank in range(30)}
    (found,) = count_mismatches(ranks(**thirty, r30=641, r31=641))
    assert found.behind == tuple(range(30))


def test_equal_counts_have_no_rank_behind():
    before = now = ranks(r0=7, r1=7)
    assert is_stalled(before, now) is True
    assert count_mismatches(now) == ()
