"""Tables of the devices that containers were given, as libcni and kubelet know them, in whatever namespace they are."""

from collections.abc import Mapping

from exporter.core.table import RowKeeper, Table, TableBuilder
from exporter.sources.pods.metrics import ASSIGNED, SHARES
from exporter.sources.pods.model import PodOwner


class AssignedTables:
    """Makes the tables, and reuses the text of their rows from poll to poll."""

    def __init__(self, host: str) -> None:
        """Store the host's name."""
        self._host = host
        self._keepers = {schema: RowKeeper(schema.labels) for schema in (ASSIGNED, SHARES)}

    def make(
        self, holders: Mapping[str, PodOwner], shares: Mapping[tuple[str, PodOwner], int], now: float
    ) -> list[Table]:
        """Make the tables; one without rows is left out.

        Args:
            holders: The container of each network device, by PCI address.
            shares: Number of shares by resource and container.
            now: Time of the reading.
        """
        devices, pools = TableBuilder(ASSIGNED), TableBuilder(SHARES)
        for pci, owner in sorted(holders.items()):
            devices.row((pci, owner.pod_namespace, owner.pod_name, owner.container), {"device_info": (self._host,)})
        for (resource, owner), number in sorted(shares.items()):
            labels = (resource, owner.pod_namespace, owner.pod_name, owner.container)
            pools.row(labels, {"device_shares": number})
        tables = [devices.table(self._keepers[ASSIGNED], now), pools.table(self._keepers[SHARES], now)]
        return [table for table in tables if len(table.rows)]
