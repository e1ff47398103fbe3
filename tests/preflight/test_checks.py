"""Checks on whole hosts: each check has a good case and bad ones, and known false alarms are cases.

A host is written as files, read by the readers of the source and judged; the expected results are those of the kernel's
and NCCL's documentation and source, as the comments say.
"""

import socket

import pytest

from exporter.core.source import Host
from exporter.preflight import expectations
from exporter.preflight.checks import CHECKS
from exporter.preflight.results import Result, evaluate
from exporter.sources.common.host_ports import nic_reader
from exporter.sources.hostcheck.host_facts import host_facts, readings
from exporter.sources.rdma.ports import rdma_reader
from tests.helpers.check_results import one, results_of, words
from tests.helpers.checked_host import ADAPTERS, GPUS, CheckedHost

NAMES = {check.name for check in CHECKS}


@pytest.fixture
def host(tmp_path):
    return CheckedHost(tmp_path)


def test_a_good_host_passes_all_checks_that_it_has(host):
    found = results_of(host)
    assert found.keys() == NAMES
    assert {result for results in found.values() for _, result, _, _ in results} == {"ok", "not_applicable"}
    absent = {
        check for check, results in found.items() if [result for _, result, _, _ in results] == ["not_applicable"]
    }
    of_infiniband = {"infiniband_port", "infiniband_subnet_manager", "infiniband_partition"}
    assert absent == {*of_infiniband, "nccl_conf", *(check.name for check in expectations.CHECKS)}


def test_an_empty_host_raises_nothing_and_passes_nothing(tmp_path):
    root = Host("gpu-001", tmp_path, tmp_path, tmp_path)
    answers = {}
    for kind, call in readings(root, nic_reader(root), rdma_reader(root), [], tmp_path / "nccl.conf", tmp_path).items():
        try:
            answers[kind] = call()
        except OSError as error:
            answers[kind] = error
    found = evaluate(CHECKS, host_facts(root, answers))
    assert found.keys() == NAMES
    assert {one.result for results in found.values() for one in results} <= {Result.UNKNOWN, Result.NOT_APPLICABLE}


def test_every_warning_and_failure_has_a_remedy(host):
    host.write_sys(f"{host.function('0000:17:00.0')}/current_link_width", "4")
    host.record("rail0", pause={"receive": True, "transmit": True}, dcb={"pfc": [3]})
    host.nccl_conf.write_text("NCCL_IB_TC = 106\n")
    host.process(4242, memlock="65536", RANK="0", WORLD_SIZE="8", NCCL_NET="Socket", NCCL_IB_TIMEOUT="99")
    found = [row for results in results_of(host).values() for row in results]
    bad = [row for row in found if row[1] in {"warn", "fail"}]
    assert len(bad) >= 7
    assert all(remedy for _, _, _, remedy in bad)
    assert not any(remedy for _, result, _, remedy in found if result not in {"warn", "fail"})


# --- links


def test_a_narrow_pcie_link_fails_and_limits_its_port(host):
    host.write_sys(f"{host.function('0000:17:00.0')}/current_link_width", "8")
    assert one(host, "pcie_link", "0000:17:00.0")[0] == "fail"
    # 32 GT/s * 8 lanes * 128/130, as the kernel's "252.056 Gb/s available PCIe bandwidth".
    assert one(host, "pcie_bandwidth", "0000:17:00.0") == (
        "warn",
        "PCIe carries 252.1 Gb/s, its ports that are up 400 Gb/s",
    )


def test_a_gen5_card_in_a_gen4_slot_is_not_degraded_but_too_slow_for_400g(host):
    folder = host.function("0000:17:00.0")
    host.write_sys(f"{folder}/current_link_speed", "16.0 GT/s PCIe")
    host.write_sys(f"{folder.rpartition('/')[0]}/max_link_speed", "16.0 GT/s PCIe")
    assert one(host, "pcie_link", "0000:17:00.0")[0] == "ok"
    assert one(host, "pcie_bandwidth", "0000:17:00.0")[0] == "warn"


