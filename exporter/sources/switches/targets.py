"""Configuration of `switches`: defaults, groups and targets, in the file itself and in others that it names.

What a target says counts before what its group says, and that before the defaults. A way to ask, such as `snmp`, is
taken as a whole: nothing is mixed from two places, so that no password ever goes where it was not written for.
"""

import glob
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec

from exporter import document
from exporter.document import ConfigError
from exporter.sources.switches.options import (
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
from exporter.units import Duration

INTERVAL = 15.0
"""Seconds between polls of a switch of which neither the configuration nor its profile says anything else."""

LEAST_INTERVAL = 1.0
"""Seconds: no switch refreshes its counters more often, and its processor has other things to do."""


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
        """Refuse an interval that is a slip."""
        if self.interval is not None and self.interval < LEAST_INTERVAL:
            raise ValueError(f"interval is {self.interval * 1000:g}ms; give {LEAST_INTERVAL:g}s or more")

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
        ValueError: One is not whole, or two go by one name.
    """
    alone = ((target, None) for target in options.targets)
    grouped = ((target, group) for group in options.groups for target in group.targets)
    found: dict[str, tuple[Target, str]] = {}
    for written, group in (*alone, *grouped):
        said = options.defaults.said() | (group.said() if group is not None else {}) | written.said()
        if written.name in found:
            raise ValueError(f"two targets are named {written.name!r}; names tell them apart")
        target = Target(name=written.name, address=written.address, **said)
        found[written.name] = (target, group.name if group is not None else "")
    return list(found.values())


def complete(options: SwitchOptions, folder: Path) -> SwitchOptions:
    """Take in the files that the configuration names. Blocks.

    Args:
        options: What stands in the configuration.
        folder: Where that is.

    Raises:
        ConfigError: A file cannot be read, or does not fit; or a target is not whole, or there twice.
    """
    groups, targets = list(options.groups), list(options.targets)
    places = {one.name: "switches" for one in _targets(groups, targets)}
    for path in matching(options.files, folder):
        more: TargetsFile = document.read(path, TargetsFile, "its permissions, and switches.files")
        for one in _targets(more.groups, more.targets):
            if one.name in places:
                raise ConfigError(f"{path}: the target {one.name!r} stands in {places[one.name]} too; rename one")
            places[one.name] = str(path)
        groups += more.groups
        targets += more.targets
    try:
        return msgspec.structs.replace(options, groups=tuple(groups), targets=tuple(targets))
    except ValueError as error:
        raise ConfigError(f"switches: {error}") from None


def matching(patterns: Iterable[str], folder: Path) -> list[Path]:
    """List the files that fit shell patterns, in order. Blocks.

    Raises:
        ConfigError: A pattern without wildcards fits none.
    """
    found: list[Path] = []
    for pattern in patterns:
        paths = sorted(glob.glob(pattern, root_dir=folder))  # noqa: PTH207  # absolute patterns too
        if not paths and not glob.has_magic(pattern):
            raise ConfigError(f"there is no file {folder / pattern}; remove it from the configuration, or make it")
        found += [folder / path for path in paths if folder / path not in found]
    return found


def _targets(groups: Iterable[Group], targets: Iterable[TargetOptions]) -> list[TargetOptions]:
    return [*targets, *(target for group in groups for target in group.targets)]
