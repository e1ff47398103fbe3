"""The counters of each driver: made-up devices, one of each driver, whose values are all different.

The meaning of the names is from the drivers' documentation and source, not from the tables under test.
"""

import errno

import pytest
from hypothesis import given, strategies

from exporter.core.table import Kind
from exporter.linux.netlink.rdma import RdmaDevice
from exporter.sources.rdma import source as rdma
from exporter.sources.rdma.counter_files import PMA, counter_alternatives
from exporter.sources.rdma.counters import make_plan
from exporter.sources.rdma.drivers import DRIVERS, recognise_driver
from exporter.sources.rdma.metrics import (
    DETAILS,
    DEVICE,
    RAW,
    SCHEMA,
)
from tests.helpers.rdma_trees import (
    OPENED,
    Files,
    Netlink,
    make,
    opened,
    port_file,
    ports_of,
    rows_of,
    statistics,
)

LINK = {"info", "link_up", "link_speed_bytes_per_second", "link_lanes", "port_state", "port_physical_state"}
ABSENT = 2**64 - 1

BNXT = {"tx_bytes": 1001, "rx_bytes": 2002, "tx_pkts": 11, "rx_pkts": 22}

CASES = {
    "mlx5_core": (
        {"np_ecn_marked_roce_packets": 1, "np_cnp_sent": 2, "rp_cnp_handled": 3, "rp_cnp_ignored": 4}
        | {"rx_icrc_encapsulated": 5, "out_of_sequence": 6, "local_ack_timeout_err": 7, "roce_adp_retrans_to": 8}
        | {"req_transport_retries_exceeded": 9, "resp_cqe_flush_error": 10, "cc_rx_cnp_pkts": 11, "cc_rx_ce_pkts": 12}
        | {"cc_tx_cnp_pkts": 13, "rdma_rx_bytes": 14, "rdma_tx_packets": 15, "rx_dct_connect": 16},
        {"ecn_marked_packets": 1, "cnp_sent": 2, "cnp_handled": 3, "cnp_ignored": 4, "icrc_errors": 5}
        | {"out_of_sequence": 6, "local_ack_timeouts": 7, "adaptive_retransmission_timeouts": 8}
        | {"requester_transport_retries_exceeded": 9, "responder_flush_errors": 10, "cnp_received": 11}
        | {"optional_ecn_marked_packets": 12, "optional_cnp_sent": 13, "receive_optional_bytes": 14}
        | {"transmit_optional_packets": 15, "receive_dct_connects": 16},
    ),
    "mlx4_core": (
        {"rq_num_oos": 1, "sq_num_oos": 2, "sq_num_to": 3, "sq_num_rnr": 4, "rq_num_dup": 5, "sq_num_tree": 6}
        | {"rq_num_wrfe": 7, "rq_num_lle": 8, "num_cqovf": 9, "rq_num_rnr": 10},
        {"out_of_sequence": 1, "packet_sequence_errors": 2, "local_ack_timeouts": 3, "rnr_nak_retries": 4}
        | {"duplicate_requests": 5, "requester_transport_retries_exceeded": 6, "responder_flush_errors": 7}
        | {"responder_local_length_errors": 8, "rnr_naks_sent": 10},
    ),
    "bnxt_en": (
        {**BNXT, "rx_roce_errors": 3, "tx_roce_errors": 4, "rx_roce_discards": 5, "tx_roce_discards": 6}
        | {"to_retransmits": 7, "seq_err_naks_rcvd": 8, "max_retry_exceeded": 9, "rnr_naks_rcvd": 10, "dup_req": 12}
        | {"oos_drop_count": 13, "rx_out_of_buffer": 14, "tx_cnp_pkts": 15, "rx_cnp_pkts": 16}
        | {"rx_ecn_marked_pkts": 17, "active_qps": 18, "watermark_qps": 19, "db_fifo_register": 20, "missing_resp": 21}
        | {"remote_access_err": 23, "remote_invalid_req_err": 24, "res_length_mismatch": 25, "rx_write_req": 26},
        {"transmit_bytes": 1001, "receive_bytes": 2002, "transmit_packets": 11, "receive_packets": 22}
        | {"receive_errors": 3, "transmit_errors": 4, "receive_discards": 5, "transmit_discards": 6}
        | {"local_ack_timeouts": 7, "packet_sequence_errors": 8, "requester_transport_retries_exceeded": 9}
        | {"rnr_nak_retries": 10, "duplicate_requests": 12, "out_of_sequence": 13, "out_of_buffer": 14}
        | {"cnp_sent": 15, "cnp_received": 16, "ecn_marked_packets": 17, "implied_nak_sequence_errors": 21}
        | {"requester_remote_access_errors": 23, "requester_remote_invalid_requests": 24}
        | {"responder_local_length_errors": 25, "receive_write_requests": 26},
    ),
    "bnxt_en, names as mlx5 has them": (
        {**BNXT, "local_ack_timeout_err": 1, "packet_seq_err": 2, "rnr_nak_retry_err": 3, "implied_nak_seq_err": 4}
        | {"duplicate_request": 5, "out_of_buffer": 6, "out_of_sequence": 7, "np_cnp_sent": 8, "rp_cnp_handled": 9}
        | {"rp_cnp_ignored": 10, "np_ecn_marked_roce_packets": 12, "req_remote_access_errors": 13}
        | {"req_remote_invalid_request": 14, "resp_local_length_error": 15, "resp_remote_access_errors": 16}
        | {"rx_read_requests": 17, "rx_write_requests": 18, "rx_atomic_requests": 19, "req_cqe_error": 20}
        | {"resp_cqe_error": 21, "req_cqe_flush_error": 23, "resp_cqe_flush_error": 24, "roce_adp_retrans": 25}
        | {"roce_adp_retrans_to": 26, "roce_slow_restart": 27, "roce_slow_restart_cnps": 28}
        | {"roce_slow_restart_trans": 29, "rx_icrc_encapsulated": 30},
        {"transmit_bytes": 1001, "receive_bytes": 2002, "transmit_packets": 11, "receive_packets": 22}
        | {"local_ack_timeouts": 1, "packet_sequence_errors": 2, "rnr_nak_retries": 3}
        | {"implied_nak_sequence_errors": 4, "duplicate_requests": 5, "out_of_buffer": 6, "out_of_sequence": 7}
        | {"cnp_sent": 8, "cnp_handled": 9, "cnp_ignored": 10, "ecn_marked_packets": 12}
        | {"requester_remote_access_errors": 13, "requester_remote_invalid_requests": 14}
        | {"responder_local_length_errors": 15, "responder_remote_access_errors": 16, "receive_read_requests": 17}
        | {"receive_write_requests": 18, "receive_atomic_requests": 19, "requester_completion_errors": 20}
        | {"responder_completion_errors": 21, "requester_flush_errors": 23, "responder_flush_errors": 24}
        | {"adaptive_retransmissions": 25, "adaptive_retransmission_timeouts": 26, "slow_restarts": 27}
        | {"slow_restart_cnps": 28, "slow_restart_transitions": 29, "icrc_errors": 30},
    ),
    "bnxt_en, names of kernels since": (
        {**BNXT, "np_cnp_pkts": 1, "rp_cnp_handled": 2, "max_retry_exceeded": 3, "rx_roce_discards": 4},
        {"transmit_bytes": 1001, "receive_bytes": 2002, "transmit_packets": 11, "receive_packets": 22}
        | {"cnp_sent": 1, "cnp_handled": 2, "requester_transport_retries_exceeded": 3, "receive_discards": 4},
    ),
    "ice": (
        {"ip4InOctets": 100, "ip6InOctets": 1, "ip4OutOctets": 200, "ip6OutOctets": 2, "ip4InPkts": 10}
        | {"ip6InPkts": 3, "ip4OutPkts": 20, "ip6OutPkts": 4, "ip4InDiscards": 5, "ip6InDiscards": 6}
        | {"cnpSent": 7, "cnpHandled": 8, "cnpIgnored": 9, "RxECNMrkd": 11, "tcpRetransSegs": 12, "RxUDP": 13}
        | {"iwInRdmaReads": 14, "iwOutRdmaWrites": 15, "RNR received": 16, "tcpInProtoErrors": 17},
        {"receive_bytes": 101, "transmit_bytes": 202, "receive_packets": 13, "transmit_packets": 24}
        | {"receive_discards": 11, "cnp_sent": 7, "cnp_handled": 8, "cnp_ignored": 9, "ecn_marked_packets": 11}
        | {"receive_read_requests": 14, "transmit_write_requests": 15, "rnr_nak_retries": 16},
    ),
    "i40e": (
        {"ip4InOctets": 100, "ip6InOctets": 1, "RetransSegs": 5, "InRdmaWrites": 6, "ip4InTruncatedPkts": 7},
        {"receive_bytes": 101, "receive_write_requests": 6},
    ),
    "ionic": (
        {"rx_rdma_ucast_bytes": 1000, "rx_rdma_mcast_bytes": 1, "tx_rdma_ucast_bytes": 2000, "tx_rdma_mcast_bytes": 2}
        | {"rx_rdma_ucast_pkts": 30, "rx_rdma_mcast_pkts": 3, "tx_rdma_ucast_pkts": 40, "tx_rdma_mcast_pkts": 4}
        | {"tx_rdma_cnp_pkts": 5, "rx_rdma_cnp_pkts": 6, "rx_rdma_ecn_pkts": 7, "resp_rx_outouf_seq": 8}
        | {"resp_rx_outof_buf": 9, "tx_rdma_retx_pkts": 10, "tx_rdma_retx_bytes": 11, "tx_rdma_ack_timeout": 12}
        | {"req_tx_retry_excd_err": ABSENT, "rx_rdma_mtu_discard_pkts": 13, "tx_rdma_ccl_cts_pkts": 14},
        {"receive_bytes": 1001, "transmit_bytes": 2002, "receive_packets": 33, "transmit_packets": 44}
        | {"receive_unicast_packets": 30, "receive_multicast_packets": 3, "transmit_unicast_packets": 40}
        | {"transmit_multicast_packets": 4, "cnp_sent": 5, "cnp_received": 6, "ecn_marked_packets": 7}
        | {"out_of_sequence": 8, "out_of_buffer": 9, "retransmitted_packets": 10, "retransmitted_bytes": 11}
        | {"local_ack_timeouts": 12, "receive_oversized_discards": 13},
    ),
    "efa": (
        {"tx_bytes": 1, "tx_pkts": 2, "rx_bytes": 7521781137064, "rx_pkts": 4, "rx_drops": 5, "send_bytes": 6}
        | {"send_wrs": 7, "recv_bytes": 8, "recv_wrs": 9, "rdma_read_wrs": 10, "rdma_read_bytes": 11}
        | {"rdma_read_wr_err": 12, "rdma_read_resp_bytes": 13, "rdma_write_wrs": 14, "rdma_write_bytes": 15}
        | {"rdma_write_wr_err": 16, "rdma_write_recv_bytes": 17, "retrans_bytes": 18, "retrans_pkts": 19}
        | {"retrans_timeout_events": 20, "unresponsive_remote_events": 21, "impaired_remote_conn_events": 22},
        {"transmit_bytes": 1, "transmit_packets": 2, "receive_bytes": 7521781137064, "receive_packets": 4}
        | {"receive_discards": 5, "transmit_send_bytes": 6, "transmit_send_requests": 7, "receive_send_bytes": 8}
        | {"receive_send_requests": 9, "transmit_read_requests": 10, "receive_read_bytes": 11}
        | {"requester_read_errors": 12, "transmit_read_bytes": 13, "transmit_write_requests": 14}
        | {"transmit_write_bytes": 15, "requester_write_errors": 16, "receive_write_bytes": 17}
        | {"retransmitted_bytes": 18, "retransmitted_packets": 19, "local_ack_timeouts": 20}
        | {"unresponsive_peers": 21, "impaired_connections": 22},
    ),
    "mana": (
        {"requester_timeout": 1, "requester_oos_nak": 2, "requester_rnr_nak": 3, "responder_rnr_nak": 4}
        | {"responder_oos": 5, "responder_dup_request": 6, "requester_implicit_nak": 7, "received_cnps": 8}
        | {"requester_retries_exceeded": 9, "tx_bytes": 10, "rx_bytes": 11, "tx_packets": 12, "rx_packets": 13}
        | {"current_rate": 14, "num_qps_congested": 15, "dup_rx_requests": 16},
        {"local_ack_timeouts": 1, "packet_sequence_errors": 2, "rnr_nak_retries": 3, "rnr_naks_sent": 4}
        | {"out_of_sequence": 5, "duplicate_requests": 6, "implied_nak_sequence_errors": 7, "cnp_received": 8}
        | {"requester_transport_retries_exceeded": 9, "transmit_bytes": 10, "receive_bytes": 11}
        | {"transmit_packets": 12, "receive_packets": 13},
    ),
    "erdma": (
        {"tx_bytes_cnt": 1, "rx_bytes_cnt": 2, "tx_packets_cnt": 3, "rx_packets_cnt": 4, "rx_disable_drop_cnt": 10}
        | {"rx_bps_limit_drop_cnt": 20, "rx_pps_limit_drop_cnt": 30, "tx_disable_drop_cnt": 5}
        | {"tx_bps_limit_drop_cnt": 6, "tx_pps_limit_drop_cnt": 7, "tx_reqs_cnt": 8},
        {"transmit_bytes": 1, "receive_bytes": 2, "transmit_packets": 3, "receive_packets": 4}
        | {"receive_discards": 60, "transmit_discards": 18},
    ),
    "erdma, Alibaba's own driver": (
        {"hw_tx_bytes_cnt": 1, "hw_rx_bytes_cnt": 2, "hw_tx_packets_cnt": 3, "hw_rx_packets_cnt": 4}
        | {"hw_rx_disable_drop_cnt": 10, "hw_rx_bps_limit_drop_cnt": 20, "hw_rx_pps_limit_drop_cnt": 30}
        | {"hw_disable_drop_cnt": 5, "listen_create_cnt": 6},
        {"transmit_bytes": 1, "receive_bytes": 2, "transmit_packets": 3, "receive_packets": 4, "receive_discards": 60},
    ),
    "hns3": (
        {"rx_pkt": 1, "tx_pkt": 2, "rx_err_pkt": 3, "tx_err_pkt": 4, "rx_cnp_pkt": 5, "tx_cnp_pkt": 6, "rx_rc_pkt": 7},
        {"receive_packets": 1, "transmit_packets": 2, "receive_errors": 3, "transmit_errors": 4}
        | {"cnp_received": 5, "cnp_sent": 6},
    ),
    "hfi1": (
        {"RcResend": 1, "RnrNak": 2, "RcTimeOut": 3, "SeqNak": 4, "RcSeqNak": 5, "RcDupRew": 6, "SwLinkDown,32": 7}
        | {"SwLinkUp,32": 8, "RcvHdrOvr10": 9, "RxTIDFLGMs,32": 10},
        {"retransmitted_packets": 1, "rnr_nak_retries": 2, "local_ack_timeouts": 3, "packet_sequence_errors": 4}
        | {"out_of_sequence": 5, "duplicate_requests": 6, "link_down": 7},
    ),
    "rdma_rxe": (
        {"sent_pkts": 1, "rcvd_pkts": 2, "duplicate_request": 3, "out_of_seq_request": 4, "rcvd_rnr_err": 5}
        | {"send_rnr_err": 6, "rcvd_seq_err": 7, "retry_exceeded_err": 8, "retry_rnr_exceeded_err": 9, "send_err": 10}
        | {"link_downed": 11, "rdma_sends": 12, "rdma_recvs": 13, "ack_deferred": 14, "completer_retry_err": 15},
        {"transmit_packets": 1, "receive_packets": 2, "duplicate_requests": 3, "out_of_sequence": 4}
        | {"rnr_nak_retries": 5, "rnr_naks_sent": 6, "packet_sequence_errors": 7}
        | {"requester_transport_retries_exceeded": 8, "requester_rnr_retries_exceeded": 9, "transmit_errors": 10}
        | {"link_down": 11, "transmit_send_requests": 12, "receive_send_requests": 13},
    ),
}
"""By driver: counters of a port, and their metrics without `_total`; counters without a metric are among them."""


