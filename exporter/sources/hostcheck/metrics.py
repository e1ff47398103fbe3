"""Metrics of the checks of this host's configuration (`fabric_check_`)."""

from exporter.core import vocabulary
from exporter.core.vocabulary import gauge, info

RESULTS = vocabulary.schema(
    "fabric_check_",
    ("check", "result"),
    own={
        "results": gauge(
            "Objects of this host by result of the check: ok, warn, fail, unknown (what it needs cannot be read), and"
            " not_applicable. Absent for results that no object has: all of a check that the host has nothing for."
        )
    },
    origins={"results": ["sysfs", "procfs", "netlink"]},
)

STATUS = vocabulary.schema(
    "fabric_check_",
    ("check", "object"),
    own={
        "status": gauge("Result of the check for the object: 1 for warn, 2 for fail; absent for all others."),
        "info": info("What the check found for an object whose result is warn or fail.", "result", "evidence"),
    },
    origins={"status": ["sysfs", "procfs", "netlink"], "info": ["sysfs", "procfs", "netlink"]},
)

UNLISTED = vocabulary.schema(
    "fabric_check_",
    (),
    own={"unlisted": gauge("Results warn and fail of this host above the limit of objects that have series.")},
    origins={"unlisted": ["sysfs", "procfs", "netlink"]},
)