def test_an_idle_gpu_at_a_low_speed_is_no_fault_but_one_at_fewer_lanes_is(host):
    gpu = next(iter(GPUS))
    host.write_sys(f"{host.function(gpu)}/current_link_speed", "2.5 GT/s PCIe")
    assert one(host, "pcie_link", gpu)[0] == "ok"
    host.write_sys(f"{host.function(gpu)}/current_link_width", "8")
    assert one(host, "pcie_link", gpu)[0] == "fail"


@pytest.mark.parametrize(("file", "text"), [("power/runtime_status", "suspended"), ("current_link_width", "63")])
def test_the_link_of_a_suspended_or_virtual_function_is_unknown(host, file, text):
    host.write_sys(f"{host.function('0000:17:00.0')}/{file}", text)
    assert one(host, "pcie_link", "0000:17:00.0")[0] == "unknown"


def test_a_slow_port_is_named_by_its_adapter_and_by_its_siblings(host):
    host.port("mlx5_1", rate="100 Gb/sec (4X EDR)")
    host.record("rail1", link_modes={"speed_bits_per_second": 10**11, "max_speed_bits_per_second": 4 * 10**11})
    assert one(host, "port_rate_siblings", "mlx5_1") == ("fail", "100 Gb/s; 3 of 4 ports have 400 Gb/s")
    assert one(host, "port_speed", "rail1")[0] == "warn"
    assert words(host, "port_speed") == ["ok", "warn", "ok", "ok"]


def test_one_adapter_with_other_firmware_is_named_with_both_versions(host):
    host.write_sys(f"{host.function('0000:98:00.0')}/infiniband/mlx5_3/fw_ver", "28.38.1900")
    result, evidence = one(host, "firmware", "mlx5_3")
    assert result == "warn"
    assert "28.38.1900" in evidence
    assert "28.39.1002" in evidence


# --- GPUDirect


@pytest.mark.parametrize(
    ("peermem", "loaded", "driver", "release", "expected"),
    [
        (True, True, "", "5.4.0", "ok"),
        (False, True, "NVIDIA UNIX x86_64 Kernel Module  535.1", "6.8.0", "warn"),
        (False, False, "NVIDIA UNIX Open Kernel Module for x86_64  550.9", "6.8.0", "ok"),
        (False, False, "NVIDIA UNIX Open Kernel Module for x86_64  550.9", "5.4.0", "fail"),
        (False, False, "NVIDIA UNIX x86_64 Kernel Module  535.1", "6.8.0", "fail"),
        (False, False, "", "6.8.0", "unknown"),
    ],
    ids=["peermem", "useless", "DMA-BUF", "old kernel", "closed module", "not visible"],
)
def test_gpudirect_fails_only_where_neither_way_can_work(host, peermem, loaded, driver, release, expected):
    """As NCCL's gdr.cc: any of its files of peer memory; DMA-BUF needs the open module and Linux 5.12."""
    if not peermem:
        (host.sysfs / "module/nvidia_peermem/version").unlink()
        (host.sysfs / "module/nvidia_peermem").rmdir()
    host.write_proc("modules", "nvidia_peermem 16384 0 - Live 0x0" if loaded else "mlx5_core 1 0 - Live 0x0")
    host.write_proc("driver/nvidia/version", driver)
    host.write_proc("sys/kernel/osrelease", release)
    assert words(host, "gpudirect_interface") == [expected]


def test_a_gpu_without_an_adapter_below_its_switch_is_a_warning(host):
    for device in ("mlx5_2", "mlx5_3"):
        for link in (host.sysfs / "class/infiniband" / device, host.sysfs / "class/net" / f"rail{device[-1]}"):
            link.unlink()
    assert one(host, "gpu_adapter_distance", "0000:19:00.0")[0] == "ok"
    assert one(host, "gpu_adapter_distance", "0000:99:00.0") == (
        "warn",
        "all adapters are on other sockets, and NCCL uses no GPUDirect that far by default",
    )
    host.write_proc("cpuinfo", "flags : fpu hypervisor")
    assert one(host, "gpu_adapter_distance", "0000:99:00.0")[0] == "not_applicable"


# --- RoCE