def counted(port):
    return {ending.removesuffix("_total"): value for ending, value in port.items() if ending not in LINK}


def test_every_driver_has_a_case():
    assert {name.partition(",")[0] for name in CASES} == set(DRIVERS)


@pytest.mark.parametrize("case", CASES)
async def test_hw_counters_of_each_driver_from_files(tmp_path, case):
    counters, meaning = CASES[case]
    make(tmp_path, "dev0", counters, driver=case.partition(",")[0])
    async with opened(tmp_path) as source:
        found, failures = await ports_of(source)
    assert counted(found["dev0", "1"]) == meaning
    assert failures == []


@pytest.mark.parametrize("case", CASES)
async def test_hw_counters_by_netlink_open_no_file(tmp_path, case):
    counters, meaning = CASES[case]
    make(tmp_path, "dev0", counters, driver=case.partition(",")[0])
    netlink = Netlink(RdmaDevice(3, "dev0", "0200c0fffe000001", 1, ""))
    netlink.counters[3, 1] = statistics(**counters)
    async with opened(tmp_path, netlink) as source:
        with OPENED.watch() as seen:
            found, _ = await ports_of(source)
    assert counted(found["dev0", "1"]) == meaning
    assert not [path for path in seen.paths if "hw_counters/" in path]


@pytest.mark.parametrize("case", CASES)
def test_driver_recognised_by_its_unique_counters(case):
    driver = case.partition(",")[0]
    signs = DRIVERS[driver].unique_counters
    expected = {"i40e": "ice"}.get(driver, driver)  # both have the same RDMA driver
    if signs:
        assert recognise_driver("anything", "", [*signs, "other"]) == expected


