"""Metrics of the collector."""

from types import MappingProxyType

from exporter.core import vocabulary
from exporter.core.vocabulary import counter, gauge, info

PREFIX = "fabric_collector_"

BATCHES = vocabulary.schema(
    PREFIX,
    ("outcome",),
    own={
        "batches_total": counter(
            "Batches of timings by outcome: accepted; lost on the way, by gaps in their numbers; duplicate; dropped"
            " from the queue, of a sender that had more than its share of it; too_many_jobs, in all or of one host;"
            " too_many_hosts, in all or of one job; other values are the reasons for which messages were discarded."
        )
    },
    origins={"batches_total": ["fabric/v1/nccl"]},
)

_COLLECTOR = MappingProxyType(
    {
        "connected": gauge("Whether the broker is connected and granted the subscriptions (1) or not (0)."),
        "reconnects_total": counter("Connections to the broker after the first."),
        "jobs": gauge("Jobs from which batches are received."),
        "evicted_jobs_total": counter(
            "Jobs that were dropped because their number is limited: one of the host with most jobs of its own, or one"
            " that only one host published, for less than ten seconds, or that no host published for a minute."
        ),
        "hosts": gauge("Hosts from which batches are received, counted once per job."),
        "streams": gauge("Streams that are received; a stream is one kind of collective of a rank in a communicator."),
        "operations_total": counter("Timings of collective operations accepted."),
        "duplicate_operations_total": counter(
            "Timings of collective operations that were received before, and discarded."
        ),
        "dropped_operations_total": counter("Timings dropped because too many were received between two reads."),
        "lost_operations_total": counter("Timings that hosts lost before they published them."),
        "dropped_states_total": counter(
            "States of ports, presences of hosts, best levels of jobs and settings of hosts dropped because of the"
            " limits."
        ),
    }
)

COLLECTOR = vocabulary.schema(PREFIX, (), own=_COLLECTOR, origins={ending: ["fabric/v1/nccl"] for ending in _COLLECTOR})

_SETTINGS_TOPIC = ("fabric/v1/settings",)

SETTINGS = vocabulary.schema(
    PREFIX,
    (),
    own={
        "setting_hosts": gauge("Hosts whose published settings are compared with each other."),
        "unlisted_settings": gauge("Unusual values of settings of hosts without series, as there are too many."),
    },
    origins=dict.fromkeys(("setting_hosts", "unlisted_settings"), _SETTINGS_TOPIC),
)

UNUSUAL = vocabulary.schema(
    PREFIX,
    ("host", "class", "setting", "value"),
    own={
        "unusual_setting_info": info(
            "A value that a host published for a setting of which more than half of the hosts of its class, or of its"
            " job, have another value: at least three hosts have the setting."
        )
    },
    origins={"unusual_setting_info": _SETTINGS_TOPIC},
)

USUAL = vocabulary.schema(
    PREFIX,
    ("class", "setting", "value"),
    own={
        "usual_setting_ratio": gauge(
            "Share of the hosts with the setting that have this value, where it is more than half of at least three"
            " hosts, and a host has another value."
        )
    },
    origins={"usual_setting_ratio": _SETTINGS_TOPIC},
)
