"""A SoftRoCE device with real verbs traffic, as the exporter shows it."""

from lab.guest import hardware_counters, json_of, link, rdma, run, send_over

SENDS, SIZE = 50, 4096

NAMES = {
    "transmit_packets_total": "sent_pkts",
    "receive_packets_total": "rcvd_pkts",
    "duplicate_requests_total": "duplicate_request",
    "out_of_sequence_total": "out_of_seq_request",
    "packet_sequence_errors_total": "rcvd_seq_err",
    "link_down_total": "link_downed",
}
"""Endings, and the names of rxe."""


def test_link_and_attributes_are_exported(daemon, rxe):
    (theirs,) = json_of("rdma", "-j", "dev", "show", rxe)
    guid = theirs["node_guid"].replace(":", "")
    page = daemon.until("the device is shown", lambda page: page.value("fabric_rdma_info", device=rxe, node_guid=guid))
    assert page.value("fabric_rdma_link_up", device=rxe) == 1
    assert page.value("fabric_rdma_port_state", device=rxe, port="1") == 4
    assert page.value("fabric_rdma_port_physical_state", device=rxe, port="1") == 5
    assert page.value("fabric_rdma_link_lanes", device=rxe) == 1
    assert page.value("fabric_rdma_link_speed_bytes_per_second", device=rxe) == 10e9 / 8  # "10 Gb/sec (1X FDR10)"
    info = page.info("fabric_rdma_info", device=rxe)
    assert info["link_layer"] == "Ethernet"
    assert "pci" not in info


def test_netdev_is_exported(daemon, rxe, pair):
    page = daemon.until("the device is shown", lambda page: page.value("fabric_rdma_link_up", device=rxe))
    assert page.info("fabric_rdma_info", device=rxe)["netdev"] == pair[0]


def test_packets_are_those_of_the_kernel(daemon, rxe, program):
    send_over(rxe, program("ib_send_bw"), SENDS, SIZE)
    kernel = hardware_counters(rxe)
    # Four packets a message at least; both ends are this device, so that what is sent is what comes.
    assert kernel["sent_pkts"] == kernel["rcvd_pkts"] >= SENDS * SIZE / 1024
    (theirs,) = json_of("rdma", "-j", "statistic", "show", "link", f"{rxe}/1")
    assert {name: theirs[name] for name in kernel} == kernel
    page = daemon.until(
        "the last packet is shown",
        lambda page: page.value("fabric_rdma_receive_packets_total", device=rxe) == kernel["rcvd_pkts"],
    )
    for ending, name in NAMES.items():
        assert page.value(f"fabric_rdma_{ending}", device=rxe, port="1") == kernel[name], ending
    # rxe has no counter of bytes, and a missing value is absent.
    assert page.value("fabric_rdma_receive_bytes_total", device=rxe) is None


def test_link_that_goes_down_is_exported(daemon, rxe, pair):
    daemon.until("the link is up", lambda page: page.value("fabric_rdma_link_up", device=rxe) == 1)
    run("ip", "link", "set", pair[0], "down")
    page = daemon.until("the link is down", lambda page: page.value("fabric_rdma_link_up", device=rxe) == 0)
    assert page.value("fabric_rdma_link_speed_bytes_per_second", device=rxe) is None
    assert page.value("fabric_rdma_port_state", device=rxe) == 1
    run("ip", "link", "set", pair[0], "up")
    daemon.until("the link is up again", lambda page: page.value("fabric_rdma_link_up", device=rxe) == 1)


def test_removed_device_disappears_and_returns(daemon, rxe, pair):
    daemon.until("the device is shown", lambda page: page.value("fabric_rdma_link_up", device=rxe))
    run("rdma", "link", "del", rxe)
    daemon.until("it is gone", lambda page: rxe not in page.devices("fabric_rdma_"))
    run("rdma", "link", "add", rxe, "type", "rxe", "netdev", pair[0])
    daemon.until("it is back", lambda page: page.value("fabric_rdma_link_up", device=rxe) == 1)


def test_renamed_device_is_exported_under_its_new_name(daemon, rxe):
    daemon.until("the device is shown", lambda page: page.value("fabric_rdma_link_up", device=rxe))
    run("rdma", "dev", "set", rxe, "name", "fabric0")
    try:
        page = daemon.until("its new name", lambda page: page.value("fabric_rdma_link_up", device="fabric0") == 1)
        assert rxe not in page.devices("fabric_rdma_")
    finally:
        run("rdma", "link", "del", "fabric0")


def test_recreated_device_is_a_reset(daemon, rxe, pair, program):
    send_over(rxe, program("ib_send_bw"), SENDS, SIZE)
    sent = hardware_counters(rxe)["sent_pkts"]
    page = daemon.until(
        "its packets are shown", lambda page: page.value("fabric_rdma_transmit_packets_total", device=rxe) == sent
    )
    before = page.value("fabric_rdma_resets_total", device=rxe)
    run("rdma", "link", "del", rxe)
    run("rdma", "link", "add", rxe, "type", "rxe", "netdev", pair[0])
    page = daemon.until(
        "it counts from nothing", lambda page: page.value("fabric_rdma_transmit_packets_total", device=rxe) == 0
    )
    # It was away for less than two reads or for longer: then its row is a new one.
    assert page.value("fabric_rdma_resets_total", device=rxe) in {before + 1, 0}


def test_device_recreated_on_another_netdev_has_new_attributes(daemon, rxe, pair, tmp_path):
    """Replace it between two reads, by one of the same name."""
    daemon.until("the device is shown", lambda page: page.value("fabric_rdma_info", device=rxe, netdev=pair[0]))
    batch = tmp_path / "batch"
    batch.write_text(f"link del {rxe}\nlink add {rxe} type rxe netdev {pair[1]}\n")
    run("rdma", "-b", batch)
    (theirs,) = json_of("rdma", "-j", "dev", "show", rxe)
    guid = theirs["node_guid"].replace(":", "")
    page = daemon.until("it is another", lambda page: page.value("fabric_rdma_info", device=rxe, netdev=pair[1]))
    assert page.info("fabric_rdma_info", device=rxe)["node_guid"] == guid


def failures(page, device):
    """Return the failures of a device, by their labels."""
    return {
        labels: value
        for (name, labels), value in page.samples.items()
        if name == "fabric_source_failures_total" and ("device", device) in labels
    }


def test_device_without_counters_is_no_failure(daemon, siw):
    page = daemon.until("the device is shown", lambda page: page.value("fabric_rdma_link_up", device=siw) == 1)
    assert page.info("fabric_rdma_info", device=siw)["link_layer"] == "Ethernet"
    assert not {name for name in page.names("fabric_rdma_", device=siw) if "packets" in name or "bytes_total" in name}
    reads = page.value("fabric_source_reads_total", source="rdma")
    later = daemon.until(
        "it was read again", lambda page: page.value("fabric_source_reads_total", source="rdma") >= reads + 3
    )
    assert later.value("fabric_source_up", source="rdma") == 1
    # Files that were not there yet while the kernel made the device may have failed once; what it lacks never does.
    assert failures(later, siw) == failures(page, siw)


def test_many_devices_at_once(daemon, pair):
    with link("v2", "type", "veth", "peer", "name", "v3"), rdma("rxe1", "rxe", "v0"), rdma("rxe2", "rxe", "v2"):
        daemon.until("both are shown", lambda page: {"rxe1", "rxe2"} <= page.devices("fabric_rdma_"))
    daemon.until("both are gone", lambda page: not {"rxe1", "rxe2"} & page.devices("fabric_rdma_"))