@pytest.mark.parametrize(
    ("name", "hca_type", "driver"),
    [
        ("mlx5_bond_0", "", "mlx5_core"),
        ("ibp3s0", "MT4129", "mlx5_core"),
        ("rocep68s0", "MT4099", "mlx4_core"),
        ("mlx4_0", "", "mlx4_core"),
        ("hfi1_0", "", "hfi1"),
        ("rxe0", "", "rdma_rxe"),
        ("siw0", "", ""),
        ("ibp3s0", "", ""),
    ],
)
def test_driver_recognised_by_device_name_or_hca_type(name, hca_type, driver):
    assert recognise_driver(name, hca_type, ["SwLinkUp,32"]) == driver


@pytest.mark.parametrize("names", ["as mlx5 has them", "of kernels since"])
def test_newer_bnxt_drivers_recognised_by_their_remaining_unique_counters(names):
    counters = CASES[f"bnxt_en, names {names}"][0].keys() | {"rx_roce_discards", "max_retry_exceeded"}
    assert recognise_driver("rocep7s0", "", counters) == "bnxt_en"


# Counters that depend on the type of device.


PHYSICAL_FUNCTION_COUNTERS = {
    *("ecn_marked_packets", "cnp_sent", "cnp_received", "out_of_buffer", "receive_write_requests"),
    *("cnp_handled", "cnp_ignored", "receive_read_requests", "receive_atomic_requests", "requester_flush_errors"),
    *("responder_flush_errors", "adaptive_retransmissions", "adaptive_retransmission_timeouts", "slow_restarts"),
    *("slow_restart_cnps", "slow_restart_transitions", "icrc_errors"),
}
"""Counters that bnxt_re lists for every function and reads for physical functions only: always 0 on virtual ones."""


