"""Configuration of `sources.ibfabric`."""

import msgspec

from exporter.config.errors import check_patterns
from exporter.config.secret import SecretError, read_secret
from exporter.config.units import Duration
from exporter.core.source import Options, Selection
from exporter.linux.mad.umad import MAX_PORTS
from exporter.linux.mad.window import RequestLimits


class PortChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The local port from which a fabric is read.

    Attributes:
        device: Name of the adapter, such as `mlx5_0`; empty for the first with an active port.
        port: Port number; None for the first active one.
    """

    device: str = ""
    port: int | None = None

    def __post_init__(self) -> None:
        """Check that the port number is valid."""
        if self.port is not None and not 1 <= self.port <= MAX_PORTS:
            raise ValueError(f"port is {self.port}; adapters have ports 1 to {MAX_PORTS}")


class IbFabricOptions(Options, frozen=True, kw_only=True):
    """Configuration of `sources.ibfabric`; include and exclude are patterns of NodeGUIDs, 16 hexadecimal digits.

    Attributes:
        ports: Local ports from which fabrics are read, one for each subnet.
        only_switches: Whether ports of adapters are skipped, for example because their own hosts export them.
        service_levels: Whether traffic by service level is read.
        survey_interval: Time between discoveries of the whole fabric, if no change causes one before.
        window: Requests in flight.
        per_destination: Requests in flight to one node: a switch has one management processor for all its ports.
        per_second: Requests sent per second.
        timeout: Time to wait for a reply.
        retries: Retries of a request.
        m_key_file: File with the M_Key of a protected fabric: a number, hexadecimal with 0x.
        m_key_env: Environment variable with the M_Key.
        lock: Folder shared by all hosts that may sweep; processes of one host need none.
    """

    enabled: bool = False
    interval: Duration = Duration(30.0)
    ports: tuple[PortChoice, ...] = (PortChoice(),)
    only_switches: bool = False
    service_levels: bool = False
    survey_interval: Duration = Duration(600.0)
    window: int = 64
    per_destination: int = 1
    per_second: int = 10_000
    timeout: Duration = Duration(0.5)
    retries: int = 2
    m_key_file: str | None = None
    m_key_env: str | None = None
    lock: str | None = None

    def __post_init__(self) -> None:
        """Check the limits, and that keys do not contradict each other."""
        super().__post_init__()
        check_patterns("include", self.include)
        bounds = {
            "window": (self.window, 1, 1024),
            "per_destination": (self.per_destination, 1, 16),
            "per_second": (self.per_second, 10, 1_000_000),
            "retries": (self.retries, 0, 10),
        }
        for key, (value, least, most) in bounds.items():
            if not least <= value <= most:
                raise ValueError(f"{key} is {value}; give {least} to {most}")
        slowest = 2 * self.timeout * (self.retries + 1)  # the subnet manager, then an unresponsive node
        if self.interval < slowest:
            text = f"interval is {self.interval:g}s; give {slowest:g}s or more, or a shorter timeout or fewer retries"
            raise ValueError(f"{text}: unresponsive nodes take that long")
        if not self.ports:
            raise ValueError("ports is empty; omit it for the first active port of this host")
        if len(set(self.ports)) < len(self.ports):
            raise ValueError("ports has one port twice; give one for each subnet")
        if self.m_key_file is not None and self.m_key_env is not None:
            raise ValueError("give one of m_key_file and m_key_env")

    def limits(self) -> RequestLimits:
        """Return the limits of the request window."""
        return RequestLimits(
            self.window, self.per_destination, float(self.per_second), float(self.timeout), self.retries + 1
        )

    def node_selection(self) -> Selection:
        """Return the selection of nodes by GUID: patterns may have 0x, colons and capital letters."""
        include, exclude = (
            tuple(pattern.lower().removeprefix("0x").replace(":", "") for pattern in patterns)
            for patterns in (self.include, self.exclude)
        )
        return Selection(include=include, exclude=exclude)

    def read_m_key(self) -> int:
        """Read the M_Key; 0 where none is configured. Blocks for a file.

        Raises:
            SecretError: It cannot be read, or is not a 64-bit number.
        """
        if self.m_key_file is None and self.m_key_env is None:
            return 0
        text = read_secret(None, self.m_key_file, self.m_key_env)
        try:
            key = int(text.strip(), 0)
        except ValueError:
            key = -1
        if not 0 <= key < 1 << 64:
            place = self.m_key_file or f"environment variable {self.m_key_env}"
            raise SecretError(f"{place}: the M_Key is not a 64-bit number; write 0x and 16 hexadecimal digits")
        return key
