"""ice: E800; i40e: 700; ixgbe: 82599, X500; iavf: their virtual functions (Linux: intel/*/*_ethtool.c).

ice and i40e have all statistics twice: for the port (`….nic`, `port.…`) and for the function; the latter are not read.
"""

from exporter.sources.common.driver_statistics import DriverNames, Statistic, both


def _port(before: str, after: str) -> tuple[Statistic, ...]:
    """Declare the statistics that ice and i40e share; a prefix and a suffix mark those of the port."""

    def statistic(ending: str, *names: str) -> Statistic:
        return Statistic(ending, tuple(f"{before}{name}{after}" for name in names))

    return (
        *both("bytes_total", f"{before}{{way}}_bytes{after}"),
        statistic("receive_packets_total", "rx_unicast", "rx_multicast", "rx_broadcast"),
        statistic("transmit_packets_total", "tx_unicast", "tx_multicast", "tx_broadcast"),
        statistic("receive_discards_total", "rx_dropped"),
        statistic("transmit_discards_total", "tx_dropped_link_down"),
        statistic("transmit_errors_total", "tx_errors"),
        *both("pause_frames_total", f"{before}link_xoff_{{way}}{after}"),
        statistic("fcs_errors_total", "rx_crc_errors"),
        statistic("transmit_timeouts_total", "tx_timeout"),
        statistic("illegal_bytes_total", "illegal_bytes"),
        statistic("local_faults_total", "mac_local_faults"),
        statistic("remote_faults_total", "mac_remote_faults"),
        statistic("receive_undersize_packets_total", "rx_undersize"),
        statistic("receive_oversize_packets_total", "rx_oversize"),
        statistic("receive_fragments_total", "rx_fragments"),
        statistic("receive_jabbers_total", "rx_jabber"),
        statistic("receive_length_errors_total", "rx_length_errors"),
    )


ICE = DriverNames(
    port=_port("", ".nic"),
    priority=both("pfc_frames_total", "{way}_priority_{p}_xoff.nic"),
)

I40E = DriverNames(
    port=(
        *_port("port.", ""),
        Statistic("receive_discards_total", ("port.rx_discards",)),  # some builds' name
    ),
    priority=(
        *both("pfc_frames_total", "port.{way}_priority_{p}_xoff"),
        *both("pfc_frames_total", "port.{way}_priority_{p}_xoff_{way}"),  # some builds' name, Linux's own among them
    ),
)

IXGBE = DriverNames(
    port=(
        *both("bytes_total", "{way}_bytes_nic"),
        *both("packets_total", "{way}_pkts_nic"),
        Statistic("receive_errors_total", ("rx_errors",)),
        Statistic("receive_discards_total", ("rx_missed_errors",)),
        # Packets without a free descriptor in their queue (QPRDC): out of buffer. The counter rx_no_buffer_count exists
        # only on chips before the 82599.
        Statistic("out_of_buffer_total", ("rx_no_dma_resources",)),
        *both("pause_frames_total", "{way}_flow_control_xoff"),
        Statistic("fcs_errors_total", ("rx_crc_errors",)),
        Statistic("receive_length_errors_total", ("rx_length_errors",)),
    ),
    priority=both("pfc_frames_total", "{way}_pb_{p}_pxoff"),
)

IAVF = DriverNames(
    port=(
        *both("discards_total", "{way}_discards"),
        Statistic("transmit_errors_total", ("tx_errors",)),
    ),
    wire=False,
)