def set_pci_type(sysfs, sign):
    """Mark the PCI function as virtual: by `physfn` as on its host, or by its IDs as in a virtual machine."""
    function = sysfs / "devices" / "pci0000:20" / "0000:21:00.0"
    if sign == "physfn":
        (function / "physfn").symlink_to(function.parent)
    else:
        (function / "vendor").write_text("0x14e4\n")
        (function / "device").write_text(f"{sign}\n")


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("bnxt_en")])
@pytest.mark.parametrize("sign", ["physfn", "0x1806"])
async def test_bnxt_virtual_function_has_no_zeros_for_counters_of_physical_functions(tmp_path, case, sign):
    counters, meaning = CASES[case]
    make(tmp_path, "dev0", counters, driver="bnxt_en")
    set_pci_type(tmp_path, sign)
    async with opened(tmp_path) as source:
        found, failures = await ports_of(source)
    assert counted(found["dev0", "1"]) == {
        ending: value for ending, value in meaning.items() if ending not in PHYSICAL_FUNCTION_COUNTERS
    }
    assert failures == []


async def test_bnxt_physical_function_has_all_counters(tmp_path):
    make(tmp_path, "dev0", CASES["bnxt_en"][0], driver="bnxt_en")
    set_pci_type(tmp_path, "0x1760")
    async with opened(tmp_path) as source:
        assert counted((await ports_of(source))[0]["dev0", "1"]) == CASES["bnxt_en"][1]


