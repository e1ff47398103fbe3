"""What the polls of all switches share: the lock for CPU-bound work, and the keys of SNMPv3 passwords."""

from dataclasses import dataclass, field

from exporter.snmp.usm import PasswordKeys
from exporter.sources.switch.fair_lock import FairLock


@dataclass(frozen=True, slots=True)
class SharedBySwitches:
    """Shared by the switches of one registry."""

    fair_lock: FairLock = field(default_factory=FairLock)
    password_keys: PasswordKeys = field(default_factory=PasswordKeys)