@pytest.mark.parametrize(
    ("dcb", "pause", "expected"),
    [
        ({"pfc": [3]}, (False, False), "ok"),
        ({"pfc": [3, 4]}, (False, False), "ok"),  # as SONiC has it
        ({"pfc": [3]}, (True, False), "fail"),
        ({"pfc": []}, (False, False), "warn"),
        ({"pfc": []}, (True, True), "warn"),
        ({"pfc": [0, 1, 2, 3]}, (False, False), "warn"),
        ({"errno": "EOPNOTSUPP"}, (False, False), "unknown"),
    ],
    ids=["one", "two", "and pause", "neither", "pause alone", "four", "not reported"],
)
def test_priority_flow_control(host, dcb, pause, expected):
    host.record("rail2", dcb=dcb, pause=dict(zip(("receive", "transmit"), pause, strict=True)))
    assert one(host, "roce_flow_control", "rail2")[0] == expected


@pytest.mark.parametrize(
    ("mtu", "size"), [(1500, 1024), (2200, 2048), (4191, 2048), (4192, 4096), (4200, 4096), (9000, 4096)]
)
def test_the_mtu_of_rdma_is_that_of_linux(host, mtu, size):
    """As iboe_get_mtu: the largest of 256 to 4096 that leaves 96 bytes. 4200 is enough, 9000 is not needed."""
    host.record("rail0", link={"ifindex": 2, "carrier": True, "mtu": mtu, "parent_dev_name": ADAPTERS["mlx5_0"]})
    result, evidence = one(host, "roce_mtu", "rail0")
    assert f"RDMA uses {size} bytes" in evidence
    assert result == ("ok" if size == 4096 else "warn")


def test_trust_and_congestion_control(host):
    host.record("rail1", dcb={"pfc": [3], "dscp_rules": False})
    assert one(host, "roce_trust", "rail1")[0] == "warn"
    folder = f"{host.function('0000:17:00.0')}/net/rail0/ecn"
    host.write_sys(f"{folder}/roce_rp/enable/3", "0")
    assert one(host, "roce_congestion_control", "rail0") == (
        "fail",
        "congestion control is off as reaction point for priority 3",
    )
    (host.sysfs / folder / "roce_rp/enable/3").unlink()
    assert one(host, "roce_congestion_control", "rail0")[0] == "unknown", "a missing file is not off"


@pytest.mark.parametrize(
    ("dscp", "priority", "rules", "expected"),
    [
        ("48", "6", True, "ok"),
        ("4", "6", True, "ok"),  # as NVIDIA's operator sets it: priority 0
        ("26", "6", True, "warn"),  # the DSCP of RDMA
        ("48", "3", False, "warn"),
        ("26", "6", False, "ok"),
        ("64", "6", True, "unknown"),
        ("", "", True, "unknown"),
    ],
)
def test_notification_packets_are_not_in_a_priority_that_pauses(host, dscp, priority, rules, expected):
    """By the default map the priority is the DSCP divided by 8; a port that trusts PCP uses that of 802.1p."""
    folder = f"{host.function('0000:17:00.0')}/net/rail0/ecn/roce_np"
    host.write_sys(f"{folder}/cnp_dscp", dscp)
    host.write_sys(f"{folder}/cnp_802p_prio", priority)
    host.record("rail0", dcb={"pfc": [3], "dscp_rules": rules})
    assert one(host, "roce_notifications", "rail0")[0] == expected


def test_a_port_that_marks_notification_packets_otherwise_is_named(host):
    host.write_sys(f"{host.function('0000:18:00.0')}/net/rail1/ecn/roce_np/cnp_dscp", "4")
    assert one(host, "roce_ports_alike", "rail1") == ("warn", "CNP DSCP: 4; 48 at most of the other ports")


LOCAL, MAPPED, GLOBAL = "fe80::1", "::ffff:10.0.0.5", "2001:db8::5"
V1, V2 = "IB/RoCE v1", "RoCE v2"