@pytest.mark.parametrize(
    ("driver", "name"), [("i40e", "tcpRetransSegs"), ("ice", "tcpRetransSegs"), ("ice", "RetransSegs")]
)
@pytest.mark.parametrize(
    ("node_type", "repeated", "raw"), [("4: RNIC", 7, {}), ("1: CA", None, {"raw": 7}), ("", None, {"raw": 7})]
)
async def test_tcp_retransmissions_are_counted_for_iwarp_only(tmp_path, driver, name, node_type, repeated, raw):
    folder = make(tmp_path, "irdma0", {name: 7, "ip4InOctets": 1, "ip6InOctets": 2}, driver=driver)
    (folder / "node_type").write_text(f"{node_type}\n")
    async with opened(tmp_path, raw=("*Retrans*",)) as source:
        reading = await source.read()
    port = rows_of(reading, SCHEMA)["irdma0", "1"]
    assert (port.get("retransmitted_packets_total"), port["receive_bytes_total"]) == (repeated, 3)
    assert rows_of(reading, RAW).get(("irdma0", "1", name), {}) == raw


async def test_device_without_bound_driver_is_recognised_by_its_counters(tmp_path):
    make(tmp_path, "rocep7s0", CASES["ionic"][0])
    async with opened(tmp_path) as source:
        found, _ = await ports_of(source)
    assert found["rocep7s0", "1"]["info"]["driver"] == "ionic"
    assert found["rocep7s0", "1"]["receive_bytes_total"] == 1001


async def test_device_on_auxiliary_bus_keeps_driver_name_and_is_recognised_by_its_counters(tmp_path):
    make(tmp_path, "rocep7s0", CASES["ionic"][0], driver="ionic_rdma.rdma")
    async with opened(tmp_path) as source:
        found, _ = await ports_of(source)
    assert found["rocep7s0", "1"]["info"]["driver"] == "ionic_rdma.rdma"
    assert found["rocep7s0", "1"]["out_of_sequence_total"] == 8


def test_every_metric_declared_by_a_driver_is_a_counter():
    assert DRIVERS
    for names in DRIVERS.values():
        port = names.port_counters(virtual=False, iwarp=True)
        for schema, ways in ((SCHEMA, counter_alternatives(port, PMA)), (DEVICE, counter_alternatives(names.device))):
            endings = [choice.spec.ending for way in ways for choice in way]
            assert {schema.metrics[ending].kind for ending in endings} <= {Kind.COUNTER}


def test_details_are_declared_metrics():
    assert SCHEMA.metrics.keys() | DEVICE.metrics.keys() >= DETAILS


def test_gauges_among_hw_counters_are_not_read_as_counters():
    named = [(*driver.port_counters(virtual=False, iwarp=True), *driver.device) for driver in DRIVERS.values()]
    names = {name for statistics_ in named for one in statistics_ for name in one.names}
    assert names
    assert not {name for name in names if name.startswith(("active_", "watermark_", "num_", "current_", "lifespan"))}


def test_virtual_function_has_a_subset_of_the_counters():
    assert DRIVERS
    for driver in DRIVERS.values():
        assert set(driver.port) >= set(driver.port_counters(virtual=True, iwarp=False))


# Sums, and missing values.


@pytest.mark.parametrize("missing", ["rx_rdma_mcast_bytes", "rx_rdma_ucast_bytes"])
async def test_sum_with_a_missing_part_is_absent(tmp_path, missing):
    counters = {name: value for name, value in CASES["ionic"][0].items() if name != missing}
    make(tmp_path, "ionic_0", counters, driver="ionic")
    async with opened(tmp_path) as source:
        found, failures = await ports_of(source)
    assert "receive_bytes_total" not in found["ionic_0", "1"]
    assert (found["ionic_0", "1"]["transmit_bytes_total"], failures) == (2002, [])


