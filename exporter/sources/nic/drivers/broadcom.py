"""bnxt: NetXtreme-E, Thor (Linux: broadcom/bnxt/bnxt_ethtool.c).

The port's counters are a copy that the driver updates each second while the link is up: they do not change while it is
down. Counters by class of service (`_cos`) exist by priority (`_pri`) too; the latter are read.
"""

from exporter.sources.common.driver_statistics import (
    MICROSECONDS,
    DriverNames,
    Statistic,
    both,
)

_RINGS = (
    Statistic("out_of_buffer_total", ("rx_total_ring_discards",)),
    Statistic("out_of_buffer_total", ("rx_total_discard_pkts",)),  # the older name
)

BNXT = DriverNames(
    port=(
        *both("bytes_total", "{way}_bytes"),
        *both("packets_total", "{way}_good_frames"),
        *both("discards_total", "{way}_stat_discard"),
        Statistic("receive_errors_total", ("rx_stat_err",)),
        Statistic("transmit_errors_total", ("tx_err",)),
        *both("pause_frames_total", "{way}_pause_frames"),
        Statistic("fcs_errors_total", ("rx_fcs_err_frames",)),
        Statistic("symbol_errors_total", ("rx_pcs_symbol_err",)),
        Statistic("alignment_errors_total", ("rx_align_err_frames",)),
        Statistic("link_down_total", ("link_down_events",)),
        Statistic("fec_corrected_blocks_total", ("rx_fec_corrected_blocks",)),
        Statistic("fec_uncorrectable_blocks_total", ("rx_fec_uncorrectable_blocks",)),
        Statistic("fec_corrected_errors_total", ("rx_corrected_bits",)),
        Statistic("receive_buffer_threshold_total", ("rx_buffer_passed_threshold",)),
        Statistic("receive_undersize_packets_total", ("rx_undrsz_frames",)),
        Statistic("receive_oversize_packets_total", ("rx_ovrsz_frames",)),
        Statistic("receive_jabbers_total", ("rx_jbr_frames",)),
        *_RINGS,
    ),
    priority=(
        *both("pfc_frames_total", "{way}_pfc_ena_frames_pri{p}"),
        *both("pfc_paused_seconds_total", "pfc_pri{p}_{way}_duration_us", divisor=MICROSECONDS),
        *both("pfc_transitions_total", "pfc_pri{p}_{way}_transitions"),
        *both("priority_bytes_total", "{way}_bytes_pri{p}"),
        *both("priority_packets_total", "{way}_packets_pri{p}"),
    ),
)

BNXT_VIRTUAL = DriverNames(port=_RINGS, wire=False)
"""A virtual function has no counters of the port."""
