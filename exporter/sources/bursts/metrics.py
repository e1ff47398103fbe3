"""The metrics of the source `bursts`, and where they come from: data."""

from exporter.core import vocabulary
from exporter.core.vocabulary import counter, gauge
from exporter.sources.bursts.byte_counters import HW_COUNTER_DRIVERS, byte_counters
from exporter.sources.rdma.metrics import LABELS

SCHEMA = vocabulary.schema(
    "fabric_rdma_",
    LABELS,
    own={vocabulary.SAMPLES: gauge("Bytes received and transmitted up to each tick of the last interval.")},
    origins={
        vocabulary.SAMPLES: list(
            dict.fromkeys(
                name
                for driver in HW_COUNTER_DRIVERS
                for one in byte_counters(driver)
                for name in (*one.receive, *one.transmit)
            )
        )
    },
    internal=True,
)
"""Samples of ports, from which `exporter.meaning.ports.bursts` computes the utilization."""

TICKS = vocabulary.schema(
    "fabric_exporter_",
    (),
    own={
        "burst_ticks_total": counter(
            "Ticks at which the byte counters of a device were due to be sampled, summed over devices. Devices with a"
            " folder counters/ are sampled, and those of efa, erdma, ionic, irdma and mana; bnxt_re is not, since it"
            " updates its counters once a second."
        )
    },
)

SKIPPED = vocabulary.schema(
    "fabric_exporter_",
    ("reason",),
    own={
        "burst_ticks_skipped_total": counter(
            "Ticks at which a device was not sampled, by reason: late, the exporter or other devices were busy; budget,"
            " the device responds slowly or the tick is short; hung, an earlier call has not returned."
        )
    },
)

SKIP_REASONS = ("late", "budget", "hung")