async def test_sum_is_absent_while_firmware_returns_all_ones_for_a_part(tmp_path):
    make(tmp_path, "ionic_0", CASES["ionic"][0], driver="ionic")
    part = port_file(tmp_path, "ionic_0", "hw_counters/rx_rdma_mcast_bytes")
    async with opened(tmp_path) as source:
        for text, expected in (("1", 1001), (str(ABSENT), None), ("5", 1005)):
            part.write_text(f"{text}\n")
            found, failures = await ports_of(source)
            assert (found["ionic_0", "1"].get("receive_bytes_total"), failures) == (expected, [])
            assert found["ionic_0", "1"]["receive_unicast_packets_total"] == 30


async def test_sums_follow_their_parts(tmp_path):
    make(tmp_path, "ionic_0", CASES["ionic"][0], driver="ionic")
    async with opened(tmp_path) as source:
        await source.read()
        port_file(tmp_path, "ionic_0", "hw_counters/rx_rdma_ucast_bytes").write_text("3087001744\n")
        port_file(tmp_path, "ionic_0", "hw_counters/rx_rdma_ucast_pkts").write_text("31\n")
        port = (await ports_of(source))[0]["ionic_0", "1"]
    assert (port["receive_bytes_total"], port["receive_packets_total"]) == (3087001745, 34)
    assert port["receive_unicast_packets_total"] == 31


# Standard counters and driver counters of the same metric.


async def test_standard_counter_takes_precedence_over_the_driver_counter(tmp_path):
    make(tmp_path, "bnxt_re0", BNXT, pma={"port_rcv_data": 10, "port_xmit_data": 20}, driver="bnxt_en")
    async with opened(tmp_path) as source:
        port = (await ports_of(source))[0]["bnxt_re0", "1"]
    assert (port["receive_bytes_total"], port["transmit_bytes_total"], port["receive_packets_total"]) == (40, 80, 22)


@pytest.mark.parametrize(("fault", "reason"), [(errno.EINVAL, "einval"), (errno.EOPNOTSUPP, "eopnotsupp")])
async def test_refused_standard_counter_is_replaced_by_the_driver_counter(tmp_path, monkeypatch, fault, reason):
    make(tmp_path, "bnxt_re0", {"rx_bytes": 7521781137064}, pma={"port_rcv_data": 10}, driver="bnxt_en")
    files = Files(monkeypatch)
    files.faults["read", "counters/port_rcv_data"] = fault
    async with opened(tmp_path) as source:
        found, failures = await ports_of(source)
        assert failures == [("bnxt_re0", reason)]
        assert "receive_bytes_total" not in found["bnxt_re0", "1"]
        for _ in range(2):  # from the next read on
            found, failures = await ports_of(source)
            assert (found["bnxt_re0", "1"]["receive_bytes_total"], failures) == (7521781137064, [])
    assert files.count("counters/port_rcv_data") == 1


async def test_unavailable_standard_counter_is_replaced_by_the_driver_counter(tmp_path):
    make(tmp_path, "bnxt_re0", BNXT, pma={"port_rcv_data": "N/A (no PMA)"}, driver="bnxt_en")
    async with opened(tmp_path) as source:
        await source.read()
        found, failures = await ports_of(source)
    assert (found["bnxt_re0", "1"]["receive_bytes_total"], failures) == (2002, [])


async def test_refused_counter_without_alternative_is_read_again(tmp_path, monkeypatch):
    pma = {"port_rcv_data": 10, "port_rcv_errors": 11, "port_xmit_wait": 12}
    make(tmp_path, "bnxt_re0", BNXT, pma=pma, driver="bnxt_en")
    files = Files(monkeypatch)
    files.faults = {("read", f"counters/{name}"): errno.EINVAL for name in ("port_rcv_data", "port_rcv_errors")}
    async with opened(tmp_path) as source:
        assert (await ports_of(source))[1] == [("bnxt_re0", "einval")] * 2
        files.faults.clear()
        found, failures = await ports_of(source)
    assert (found["bnxt_re0", "1"]["receive_errors_total"], failures) == (11, [])
    assert found["bnxt_re0", "1"]["receive_bytes_total"] == 2002


async def test_temporary_error_does_not_replace_a_counter(tmp_path, monkeypatch):
    make(tmp_path, "bnxt_re0", BNXT, pma={"port_rcv_data": 10}, driver="bnxt_en")
    files = Files(monkeypatch)
    async with opened(tmp_path) as source:
        files.faults["read", "counters/port_rcv_data"] = errno.EIO
        assert "receive_bytes_total" not in (await ports_of(source))[0]["bnxt_re0", "1"]
        files.faults.clear()
        assert (await ports_of(source))[0]["bnxt_re0", "1"]["receive_bytes_total"] == 40


async def test_ports_with_different_units_have_separate_tables(tmp_path):
    make(tmp_path, "bnxt_re0", BNXT, driver="bnxt_en")
    make(tmp_path, "bnxt_re1", BNXT, pma={"port_rcv_data": 10}, driver="bnxt_en", pci="0000:22:00.0")
    async with opened(tmp_path) as source:
        tables, again = [[table for table in (await source.read()).tables if table.schema is SCHEMA] for _ in range(2)]
    assert {table.part: table.columns["receive_bytes_total"].factor for table in tables} == {
        "bnxt_en": 1,
        "bnxt_en 1": 4,
    }
    assert [table.part for table in again] == [table.part for table in tables]


