"""Hosts compared with each other."""

import pytest

from exporter.preflight.fleet import Odd, Place, Property, Sample, odd_ones, properties_of

MTU = Property(Place("device", "eth5"), "MTU")


def hosts(*values):
    return {f"gpu-{number}": {} if value is None else {MTU: value} for number, value in enumerate(values)}


def test_the_minority_is_named_with_both_values():
    assert list(odd_ones(hosts("9000", "9000", "1500", "9000"))) == [Odd("gpu-2", MTU, "1500", "9000", 3, 4)]


@pytest.mark.parametrize(
    "values",
    [("9000", "1500"), ("9000", "9000", "1500", "1500"), ("9000", "1500", "4200"), ("9000", "9000", "9000"), ()],
    ids=["two hosts", "no majority", "all different", "all alike", "none"],
)
def test_without_a_majority_of_three_hosts_none_is_odd(values):
    assert list(odd_ones(hosts(*values))) == []


def test_a_host_that_does_not_report_a_property_is_neither_odd_nor_counted():
    assert list(odd_ones(hosts("9000", "9000", None, "1500"))) == [Odd("gpu-3", MTU, "1500", "9000", 2, 3)]


def test_properties_are_compared_by_rail_where_ports_have_one():
    info = {"device": "mlx5_0", "rail": "3", "firmware": "28.39.1002", "driver": "mlx5_core"}
    found = properties_of(
        [
            Sample("fabric_rdma_info", info, 1.0),
            Sample("fabric_nic_mtu_bytes", {"device": "eth5"}, 9000.0),
            Sample("fabric_nic_settings_info", {"device": "eth5", "pfc": "3", "trust": ""}, 1.0),
            Sample("other_metric", {"device": "eth5"}, 1.0),
        ]
    )
    rail = Place("rail", "3")
    assert found == {
        Property(rail, "firmware"): "28.39.1002",
        Property(rail, "driver"): "mlx5_core",
        MTU: "9000",
        Property(Place("device", "eth5"), "pfc"): "3",
        Property(Place("", ""), "number of RDMA ports"): "1",
    }


def setting(of, name, value):
    labels = {"host": "gpu-001", "class": of, "setting": name, "value": value}
    return Sample("fabric_check_setting_info", labels, 1.0)


def test_settings_are_compared_in_a_class_or_a_job_and_those_that_other_metrics_have_are_not_repeated():
    found = properties_of(
        [
            setting("mlx5, GPUs", "kernel", "6.8.0"),
            setting("mlx5, GPUs", "CPU governor", "powersave"),
            setting("mlx5, GPUs", "CPU governor", "performance"),
            setting("mlx5, GPUs", "MTU", "9000"),
            setting("job 77", "variables of NCCL", "NCCL_IB_TC=106"),
        ]
    )
    assert found == {
        Property(Place("", "mlx5, GPUs"), "kernel"): "6.8.0",
        Property(Place("", "mlx5, GPUs"), "CPU governor"): "performance, powersave",
        Property(Place("", "job 77"), "variables of NCCL"): "NCCL_IB_TC=106",
    }