@pytest.mark.parametrize(
    ("table", "index", "expected"),
    [
        ([(LOCAL, V1), (LOCAL, V2), (MAPPED, V1), (MAPPED, V2)], 3, "ok"),
        ([(LOCAL, V1), (LOCAL, V2), (GLOBAL, V1), (GLOBAL, V2), (MAPPED, V1), (MAPPED, V2)], 5, "ok"),
        ([(LOCAL, V1), (LOCAL, V2), (MAPPED, V1), (MAPPED, V2), (MAPPED, V1), (MAPPED, V2)], 3, "ok"),
        ([(LOCAL, V1), (LOCAL, V2)], 0, "fail"),
        ([(LOCAL, V2), (MAPPED, V2)], 1, "ok"),
        ([(LOCAL, V1), (LOCAL, V2), (MAPPED, V1)], 2, "fail"),
    ],
    ids=["usual", "IPv6 first", "two addresses", "link-local", "without v1", "v1 alone"],
)
def test_the_gid_that_nccl_picks(host, table, index, expected):
    """As ncclIbGetGidIndex of NCCL 2.30 picks from these tables."""
    for folder in ("gids", "gid_attrs/types"):
        for entry in (host.sysfs / host.function("0000:17:00.0") / "infiniband/mlx5_0/ports/1" / folder).iterdir():
            entry.unlink()
    host.gids("mlx5_0", [(_as_sysfs(address), kind) for address, kind in table])
    result, evidence = one(host, "roce_gid", "mlx5_0:1")
    assert result == expected
    assert f"NCCL picks GID {index}," in evidence


def _as_sysfs(address):
    return socket.inet_pton(socket.AF_INET6, address).hex(":", 2)


def test_one_port_that_differs_is_named_with_both_values(host):
    host.record("rail3", link={"ifindex": 5, "carrier": True, "mtu": 4200, "parent_dev_name": ADAPTERS["mlx5_3"]})
    assert one(host, "roce_ports_alike", "rail3") == ("warn", "MTU: 4200; 9000 at most of the other ports")
    assert words(host, "roce_ports_alike").count("ok") == 3


@pytest.mark.parametrize(
    ("mtu", "pfc", "expected"),
    [(9000, [3], "ok"), (9216, [3], "ok"), (9500, [3], "fail"), (9000, [3, 4], "fail"), (9000, [5], "fail")],
)
def test_the_port_of_the_switch_agrees_or_the_check_names_it(host, mtu, pfc, expected):
    """The switch announces PFC on priority 3, and frames of 9234 bytes at most."""
    link = {"ifindex": 2, "carrier": True, "mtu": mtu, "parent_dev_name": ADAPTERS["mlx5_0"]}
    host.record("rail0", link=link, dcb={"pfc": pfc, "dscp_rules": True})
    result, evidence = one(host, "roce_switch_port", "rail0")
    assert result == expected
    assert "leaf1 Ethernet1/1" in evidence


def test_a_switch_that_announces_nothing_is_unknown(host):
    (host.lldp / "2").unlink()
    assert words(host, "roce_switch_port") == ["unknown", "ok", "ok", "ok"]


# --- InfiniBand


def infiniband(host, **files):
    defaults = {
        "link_layer": "InfiniBand",
        "lid": "0x12",
        "sm_lid": "0x1",
        "gids__0": "fe80:0000:0000:0000:0000:0000:0000:0001",
    }
    for device in ADAPTERS:
        host.port(device, **defaults)
    host.port("mlx5_0", **files)


@pytest.mark.parametrize(
    ("files", "check", "expected"),
    [
        ({}, "infiniband_port", "ok"),
        ({"state": "2: INIT", "sm_lid": "0x0"}, "infiniband_port", "fail"),
        ({"state": "1: DOWN", "phys_state": "2: Polling"}, "infiniband_port", "warn"),
        ({"state": "1: DOWN", "phys_state": "3: Disabled"}, "infiniband_port", "not_applicable"),
        ({}, "infiniband_subnet_manager", "ok"),
        ({"sm_lid": "0x2"}, "infiniband_subnet_manager", "warn"),
        ({"sm_lid": "0x2", "gids__0": "fec0::1"}, "infiniband_subnet_manager", "ok"),
        ({}, "infiniband_partition", "ok"),
        ({"pkeys__0": "0x7fff"}, "infiniband_partition", "warn"),
        ({"pkeys__0": "0x0000"}, "infiniband_partition", "fail"),
    ],
)
def test_infiniband_ports(host, files, check, expected):
    infiniband(host, **files)
    assert one(host, check, "mlx5_0:1")[0] == expected
    assert words(host, "roce_gid") == ["not_applicable"], "RoCE is not checked on InfiniBand"