# Devices with many counters.


async def test_only_mapped_files_of_thousands_are_opened(tmp_path):
    lanes = {f"TxFlitVL{lane}": lane for lane in range(2000)} | {f"RcvHdrOvr{cpu},32": cpu for cpu in range(500)}
    make(tmp_path, "hfi1_0", CASES["hfi1"][0] | lanes, driver="hfi1", layer="InfiniBand")
    async with opened(tmp_path) as source:
        with OPENED.watch() as seen:
            found, failures = await ports_of(source)
    assert (counted(found["hfi1_0", "1"]), failures) == (CASES["hfi1"][1], [])
    opened_files = {path.rpartition("/")[2] for path in seen.paths if "/hw_counters/" in path}
    assert opened_files == {"RcResend", "RnrNak", "RcTimeOut", "SeqNak", "RcSeqNak", "RcDupRew", "SwLinkDown,32"}


# Devices as a whole.


async def test_counters_of_an_efa_device_as_a_whole(tmp_path):
    whole = {"submitted_cmds": 40, "completed_cmds": 39, "cmds_err": 1, "no_completion_cmds": 2, "keep_alive_rcvd": 7}
    parts = ("alloc_pd_err", "create_qp_err", "create_cq_err", "reg_mr_err", "alloc_ucontext_err", "create_ah_err")
    whole |= {name: 10**place for place, name in enumerate((*parts, "mmap_err"))}
    make(tmp_path, "rdmap7s0", {"tx_bytes": 5}, driver="efa", device_hw=whole)
    async with opened(tmp_path) as source:
        found = rows_of(await source.read(), DEVICE)
    assert found == {
        ("rdmap7s0",): {
            "commands_submitted_total": 40,
            "commands_completed_total": 39,
            "command_errors_total": 1,
            "commands_unanswered_total": 2,
            "keep_alives_received_total": 7,
            "resource_errors_total": 1_111_111,
        }
    }


@pytest.mark.parametrize(("later", "errors"), [((), 5), (("create_cq_err",), 6), (("create_cq_err", "mmap_err"), 7)])
async def test_sum_of_efa_errors_skips_kinds_unknown_to_older_drivers(tmp_path, later, errors):
    parts = ("alloc_pd_err", "create_qp_err", "reg_mr_err", "alloc_ucontext_err", "create_ah_err")
    make(tmp_path, "rdmap7s0", {"tx_bytes": 5}, driver="efa", device_hw=dict.fromkeys((*parts, *later), 1))
    async with opened(tmp_path) as source:
        assert rows_of(await source.read(), DEVICE) == {("rdmap7s0",): {"resource_errors_total": errors}}


async def test_sum_of_efa_errors_is_absent_if_one_cannot_be_read(tmp_path, monkeypatch):
    parts = ("alloc_pd_err", "create_qp_err", "reg_mr_err", "alloc_ucontext_err", "create_ah_err", "create_cq_err")
    make(tmp_path, "rdmap7s0", {"tx_bytes": 5}, driver="efa", device_hw=dict.fromkeys((*parts, "cmds_err"), 1))
    files = Files(monkeypatch)
    files.faults["read", "rdmap7s0/hw_counters/create_cq_err"] = errno.EIO
    async with opened(tmp_path) as source:
        reading = await source.read()
    assert rows_of(reading, DEVICE) == {("rdmap7s0",): {"command_errors_total": 1}}
    assert [(failure.device, failure.reason) for failure in reading.failures] == [("rdmap7s0", "eio")]


async def test_counters_of_mlx4_and_mana_devices_as_a_whole(tmp_path):
    make(tmp_path, "mlx4_0", None, driver="mlx4_core", device_hw={"rq_num_oos": 1, "sq_num_to": 2, "num_cqovf": 3})
    cnps = {"sent_cnps": 4, "received_ecns": 5, "received_cnp_count": 6, "rate_inc_events": 7}
    make(tmp_path, "mana_0", None, driver="mana", device_hw=cnps, pci="0000:22:00.0")
    async with opened(tmp_path) as source:
        found = rows_of(await source.read(), DEVICE)
    assert found == {
        ("mlx4_0",): {"out_of_sequence_total": 1, "local_ack_timeouts_total": 2},
        ("mana_0",): {"cnp_sent_total": 4, "ecn_marked_packets_total": 5, "cnp_received_total": 6},
    }


async def test_failing_device_counter_does_not_affect_others(tmp_path, monkeypatch):
    make(tmp_path, "rdmap7s0", {"tx_bytes": 5}, driver="efa", device_hw={"cmds_err": 1, "keep_alive_rcvd": 7})
    files = Files(monkeypatch)
    files.faults["read", "rdmap7s0/hw_counters/cmds_err"] = errno.EIO
    async with opened(tmp_path) as source:
        reading = await source.read()
    assert rows_of(reading, DEVICE) == {("rdmap7s0",): {"keep_alives_received_total": 7}}
    assert rows_of(reading, SCHEMA)["rdmap7s0", "1"]["transmit_bytes_total"] == 5
    assert [(failure.device, failure.reason) for failure in reading.failures] == [("rdmap7s0", "eio")]


