"""Configuration of `switches`: defaults, groups and targets, in the file itself and in others that it names.

What a target says counts before what its group says, and that before the defaults. A way to ask, such as `snmp`, is
taken as a whole: nothing is mixed from two places, so that no password ever goes where it was not written for.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from exporter.config import yaml_reader
from exporter.config.errors import RuleError, check_patterns
from exporter.config.units import Duration
from exporter.config.yaml_reader import ConfigError
from exporter.core.source import MIN_INTERVAL_SECONDS
from exporter.sources.common.path_patterns import matching
from exporter.sources.switch.options import (
    Eapi,
    Nvue,
    Nxapi,
    Onyx,
    Redis,
    Restconf,
    Snmp,
    Target,
    Traps,
)

if TYPE_CHECKING:  # only where there are switches; it brings in the decoder of SNMP
    from exporter.sources.switch.readers.snmp.profile import Profiles

INTERVAL = 15.0
"""Seconds between polls of a switch of which neither the configuration nor its profile says anything else."""

TRAFFIC = "receive_bytes_total"
"""What a profile has that tells traffic."""

Place: TypeAlias = tuple[str | int, ...]
"""Keys and indexes that lead to a target."""


class Common(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What can be said of a switch, of a group of them, or of all; see `Target` for what it means."""

    interval: Duration | None = None
    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] | None = None
    profile: str | None = None
    role: Literal["leaf", "spine", "core"] | None = None
    uplinks: tuple[str, ...] | None = None
    optics: bool | None = None
    lldp: bool | None = None
    poll: bool | None = None
    pfc_swapped: bool | None = None
    snmp: Snmp | None = None
    onyx: Onyx | None = None
    nvue: Nvue | None = None
    eapi: Eapi | None = None
    nxapi: Nxapi | None = None
    restconf: Restconf | None = None
    redis: Redis | None = None

    def __post_init__(self) -> None:
        """Refuse an interval that is a slip, and patterns that are not whole."""
        if self.interval is not None and self.interval < MIN_INTERVAL_SECONDS:
            raise ValueError(f"interval is {self.interval * 1000:g}ms; give {MIN_INTERVAL_SECONDS * 1000:g}ms or more")
        for key in ("include", "exclude", "uplinks"):
            check_patterns(key, getattr(self, key) or ())

    def said(self) -> dict[str, Any]:
        """Give what is said here, by key."""
        values = {name: getattr(self, name) for name in Common.__struct_fields__}
        return {name: value for name, value in values.items() if value is not None}


class TargetOptions(Common, frozen=True, kw_only=True):
    """One switch, as it is written.

    Attributes:
        name: Its name in the exporter.
        address: Host, or host and port.
    """

    name: str
    address: str


class Group(Common, frozen=True, kw_only=True):
    """Switches of which the same is said.

    Attributes:
        name: Label of service discovery.
        targets: The switches.
    """

    name: str
    targets: tuple[TargetOptions, ...] = ()


class TargetsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What stands in a file of targets."""

    groups: tuple[Group, ...] = ()
    targets: tuple[TargetOptions, ...] = ()


class SwitchOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Configuration of `switches`.

    Attributes:
        defaults: What holds for all of them.
        groups: Switches of which the same is said.
        targets: The others.
        files: Shell patterns of files with more groups and targets; relative to the configuration's own folder.
        profiles: Shell patterns of files with profiles of SNMP, which replace those of the same name.
        traps: Where their traps are listened for; nowhere where not given.
        drop: Metric names, as shell patterns, that are not exported.
        keep: Names of details, as shell patterns, that are exported too.
    """

    defaults: Common = Common()
    groups: tuple[Group, ...] = ()
    targets: tuple[TargetOptions, ...] = ()
    files: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    traps: Traps | None = None
    drop: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """See that every target is whole, and that no name stands twice."""
        resolved(self)


def resolved(options: SwitchOptions) -> list[tuple[Target, str]]:
    """Give all targets with what their group and the defaults say of them, each with the name of its group.

    Raises:
        RuleError: One is not whole, or two go by one name.
    """
    found: dict[str, tuple[Target, str]] = {}
    for place, target, group in _merged(options.defaults, options):
        if target.name in found:
            raise RuleError(place, f"two targets are named {target.name!r}; names tell them apart")
        found[target.name] = (target, group)
    return list(found.values())


def complete(options: SwitchOptions, folder: Path, check: Callable[[Target], None]) -> SwitchOptions:
    """Take in the files that the configuration names. Blocks.

    Args:
        options: What stands in the configuration.
        folder: Where that is.
        check: Raises ValueError where something else is wrong with a target.

    Raises:
        ConfigError: A file cannot be read, or does not fit; or a target in one is not whole, or there twice.
        RuleError: The same of a target in the configuration itself, or a file is not there.
    """
    groups, targets = list(options.groups), list(options.targets)
    homes = {target.name: "the configuration" for _, target, _ in _merged(options.defaults, options, check)}
    for path in matching_files("files", options.files, folder):
        more: TargetsFile = yaml_reader.read(path, TargetsFile, "its permissions, and switches.files")
        try:
            for place, target, _ in _merged(options.defaults, more, check):
                if target.name in homes:
                    home = homes[target.name]
                    raise RuleError(place, f"the target {target.name!r} stands in {home} too; rename one of them")
                homes[target.name] = str(path)
        except RuleError as error:
            raise yaml_reader.error_at(path, error.steps, error.text) from None
        groups += more.groups
        targets += more.targets
    return msgspec.structs.replace(options, groups=tuple(groups), targets=tuple(targets))


def _merged(
    defaults: Common, written: SwitchOptions | TargetsFile, check: Callable[[Target], None] = lambda _: None
) -> Iterator[tuple[Place, Target, str]]:
    """Give each target with its place and the name of its group, after what group and defaults say of it.

    Raises:
        RuleError: One is not whole.
    """
    alone = ((("targets", place), target, None) for place, target in enumerate(written.targets))
    grouped = (
        (("groups", number, "targets", place), target, group)
        for number, group in enumerate(written.groups)
        for place, target in enumerate(group.targets)
    )
    for place, target, group in (*alone, *grouped):
        said = defaults.said() | (group.said() if group is not None else {}) | target.said()
        try:
            made = Target(name=target.name, address=target.address, **said)
            check(made)
        except RuleError as error:
            raise RuleError([*place, *error.steps], error.text) from None
        except ValueError as error:
            raise RuleError(place, str(error)) from None
        yield place, made, group.name if group is not None else ""


def check_profile(target: Target, profiles: "Profiles") -> None:
    """See that there is the profile that a target names, and that its version of SNMP can carry what that counts.

    Args:
        target: One that is asked by SNMP.
        profiles: All that there are.

    Raises:
        ValueError: There is none; or the version is 1, and traffic is in counters of 64 bits alone.
    """
    try:
        fitting = [profiles.named(name) for name in ([target.profile] if target.profile else profiles.names)]
    except ConfigError as error:
        raise RuleError(["profile"], str(error)) from None
    counters = [counter for profile in fitting for table in profile.tables for counter in table.counters]
    narrow = any(counter.ending == TRAFFIC and counter.width == 32 for counter in counters)
    if target.snmp is not None and str(target.snmp.version) == "1" and not narrow:
        which = f"the profile {target.profile!r}" if target.profile else "every profile"
        raise RuleError(
            ["snmp"],
            f"version 1 has no counters of 64 bits, by which {which} counts traffic; use version 2c or 3, or a profile"
            " of your own with the counters of 32 bits",
        )
