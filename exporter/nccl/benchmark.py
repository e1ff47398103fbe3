"""One run of nccl-tests or rccl-tests: its ranks, hosts and rows."""

from collections import Counter
from dataclasses import dataclass, field

MAX_MODELS = 16
"""Models of devices of one run that are kept."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One half of a row: in place or out of place.

    Attributes:
        seconds: Time of one operation.
        algorithm_bandwidth: Bytes per second.
        bus_bandwidth: Bytes per second.
        wrong: Number of wrong elements; None where unchecked, or printed as a rounding error.
    """

    seconds: float
    algorithm_bandwidth: float
    bus_bandwidth: float
    wrong: int | None


@dataclass(frozen=True, slots=True)
class Row:
    """One message size.

    Attributes:
        size: Bytes as nccl-tests counts them; may be 0.
        count: Elements.
        type: Data type.
        redop: sum …; empty where the table has no such column.
        out_of_place: Out-of-place result; None where absent.
        in_place: In-place result; None where absent.
    """

    size: int
    count: int
    type: str
    redop: str
    out_of_place: Measurement | None
    in_place: Measurement | None


@dataclass(slots=True)
class BenchmarkRun:
    """One run of a test.

    Attributes:
        collective: One of `collectives.KINDS`; None where the output does not name it.
        nccl_version: "2.23.4"; empty where absent.
        ranks: Listed ranks with the number of occurrences; more than one means independent runs.
        hosts: Listed hosts.
        models: Models of the listed devices, MAX_MODELS at most.
        rows: Message sizes.
        out_of_bounds: Wrong values over all sizes; None where absent.
        average_bus_bandwidth: Bytes per second over all sizes, small ones included; None where absent.
        failures: Lines that report a failed test.
        foreign_column: Whether a column was added before the sizes: rows are then of different runs.
        bad_rows: Rows that could not be parsed.
    """

    collective: str | None = None
    nccl_version: str = ""
    ranks: Counter[int] = field(default_factory=Counter)
    hosts: set[str] = field(default_factory=set)
    models: set[str] = field(default_factory=set)
    rows: list[Row] = field(default_factory=list)
    out_of_bounds: int | None = None
    average_bus_bandwidth: float | None = None
    failures: list[str] = field(default_factory=list)
    foreign_column: bool = False
    bad_rows: int = 0

    def add_model(self, model: str) -> None:
        """Add the model of a device; empty where unknown."""
        if model and len(self.models) < MAX_MODELS:
            self.models.add(model.strip())

    @property
    def n_ranks(self) -> int | None:
        """Number of ranks; None where ranks are not listed."""
        return max(self.ranks) + 1 if self.ranks else None

    @property
    def n_nodes(self) -> int | None:
        """Number of hosts; None where not every rank is listed."""
        return len(self.hosts) if self.ranks and len(self.ranks) == self.n_ranks else None

    @property
    def wrong_results(self) -> str:
        """Which results are wrong; empty if none is."""
        if self.out_of_bounds:
            return f"{self.out_of_bounds} values were wrong"
        halves = (half for row in self.rows for half in (row.out_of_place, row.in_place) if half is not None)
        return "elements were wrong" if any(half.wrong for half in halves) else ""