# Raw counters, under the driver's own names.


async def test_no_raw_counters_by_default(tmp_path):
    make(tmp_path, "bnxt_re0", {"active_qps": 18}, driver="bnxt_en")
    async with opened(tmp_path) as source:
        assert rows_of(await source.read(), RAW) == {}


async def test_raw_exports_matching_counters_without_a_metric(tmp_path):
    make(tmp_path, "bnxt_re0", {**BNXT, "active_qps": 18, "watermark_qps": 19, "res_cmp_err": 20}, driver="bnxt_en")
    async with opened(tmp_path, raw=("*_qps", "rx_*", "lifespan")) as source:
        found = rows_of(await source.read(), RAW)
        port_file(tmp_path, "bnxt_re0", "hw_counters/active_qps").write_text("17\n")
        again = rows_of(await source.read(), RAW)
    assert found == {("bnxt_re0", "1", "active_qps"): {"raw": 18}, ("bnxt_re0", "1", "watermark_qps"): {"raw": 19}}
    assert again["bnxt_re0", "1", "active_qps"] == {"raw": 17}
    assert RAW.metrics["raw"].kind is Kind.UNKNOWN


async def test_raw_counter_names_with_special_characters_are_kept_whole(tmp_path):
    make(tmp_path, "hfi1_0", {"RxTIDFLGMs,32": 1, "Rx atomics": 2, 'quo"te': 3}, driver="hfi1")
    async with opened(tmp_path, raw=("*",)) as source:
        found = rows_of(await source.read(), RAW)
    assert {key[2]: row["raw"] for key, row in found.items()} == {"RxTIDFLGMs,32": 1, "Rx atomics": 2, 'quo"te': 3}


async def test_raw_counters_are_limited_and_the_excess_is_reported(tmp_path):
    make(tmp_path, "hfi1_0", {f"TxFlitVL{lane:04}": lane for lane in range(1001)}, driver="hfi1")
    async with opened(tmp_path, raw=("Tx*",)) as source:
        for _ in range(2):
            reading = await source.read()
            assert len(rows_of(reading, RAW)) == 1000
            assert [(failure.device, failure.reason) for failure in reading.failures] == [("hfi1_0", "too_many")]


async def test_raw_counters_by_netlink(tmp_path):
    make(tmp_path, "mlx5_0", {"np_cnp_sent": 1, "new_counter": 2}, driver="mlx5_core")
    netlink = Netlink(RdmaDevice(0, "mlx5_0", "0200c0fffe000001", 1, ""))
    netlink.counters[0, 1] = statistics(np_cnp_sent=3, new_counter=4, vport_x=ABSENT)
    async with opened(tmp_path, netlink, raw=("*",)) as source:
        assert rows_of(await source.read(), RAW) == {
            ("mlx5_0", "1", "new_counter"): {"raw": 4},
            ("mlx5_0", "1", "vport_x"): {},
        }


async def test_driver_that_is_bound_later_is_used_from_the_next_scan(tmp_path, stopped_clock):
    clock = stopped_clock(rdma)
    make(tmp_path, "renamed", {"other": 1}, pma={"port_rcv_data": 1})
    async with opened(tmp_path) as source:
        assert (await ports_of(source))[0]["renamed", "1"]["info"]["driver"] == ""
        make(tmp_path, "renamed", CASES["efa"][0], driver="efa", device_hw={"cmds_err": 3})
        clock.now += rdma.RESCAN_SECONDS
        reading = await source.read()
    port = rows_of(reading, SCHEMA)["renamed", "1"]
    assert (port["info"]["driver"], port["receive_bytes_total"], port["receive_packets_total"]) == ("efa", 4, 4)
    assert rows_of(reading, DEVICE) == {("renamed",): {"command_errors_total": 3}}


# The plan of a read.

ALL = [
    pytest.param(
        counter_alternatives(names.port_counters(virtual=virtual, iwarp=not virtual), PMA), id=f"{driver} {virtual}"
    )
    for driver, names in DRIVERS.items()
    for virtual in (False, True)
]


@pytest.mark.parametrize("ways", ALL)
@given(data=strategies.data())
def test_plan_uses_the_first_complete_alternative_of_each_counter(ways, data):
    paths = sorted({path for way in ways for one in way for path in one.files})
    there = data.draw(strategies.dictionaries(strategies.sampled_from(paths), strategies.integers(0, 2**64)))
    plan = make_plan(ways, there.__contains__)
    assert len(plan.layout) == len(ways)
    assert len(set(plan.positions.values())) == len(plan.positions)
    values = [None] * plan.size
    for path, place in plan.positions.items():
        values[place] = there[path]
    for place, parts in plan.sums:
        values[place] = sum(values[part] for part in parts)
    for way, spec, value in zip(ways, plan.layout, values, strict=False):
        whole = [one for one in way if set(one.files) <= there.keys()]
        assert value == (sum(there[path] for path in whole[0].files) if whole else None)
        assert spec == (whole or way)[0].spec
