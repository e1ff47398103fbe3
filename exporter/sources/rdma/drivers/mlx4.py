"""mlx4: ConnectX-3 and older (Linux: drivers/infiniband/hw/mlx4/main.c); per port or, on some, only per device."""

from exporter.sources.common.driver_statistics import Statistic
from exporter.sources.rdma.counter_files import DriverCounters

_DIAGNOSTICS = (
    Statistic("out_of_sequence_total", ("rq_num_oos",), 32),
    Statistic("packet_sequence_errors_total", ("sq_num_oos",), 32),
    Statistic("local_ack_timeouts_total", ("sq_num_to",), 32),
    Statistic("rnr_nak_retries_total", ("sq_num_rnr",), 32),
    Statistic("rnr_naks_sent_total", ("rq_num_rnr",), 32),
    Statistic("duplicate_requests_total", ("rq_num_dup",), 32),
    Statistic("requester_flush_errors_total", ("sq_num_wrfe",), 32),
    Statistic("requester_remote_access_errors_total", ("sq_num_rae",), 32),
    Statistic("requester_remote_invalid_requests_total", ("sq_num_rire",), 32),
    Statistic("requester_transport_retries_exceeded_total", ("sq_num_tree",), 32),
    Statistic("requester_rnr_retries_exceeded_total", ("sq_num_rree",), 32),
    Statistic("responder_flush_errors_total", ("rq_num_wrfe",), 32),
    Statistic("responder_local_length_errors_total", ("rq_num_lle",), 32),
    Statistic("responder_remote_access_errors_total", ("rq_num_rae",), 32),
)

MLX4 = DriverCounters(port=_DIAGNOSTICS, device=_DIAGNOSTICS, device_names=("mlx4_*",), hca_types=("MT40*",))
