"""Settings that a host publishes, from the tables of its sources."""

import yaml

from exporter.core.table import RowKeeper, TableBuilder
from exporter.daemon.published_settings import MAX_LOG_AGE, published_settings
from exporter.sources.hostcheck.metrics import RESULTS, SETTING
from exporter.sources.nccl_facts.metrics import TRANSPORT
from tests.helpers.paths import ROOT


def table(schema, rows):
    made = TableBuilder(schema)
    for key, values in rows.items():
        made.row(key, values)
    return made.table(RowKeeper(schema.labels), 1.0)


def transport(version):
    return {"transport_info": ("nccl", version, "IB", "", "on", "", "", "")}


def test_settings_of_the_checks_and_versions_of_logs_are_published():
    tables = [
        table(RESULTS, {("roce_mtu", "ok"): {"results": 8}}),
        table(SETTING, {("mlx5, GPUs", "MTU", "9000"): {"setting_info": ("gpu-1",)}}),
        table(
            TRANSPORT,
            {
                ("llm-7", "gpu-1"): {**transport("2.27.3"), "log_age_seconds": 30.0},
                ("unlogged", "gpu-1"): {**transport(""), "log_age_seconds": 30.0},
                ("ended", "gpu-1"): {**transport("2.19.3"), "log_age_seconds": 7 * 3600.0},
                ("unknown", "gpu-1"): transport("2.19.3"),
            },
        ),
    ]
    assert published_settings(tables) == [("job llm-7", "version of NCCL", "2.27.3"), ("mlx5, GPUs", "MTU", "9000")]


def test_the_age_of_a_log_is_that_of_the_rules_of_the_alerts():
    age = yaml.safe_load((ROOT / "alerts" / "thresholds.yml").read_text())["general"]["log_age"]
    assert age == f"{MAX_LOG_AGE / 3600:g}h"