# --- host


@pytest.mark.parametrize(
    ("limit", "capabilities", "expected"),
    [("unlimited", 0, "ok"), (str(64 << 30), 0, "ok"), ("65536", 0, "fail"), ("65536", 1 << 14, "ok")],
    ids=["unlimited", "64 GiB", "64 KiB", "CAP_IPC_LOCK"],
)
def test_locked_memory(host, limit, capabilities, expected):
    host.process(4242, memlock=limit, capabilities=capabilities, RANK="0", WORLD_SIZE="8", SLURM_JOB_ID="77")
    assert one(host, "locked_memory", "job 77")[0] == expected


def test_processes_of_one_job_with_one_fault_are_one_result(host):
    for pid in (4242, 4243, 4244):
        limit = "65536" if pid < 4244 else "unlimited"
        host.process(pid, memlock=limit, RANK="0", WORLD_SIZE="8", SLURM_JOB_ID="77")
    found = {result: evidence for _, result, evidence, _ in results_of(host)["locked_memory"]}
    assert found == {
        "fail": "may lock 64 KiB of memory; RDMA needs its buffers locked (2 of 3 processes)",
        "ok": "may lock any memory (1 of 3 processes)",
    }


@pytest.mark.parametrize(
    ("path", "text", "check", "expected"),
    [
        ("sys/kernel/numa_balancing", "1", "numa_balancing", "warn"),
        ("cpuinfo", "flags : fpu hypervisor", "iommu", "not_applicable"),
        ("irq/57/effective_affinity_list", "63", "interrupts", "warn"),
        ("sys/net/ipv4/conf/rail0/rp_filter", "1", "arp_of_rails", "warn"),
        ("sys/net/ipv4/conf/all/arp_ignore", "1", "arp_of_rails", "ok"),
    ],
)
def test_settings_of_the_kernel(host, path, text, check, expected):
    host.write_proc(path, text)
    assert words(host, check)[0] == expected


def test_files_of_sysfs_about_the_host(host):
    host.write_sys("devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave")
    assert words(host, "cpu_governor") == ["warn"]
    host.write_sys("kernel/iommu_groups/7/type", "DMA-FQ")
    assert set(words(host, "iommu")) == {"warn"}
    host.write_sys(f"{host.function('0000:17:00.0')}/numa_node", "-1")
    assert one(host, "numa_node", "0000:17:00.0")[0] == "warn"


# --- NCCL


@pytest.mark.parametrize(
    ("variables", "expected", "evidence"),
    [
        ({"NCCL_IB_DISABLE": "1"}, "fail", "makes the job use TCP, and 4 RDMA ports are active"),
        ({"NCCL_NET": "Socket"}, "fail", "makes the job use TCP"),
        ({"NCCL_IB_HCA": "ib0"}, "fail", "matches no active port"),
        ({"NCCL_IB_HCA": "mlx5_0"}, "warn", "selects 1 of 4"),
        ({"NCCL_IB_HCA": "mlx5"}, "ok", "variables"),
        ({"NCCL_IB_HCA": "^mlx5_3:1"}, "warn", "selects 3 of 4"),
        ({"NCCL_IB_HCA": "=mlx5_1,mlx5_2"}, "warn", "selects 2 of 4"),
        ({"NCCL_IB_GID_INDEX": "3"}, "ok", "variables"),
        ({"NCCL_IB_GID_INDEX": "2"}, "fail", "is IB/RoCE v1"),
        ({"NCCL_IB_GID_INDEX": "7"}, "fail", "is empty"),
        ({"NCCL_NET_GDR_LEVEL": "LOC"}, "fail", "switches GPUDirect off"),
        ({"NCCL_NET_GDR_LEVEL": "SYS"}, "warn", "across sockets"),
        ({"NCCL_P2P_LEVEL": "PH"}, "warn", "the levels are"),
        ({"NCCL_IB_RETRY_CNT": "13"}, "warn", "the range is 0 to 7"),
        ({"NCCL_IB_TIMEOUT": "22"}, "ok", "variables"),
        ({"NCCL_SHARP_ENABLE": "1"}, "warn", "no effect"),
        ({"NCCL_ALGO": "Ring"}, "warn", "finding faults"),
        ({"NCCL_DEBUG": "INFO"}, "ok", "variables"),
        ({"CUDA_LAUNCH_BLOCKING": "1"}, "warn", "finding faults"),
    ],
    ids=str,
)
def test_variables_of_nccl(host, variables, expected, evidence):
    host.process(4242, RANK="0", WORLD_SIZE="8", SLURM_JOB_ID="77", **variables)
    found = {result: text for _, result, text, _ in results_of(host)["nccl_variables"]}
    assert expected in found
    assert evidence in found[expected]


