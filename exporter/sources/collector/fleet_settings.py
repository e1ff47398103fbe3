"""Hosts that publish settings, compared with each other: tables of who differs, and from what."""

from collections import Counter
from collections.abc import Mapping

from exporter.core.table import RowKeeper, Table, TableBuilder
from exporter.mqtt import host_settings
from exporter.preflight.settings import Setting
from exporter.preflight.usual_settings import unusual_settings, usual_settings
from exporter.sources.collector.metrics import SETTINGS, UNUSUAL, USUAL

MAX_UNUSUAL = 1000
"""Unusual values of settings of hosts that have series: first those of the hosts with the fewest."""


class FleetSettingTables:
    """Makes the tables; each row keeps its identity from one time to the next."""

    def __init__(self) -> None:
        self._keepers = {schema: RowKeeper(schema.labels) for schema in (SETTINGS, UNUSUAL, USUAL)}

    def tables(self, received: Mapping[str, host_settings.Settings], now: float) -> list[Table]:
        """Return the tables of what hosts published; thread-safe for one caller at a time."""
        hosts = {host: [Setting(*one) for one in settings] for host, settings in received.items()}
        usual = usual_settings(hosts)
        unusual = list(unusual_settings(hosts, usual))
        number = Counter(host for host, _ in unusual)
        listed = sorted(unusual, key=lambda one: number[one[0]])[:MAX_UNUSUAL]
        made = {schema: TableBuilder(schema) for schema in self._keepers}
        made[SETTINGS].row((), {"setting_hosts": len(hosts), "unlisted_settings": len(unusual) - len(listed)})
        for host, setting in listed:
            made[UNUSUAL].row((host, *setting), {"unusual_setting_info": ()})
        differing = {setting[:2] for _, setting in listed}
        for setting, share in usual.items():
            if setting[:2] in differing:
                made[USUAL].row(setting, {"usual_setting_ratio": share})
        return [one.table(self._keepers[schema], now) for schema, one in made.items()]
