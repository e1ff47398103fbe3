"""Transport of jobs by the bytes of their collectives and of RDMA ports: 16 ranks on two nodes, eight ports a node.

What a node moves is that of NCCL's algorithms: a ring sends 2(n-1)/n of an AllReduce and (n-1)/n of an AllGather over
each hop, and two nodes have one hop in each direction; the double binary tree of two nodes sends the size once in each
direction (nccl-tests' PERFORMANCE.md; the double binary trees of NCCL 2.4).
"""

from functools import partial

import pytest

from exporter.core.table import Column, Rows, Samples, Table
from exporter.meaning.training import transport
from exporter.sources.nccl.metrics import STREAMS
from exporter.sources.nic.metrics import SCHEMA as NIC
from exporter.sources.rdma.metrics import SCHEMA as RDMA

GIB = 1 << 30
RING = 2 * 2 * 15 / 16
TREE = 2 * 1
INFO = RDMA.metrics["info"].extra


def timings(now, size, *, kind="AllReduce", comm="0x1", ranks=8, nodes="2", n_ranks=16, timed=1, job="llm", first=0):
    """Return one operation of each local rank; a communicator of all of them."""
    keys = [(job, comm, kind, str(rank)) for rank in range(ranks)] if size is not None else []
    about = (str(n_ranks), nodes, "gpu-1", "", "", "", "", "", "")
    samples = Samples(((first, size, 1000, timed),))
    columns = {
        "operations": Column(STREAMS.metrics["operations"], [samples] * len(keys)),
        "stream_info": Column(STREAMS.metrics["stream_info"], [about] * len(keys)),
    }
    return Table(STREAMS, Rows(STREAMS.labels, keys, {}), columns, now)


def ports(now, counts, *, link_layer="Ethernet", up=None):
    """Return the table of RDMA ports with these bytes received, and as many transmitted."""
    keys = [(f"mlx5_{number}", "1") for number in range(len(counts))]
    about = [tuple({"link_layer": link_layer, "netdev": f"ib{one}"}.get(name, "") for name in INFO) for one, _ in
             enumerate(keys)]  # fmt: skip
    values = {
        "receive_bytes_total": counts,
        "transmit_bytes_total": counts,
        "link_up": up or [1] * len(keys),
        "info": about,
    }
    columns = {ending: Column(RDMA.metrics[ending], cells) for ending, cells in values.items()}
    return Table(RDMA, Rows(RDMA.labels, keys, {}), columns, now)


def kernel(now, counts):
    keys = [(f"ib{number}",) for number in range(len(counts))]
    endings = ("kernel_receive_bytes_total", "kernel_transmit_bytes_total")
    columns = {ending: Column(NIC.metrics[ending], counts) for ending in endings}
    return Table(NIC, Rows(NIC.labels, keys, {}), columns, now)


class Node:
    """A host whose collectives are reported, and whose ports are counted, each second."""

    def __init__(self, **options):
        self.options, self.counts, self.kernel = options, [0] * 8, [0] * 8
        self.tables, self.state, self.now = [], None, 1000.0
        self.seen = []

    def run(self, seconds, size, moved=0.0, *, used=range(8), in_kernel=0.0, report=True, extra=(), **about):
        """Let a second pass, several times.

        Args:
            seconds: How often.
            size: Bytes of the collective; None for none.
            moved: Bytes that the node moves over RDMA ports in both directions.
            used: Ports that move them.
            in_kernel: Bytes of these that the kernel moves.
            report: Whether timings are reported, or those of this second are lost.
            extra: Further tables of timings.
            about: Of the timings.
        """
        for _ in range(seconds):
            self.now += 1.0
            for port in used:
                self.counts[port] += round(moved / 2 / len(used))
                self.kernel[port] += round(in_kernel / 2 / len(used))
            self.tables = [ports(self.now, list(self.counts), **self.options), kernel(self.now, list(self.kernel))]
            table = timings(self.now, size if report else None, **about)
            self.step(table)
        return self.last

    def step(self, table):
        self.state, out = transport.step("gpu-1", lambda: self.tables, self.state, table)
        assert out[0] is table
        self.last = {
            (ending, key[0]): value
            for one in out[1:]
            for ending, column in one.columns.items()
            for key, value in zip(one.rows.keys, column.values, strict=True)
            if value is not None
        }
        self.seen.append(self.last)

    def all_of(self, ending, job="llm"):
        return [one[ending, job] for one in self.seen if (ending, job) in one]


