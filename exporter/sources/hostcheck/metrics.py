"""Metrics of the checks of this host's configuration (`fabric_check_`)."""

from exporter.core import vocabulary
from exporter.core.vocabulary import gauge, info

RESULTS = vocabulary.schema(
    "fabric_check_",
    ("check", "result"),
    own={
        "results": gauge(
            "Objects of this host by result of the check: ok, warn, fail, unknown (what it needs cannot be read), and"
            " not_applicable. Absent for results that no object has, and for checks that apply to no object of this"
            " host."
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

SETTING = vocabulary.schema(
    "fabric_check_",
    ("class", "setting", "value"),
    own={
        "setting_info": info(
            "A setting of this host that hosts of its class, or the hosts of a job, should have alike: MTU, PFC, trust,"
            " ECN, firmware, drivers, kernel, variables of NCCL, limits. A setting whose devices differ has several"
            " values.",
            "host",
        )
    },
    origins={"setting_info": ["sysfs", "procfs", "netlink"]},
)

UNLISTED = vocabulary.schema(
    "fabric_check_",
    (),
    own={"unlisted": gauge("Results warn and fail of this host above the limit of objects that have series.")},
    origins={"unlisted": ["sysfs", "procfs", "netlink"]},
)
