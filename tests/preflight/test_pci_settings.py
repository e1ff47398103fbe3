"""Settings in the configuration space of PCI: redirects between GPUs and adapters, and read requests of adapters."""

import pytest

from tests.helpers.check_results import one, results_of, words
from tests.helpers.checked_host import ADAPTERS, CheckedHost


@pytest.fixture
def host(tmp_path):
    return CheckedHost(tmp_path)


BRIDGE = "devices/pci0000:15/0000:15:01.0"
FIRST_GPU = "0000:19:00.0"


def below_a_switch(host, acs):
    """Put a downstream port of a PCI switch between the first GPU and the bridge that it shares with its adapters."""
    old, port = host.function(FIRST_GPU), f"{BRIDGE}/0000:18:04.0"
    (host.sysfs / port).mkdir()
    (host.sysfs / old).rename(host.sysfs / port / FIRST_GPU)
    listed = host.sysfs / "bus/pci/devices" / FIRST_GPU
    listed.unlink()
    listed.symlink_to(host.sysfs / port / FIRST_GPU)
    host.config(port, acs=acs)
    return port


@pytest.mark.parametrize(
    ("acs", "expected"),
    [(0x01, "ok"), (0x1D, "warn"), (0x10, "warn"), (0x60, "ok")],
    ids=["SrcValid alone", "all four", "UpstreamFwd", "others"],
)
def test_acs_is_judged_by_its_redirects(host, acs, expected):
    """SrcValid alone does no harm (nccl#606); the redirects send traffic up to the root port (nccl#304)."""
    below_a_switch(host, acs)
    results = [row[1] for row in results_of(host)["pci_acs"] if row[0].startswith(FIRST_GPU)]
    assert results == [expected] * 2, "to each of its nearest adapters"


def test_acs_of_the_shared_bridge_of_other_bridges_and_of_guests_is_no_fault(host):
    host.config(BRIDGE, acs=0x1D)  # traffic turns below it
    assert set(words(host, "pci_acs")) == {"ok"}
    below_a_switch(host, 0x1D)
    assert [row[1] for row in results_of(host)["pci_acs"] if row[0].startswith("0000:99:00.0")] == ["ok", "ok"]
    host.write_proc("cpuinfo", "flags : fpu hypervisor")
    assert set(words(host, "pci_acs")) == {"not_applicable"}
    host.write_proc("cpuinfo", "Features : fp asimd")  # Arm, where some platforms need them
    assert "warn" not in words(host, "pci_acs")
    assert "unknown" in words(host, "pci_acs")


def test_a_gpu_below_no_switch_has_no_acs_to_check(host):
    for link in ("class/infiniband/mlx5_2", "class/infiniband/mlx5_3"):
        (host.sysfs / link).unlink()
    assert [row[1] for row in results_of(host)["pci_acs"] if row[0].startswith("0000:99")] == ["not_applicable"]


def test_without_rights_settings_of_pci_are_unknown_once_for_the_host(host):
    below_a_switch(host, 0x1D)
    for folder in (*map(host.function, ADAPTERS.values()), f"{BRIDGE}/0000:18:04.0"):
        host.config(folder, size=64)
    assert words(host, "pcie_requests") == ["unknown"]
    rows = results_of(host)["pci_acs"]
    assert [row[:2] for row in rows if row[1] != "ok"] == [("gpu-001", "unknown")]
    assert "CAP_SYS_ADMIN" in rows[-1][2]


@pytest.mark.parametrize(
    ("control", "expected"),
    [(0x5930, "ok"), (0x2930, "warn"), (0x5910, "warn"), (0x5920, "warn")],
    ids=["as the others", "MaxReadReq 512", "MaxPayload 128", "relaxed ordering off"],
)
def test_an_adapter_whose_requests_differ_from_its_model_is_a_warning(host, control, expected):
    for address in ADAPTERS.values():
        host.config(host.function(address), control=0x5930)
    host.config(host.function("0000:18:00.0"), control=control)
    assert one(host, "pcie_requests", "0000:18:00.0")[0] == expected
    assert words(host, "pcie_requests").count("ok") == 3 + (expected == "ok")


@pytest.mark.parametrize(
    ("vendor", "rate", "expected"),
    [
        ("0x15b3", "400 Gb/sec (4X NDR)", "warn"),
        ("0x15b3", "100 Gb/sec (4X EDR)", "ok"),
        ("0x14e4", "400 Gb/sec (4X NDR)", "ok"),
    ],
    ids=["NVIDIA at 400 Gb/s", "at 100 Gb/s", "Broadcom"],
)
def test_small_read_requests_are_a_warning_where_the_operator_sets_larger_ones(host, vendor, rate, expected):
    for device, address in ADAPTERS.items():
        host.config(host.function(address), control=0x2930)
        host.write_sys(f"{host.function(address)}/vendor", vendor)
        host.port(device, rate=rate)
    assert set(words(host, "pcie_requests")) == {expected}