def test_variables_that_differ_within_a_job_are_named(host):
    for pid, timeout in ((4242, "20"), (4243, "22")):
        host.process(
            pid, RANK="0", WORLD_SIZE="8", SLURM_JOB_ID="77", NCCL_IB_TIMEOUT=timeout, NCCL_DEBUG_FILE=str(pid)
        )
    host.process(5000, RANK="0", WORLD_SIZE="8", SLURM_JOB_ID="78", NCCL_IB_TIMEOUT="18")
    assert one(host, "nccl_variables_alike", "job 77") == (
        "warn",
        "NCCL_IB_TIMEOUT differs among its processes: 20 in 1, 22 in 1",
    )
    assert one(host, "nccl_variables_alike", "job 78")[0] == "ok"
    host.process(5001, RANK="1", WORLD_SIZE="8", SLURM_JOB_ID="78", NCCL_IB_TIMEOUT="18", NCCL_ALGO="Ring")
    assert one(host, "nccl_variables_alike", "job 78")[0] == "fail"


def test_processes_without_a_job_are_not_compared(host):
    """Two jobs that nothing names may have any variables."""
    for pid, algorithm in ((4242, "Ring"), (4243, "Tree")):
        host.process(pid, RANK="0", WORLD_SIZE="2", NCCL_ALGO=algorithm)
    assert words(host, "nccl_variables_alike") == ["not_applicable"]


def test_text_that_could_change_a_terminal_is_not_shown(host):
    for file in ("infiniband/mlx5_0/fw_ver", "infiniband/mlx5_0/ports/1/gid_attrs/types/0"):
        (host.sysfs / host.function("0000:17:00.0") / file).write_bytes(b"\x1b[2J\xff\n")
    (host.sysfs / host.function("0000:17:00.0") / "infiniband/mlx5_0/ports/1/gids/0").write_bytes(b"\xff\xfe\n")
    assert all(text.isprintable() for results in results_of(host).values() for row in results for text in row)


def test_paths_and_other_variables_are_never_shown(host):
    host.process(4242, RANK="0", WORLD_SIZE="8", NCCL_DEBUG_FILE="/secret", TOKEN="secret")
    assert "secret" not in str(results_of(host))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("NCCL_IB_TC=106", "ok"),
        ("# NCCL_IB_TC =106", "ok"),
        ("NCCL_IB_TC =106", "warn"),
        ("export NCCL_IB_TC=106", "warn"),
    ],
)
def test_lines_of_nccl_conf(host, line, expected):
    """NCCL's param.cc skips lines that begin with #, removes CR, and trims nothing else."""
    host.nccl_conf.write_bytes(f"NCCL_DEBUG=WARN\r\n{line}\r\n".encode())
    assert words(host, "nccl_conf") == [expected]


def test_values_of_nccl_conf_are_judged_and_the_first_one_counts(host, tmp_path):
    file = tmp_path / "mounted"
    file.write_text("NCCL_IB_DISABLE=1\nNCCL_IB_TIMEOUT=99\nNCCL_IB_TIMEOUT=22\n")
    host.nccl_conf.symlink_to(file)  # as of a ConfigMap
    assert sorted(words(host, "nccl_conf")) == ["fail", "warn"]


def test_what_cannot_be_read_is_unknown_and_hides_nothing_else(host):
    for file in host.recordings.iterdir():
        file.unlink()
    host.recordings.rmdir()
    assert words(host, "roce_mtu") == ["unknown"]
    assert set(words(host, "pcie_link")) == {"ok"}
