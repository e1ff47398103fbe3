"""Configuration of the source `nic`."""

from exporter.sources.common.host_ports import PortOptions


class NicOptions(PortOptions, frozen=True):
    """Configuration of `sources.nic`.

    Attributes:
        virtual_functions: Whether statistics of virtual functions are read too.
        raw: Shell patterns of driver statistics that are exported by the driver's own names.
        software: Shell patterns of software devices that are read too, such as the veth devices of pods.
    """

    virtual_functions: bool = False
    raw: tuple[str, ...] = ()
    software: tuple[str, ...] = ()
