"""Settings of a host that should be those of others: by class of hosts, and by job."""

import pytest

from exporter.preflight.facts import (
    HostFacts,
    JobProcess,
    JobProcesses,
    KernelFacts,
    NetworkPortFacts,
    PciFacts,
    RdmaPortFacts,
)
from exporter.preflight.settings import MAX_VALUE, Setting, host_class, settings_of


def rdma(device="mlx5_0", **facts):
    return RdmaPortFacts(device=device, **{"netdev": "eth0", "link_layer": "Ethernet", "board": "MT_1", **facts})


def values(facts, name):
    return [one.value for one in settings_of(facts) if one.name == name]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (HostFacts(host="h"), "no RDMA"),
        (HostFacts(host="h", rdma_ports=[rdma(), rdma("mlx5_1")]), "MT_1"),
        (HostFacts(host="h", rdma_ports=[rdma()], gpus=[PciFacts(address="0000:19:00.0")]), "MT_1, GPUs"),
        (HostFacts(host="h", rdma_ports=[rdma(board="", driver="bnxt_en"), rdma("mlx5_1")]), "MT_1, bnxt_en"),
    ],
)
def test_the_class_is_boards_or_drivers_and_whether_there_are_gpus(facts, expected):
    assert host_class(facts) == expected


def test_a_host_with_fewer_devices_is_of_the_same_class_and_their_number_is_a_setting():
    seven = HostFacts(host="h", rdma_ports=[rdma(f"mlx5_{number}") for number in range(7)])
    assert host_class(seven) == "MT_1"
    assert values(seven, "RDMA ports") == ["7"]


def test_ports_that_differ_are_two_values_and_management_ports_are_none():
    ports = [rdma(), rdma("mlx5_1", netdev="eth1"), rdma("mlx5_2", netdev="ib0", link_layer="InfiniBand")]
    devices = [
        NetworkPortFacts(device="eth0", mtu=9000, pfc=(3,), pause=(False, False), trust="dscp"),
        NetworkPortFacts(device="eth1", mtu=1500, pfc=(), pause=(True, False)),
        NetworkPortFacts(device="mgmt", mtu=1400),
        NetworkPortFacts(device="ib0", mtu=2044),
    ]
    facts = HostFacts(host="h", rdma_ports=ports, network_ports=devices)
    assert values(facts, "MTU") == ["1500", "9000"]
    assert values(facts, "PFC") == ["3", "off"]
    assert values(facts, "pause") == ["off", "receive"]
    assert values(facts, "trust") == ["dscp"]


def test_priorities_of_congestion_control_are_those_that_are_on():
    ecn = {"notification_point": {3: True, 4: False}, "reaction_point": {3: False}}
    facts = HostFacts(host="h", rdma_ports=[rdma()], network_ports=[NetworkPortFacts(device="eth0", ecn=ecn)])
    assert values(facts, "ECN") == ["notification point 3, reaction point off"]


def test_what_cannot_be_read_is_absent():
    facts = HostFacts(host="h", unread=frozenset({"gpus", "rdma_ports"}))
    assert settings_of(facts) == []


def test_variables_of_a_job_are_those_that_its_hosts_share():
    own = {"NCCL_IB_TC": "106", "NCCL_ALGO": "Ring", "NCCL_IB_HCA": "mlx5_0", "NCCL_SOCKET_IFNAME": "eth5"}
    facts = HostFacts(
        host="h",
        kernel=KernelFacts(release="6.8.0"),
        processes=JobProcesses(
            found=[
                JobProcess(pid=1, job="77", nccl=own, memlock=65536.0),
                JobProcess(pid=2, job="77", nccl=own, memlock=65536.0, may_lock=True),
                JobProcess(pid=3, job="78", nccl={}),
                JobProcess(pid=4, nccl=own),
            ]
        ),
    )
    assert settings_of(facts) == [
        Setting("job 77", "locked memory", "65536 bytes"),
        Setting("job 77", "locked memory", "unlimited"),
        Setting("job 77", "variables of NCCL", "NCCL_ALGO=Ring NCCL_IB_TC=106"),
        Setting("job 78", "variables of NCCL", "none"),
        Setting("no RDMA", "GPUs", "0"),
        Setting("no RDMA", "RDMA ports", "0"),
        Setting("no RDMA", "kernel", "6.8.0"),
    ]


def test_long_values_that_differ_at_their_end_differ():
    def facts(end):
        return HostFacts(
            host="h", processes=JobProcesses(found=[JobProcess(pid=1, job="1", nccl={"NCCL_ALGO": "R" * 300 + end})])
        )

    one, other = values(facts("a"), "variables of NCCL")[0], values(facts("b"), "variables of NCCL")[0]
    assert one != other
    assert len(one) == len(other) == MAX_VALUE