@pytest.mark.parametrize(("kind", "factor"), [("AllReduce", RING), ("AllReduce", TREE), ("AllGather", 2 * 15 / 16)])
def test_a_job_that_uses_rdma_on_all_ports(kind, factor):
    node = Node()
    node.run(40, None)
    found = node.run(90, GIB, factor * GIB, kind=kind)
    least = 2 if kind == "AllReduce" else 1
    assert found["network_bytes_per_second", "llm"] == pytest.approx(least * GIB)
    assert found["network_ranks", "llm"] == 8
    assert found["rdma_ports_used", "llm"] == 8
    assert set(node.all_of("rdma_ports_used")) == {8}  # from its first value on
    assert min(node.all_of("rdma_ratio")) >= 0.9
    assert found["rdma_ratio", "llm"] <= 2 * 95 / 60


def test_alltoall_moves_what_is_for_ranks_of_other_nodes():
    node = Node()
    node.run(40, None)
    # Each of 8 ranks sends 1/16 of its GiB to each of the 8 ranks of the other node, and receives as much.
    found = node.run(70, GIB, 2 * 8 * 8 / 16 * GIB, kind="AlltoAll")
    assert found["network_bytes_per_second", "llm"] == pytest.approx(2 * 8 * 8 / 16 * GIB)


def test_ranks_of_a_pipeline_on_other_nodes_move_what_they_send():
    node = Node()
    node.run(40, None)
    found = node.run(70, GIB, GIB, kind="Send", ranks=1, n_ranks=2, used=[3])
    assert found["network_bytes_per_second", "llm"] == pytest.approx(GIB)
    assert (found["network_ranks", "llm"], found["rdma_ports_used", "llm"]) == (1, 1)


def test_a_job_on_tcp_is_detected_within_seconds():
    node = Node()
    node.run(40, None)
    found = node.run(10, GIB)
    assert found["rdma_ratio", "llm"] == 0
    assert ("rdma_ports_used", "llm") not in found


def test_some_messages_of_rdma_do_not_hide_tcp():
    node = Node()
    node.run(40, None)
    assert 0 < node.run(90, GIB, 0.05 * GIB)["rdma_ratio", "llm"] < transport.RDMA_SHARE


def test_tcp_over_ipoib_is_not_rdma():
    node = Node(link_layer="InfiniBand")
    node.run(40, None)
    # With headers, the port counts more than the kernel.
    assert node.run(90, GIB, 1.03 * TREE * GIB, in_kernel=TREE * GIB)["rdma_ratio", "llm"] < transport.RDMA_SHARE
    other = Node(link_layer="InfiniBand")
    other.run(40, None)
    assert other.run(90, GIB, TREE * GIB)["rdma_ratio", "llm"] >= 1


def test_four_of_eight_ports_are_used():
    node = Node()
    node.run(40, None)
    node.run(90, GIB, RING * GIB, used=range(4))
    assert set(node.all_of("rdma_ports_used")) == {4}


def test_a_port_of_storage_does_not_hide_that_the_others_are_used():
    node = Node()
    node.run(40, None)
    for _ in range(70):
        node.counts[7] += 50 * GIB  # a checkpoint, ten times as fast as the job's collectives
        node.run(1, GIB, RING * GIB)
    assert set(node.all_of("rdma_ports_used")) == {8}


