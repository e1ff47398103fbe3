"""The configuration of the source `rdma`."""

from exporter.sources.common.host_ports import PortOptions


class RdmaOptions(PortOptions, frozen=True):
    """Configuration of `sources.rdma`; include and exclude match names of devices.

    Attributes:
        raw: Shell patterns of drivers' counters that have no metric, to be exported under the driver's own name.
        queue_pairs: Whether to count the queue pairs of each program, once a minute.
    """

    raw: tuple[str, ...] = ()
    queue_pairs: bool = False