def test_ranks_that_hardly_communicate_need_no_port():
    node = Node()
    node.run(40, None)
    for _ in range(90):  # rank 0 alone is in a communicator of much traffic
        node.run(1, GIB, TREE * GIB, comm="0x2", ranks=1, n_ranks=2, used=[0])
        node.step(timings(node.now, GIB // 100))
    assert (node.last["network_ranks", "llm"], node.last["rdma_ports_used", "llm"]) == (1, 1)


@pytest.mark.parametrize(
    "about",
    [
        {"nodes": "1", "n_ranks": 8},
        {"nodes": "", "n_ranks": 16},  # unknown
        {"timed": None},  # gloo, by the hook
        {"timed": 0},
        {"kind": "Send"},  # the peer may be on this node
    ],
    ids=str,
)
def test_nothing_is_said_of_a_job_whose_bytes_between_nodes_are_unknown(about):
    node = Node()
    node.run(40, None)
    assert node.run(90, GIB, **about) == {}


def test_little_traffic_is_not_judged():
    node = Node()
    node.run(40, None)
    assert node.run(90, (1 << 30) // 60 // 2 - 4096) == {}
    assert ("rdma_ratio", "llm") in node.run(90, (1 << 30) // 60 // 2 + 4096)


def test_ports_have_to_be_counted_since_before_the_collectives():
    node = Node()
    node.run(30, GIB)  # the exporter starts amid the job
    assert node.all_of("rdma_ratio") == []
    assert node.run(10, GIB)["rdma_ratio", "llm"] == 0


def test_a_port_without_counters_makes_the_bytes_unknown_unless_its_link_is_down():
    for up, known in (([1] * 8, False), ([1] * 7 + [0], True)):
        node = Node(up=up)
        node.counts[7] = None
        node.run(40, None, used=range(7))
        assert (("rdma_ratio", "llm") in node.run(60, GIB, used=range(7))) is known


@pytest.mark.parametrize("change", ["reset", "gone", "new", "unread"])
def test_bytes_are_unknown_for_a_while_after_ports_or_counters_changed(change):
    node = Node()
    node.run(40, None)
    node.run(60, GIB, RING * GIB)
    if change == "reset":
        node.counts[2] = 0
    elif change == "unread":
        node.tables = []
        node.step(timings(node.now, GIB))
    else:
        node.counts = node.counts[:-1] if change == "gone" else [*node.counts, 0]
        node.kernel = [0] * len(node.counts)
    assert ("rdma_ratio", "llm") not in node.run(1, GIB, RING * GIB, used=range(7))
    after = node.run(60, GIB, RING * GIB, used=range(7))
    assert after["rdma_ratio", "llm"] >= 1


def test_reports_half_a_minute_late_are_compared_with_the_traffic_before_them():
    node = Node()
    node.run(40, None)
    for _ in range(6):  # a step every 40 s, reported 25 s later
        node.run(2, None, 40 * RING * GIB / 2)
        node.run(23, None)
        node.run(1, 40 * GIB)
        node.run(14, None)
    ratios = node.all_of("rdma_ratio")
    assert len(ratios) > 100
    assert min(ratios) >= 0.9


def test_lost_records_make_less_expected_and_not_more():
    node = Node()
    node.run(40, None)
    for second in range(90):
        node.run(1, GIB, RING * GIB, report=second % 3 == 0)
    assert node.last["rdma_ratio", "llm"] >= 3
    assert node.last["rdma_ports_used", "llm"] == 8
    half = Node()  # and so do ranks that report nothing
    half.run(40, None)
    found = half.run(70, GIB, RING * GIB, ranks=4)
    assert found["network_bytes_per_second", "llm"] == pytest.approx(GIB)
    assert set(half.all_of("rdma_ports_used")) == {8}


def test_a_checkpoint_and_an_end_of_the_job_leave_nothing_to_judge():
    node = Node()
    node.run(40, None)
    node.run(90, GIB, RING * GIB)
    node.run(120, None)
    assert node.last == {}
    node.run(60, GIB, RING * GIB)
    assert min(node.all_of("rdma_ratio")) >= 0.9
    assert set(node.all_of("rdma_ports_used")) == {8}


def test_of_two_jobs_one_with_much_traffic_on_rdma_does_not_make_the_other_one_tcp():
    node = Node()
    node.run(40, None)
    for _ in range(90):
        small = timings(node.now + 1, GIB // 20, job="small")
        node.run(1, GIB, RING * 1.05 * GIB)
        node.step(small)
    assert node.last["rdma_ratio", "small"] > node.last["rdma_ratio", "llm"] >= 0.9
    assert not any(key[0] == "rdma_ports_used" for key in node.last)  # which job uses which port is unknown
    both = Node()
    both.run(40, None)
    for _ in range(90):
        both.run(1, GIB)
        both.step(timings(both.now, GIB, job="small"))
    assert (both.last["rdma_ratio", "llm"], both.last["rdma_ratio", "small"]) == (0, 0)


def test_a_node_of_several_hosts_is_expected_to_move_its_share_on_each():
    node = Node()
    node.run(40, None)
    # NVL72: two nodes of 72 ranks, four of them on this host.
    found = node.run(70, GIB, 2 * 4 / 72 * GIB, ranks=4, n_ranks=144, used=range(4))
    assert found["network_bytes_per_second", "llm"] == pytest.approx(2 * 4 / 72 * GIB)


def test_other_tables_pass_unchanged():
    table = ports(1.0, [0])
    assert partial(transport.step, "gpu-1", list)(None, table) == (None, (table,))
