"""Configuration of `switches`: defaults, groups and targets, in the file itself and in others that it names.

Options of a target override those of its group, and those override the defaults. A protocol, such as `snmp`, is
overridden as a whole: credentials of one place are never combined with an address of another.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from exporter.config import yaml_reader
from exporter.config.errors import ConfigError, RuleError, check_patterns
from exporter.config.units import Duration
from exporter.core.source import MIN_INTERVAL_SECONDS
from exporter.sources.common.path_patterns import matching_files
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

if TYPE_CHECKING:  # imported only where there are switches, since it imports the SNMP decoder
    from exporter.sources.switch.readers.snmp.profile import Profiles

INTERVAL = 15.0
"""Seconds between polls of a switch, if neither the configuration nor its profile sets an interval."""

TRAFFIC = "receive_bytes_total"
"""Ending that every profile with traffic counters has."""

ConfigPath: TypeAlias = tuple[str | int, ...]
"""Keys and indexes of a target in the configuration."""


class CommonOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of a switch, a group, or the defaults; see `Target` for their meaning. None is not set."""

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
        """Check the minimum interval and the syntax of patterns."""
        if self.interval is not None and self.interval < MIN_INTERVAL_SECONDS:
            raise ValueError(f"interval is {self.interval * 1000:g}ms; give {MIN_INTERVAL_SECONDS * 1000:g}ms or more")
        for key in ("include", "exclude", "uplinks"):
            check_patterns(key, getattr(self, key) or ())

    def explicit_options(self) -> dict[str, Any]:
        """Return the options that are set, by key."""
        values = {name: getattr(self, name) for name in CommonOptions.__struct_fields__}
        return {name: value for name, value in values.items() if value is not None}


class TargetOptions(CommonOptions, frozen=True, kw_only=True):
    """One switch in the configuration file.

    Attributes:
        name: Its name in the exporter.
        address: Host, or host and port.
    """

    name: str
    address: str


class Group(CommonOptions, frozen=True, kw_only=True):
    """Switches with common options.

    Attributes:
        name: Label of service discovery.
        targets: The switches.
    """

    name: str
    targets: tuple[TargetOptions, ...] = ()


class TargetsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The content of a file of targets."""

    groups: tuple[Group, ...] = ()
    targets: tuple[TargetOptions, ...] = ()


def builtin_profiles() -> "Profiles":
    """Return the built-in profiles of SNMP. Blocks at the first call."""
    from exporter.sources.switch.readers.snmp import profile  # noqa: PLC0415  # only where there are switches

    return profile.builtin()


class SwitchOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Configuration of `switches`.

    Attributes:
        defaults: Options of all switches.
        groups: Switches with common options.
        targets: Switches without a group.
        files: Shell patterns of files with more groups and targets; relative to the folder of the configuration.
        profiles: Shell patterns of files with SNMP profiles, which replace built-in ones of the same name.
        traps: Where to listen for traps; None to not listen.
        drop: Metric names, as shell patterns, that are not exported.
        keep: Names of details, as shell patterns, that are exported too.
    """

    defaults: CommonOptions = CommonOptions()
    groups: tuple[Group, ...] = ()
    targets: tuple[TargetOptions, ...] = ()
    files: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    traps: Traps | None = None
    drop: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check that every target is complete, and that names are unique."""
        resolve_targets(self)

    def profiles_or_builtin(self) -> "Profiles":
        """Return the profiles of SNMP: the built-in ones, and those of the files that the options name."""
        return builtin_profiles()


class LoadedSwitches(SwitchOptions, frozen=True, kw_only=True):
    """Configuration of `switches` with the content of the files that it names.

    Attributes:
        loaded: The profiles; None where no file of profiles is named.
    """

    loaded: "Profiles | None" = None

    def profiles_or_builtin(self) -> "Profiles":
        """Return the profiles of SNMP."""
        return super().profiles_or_builtin() if self.loaded is None else self.loaded


def resolve_targets(options: SwitchOptions) -> list[tuple[Target, str]]:
    """Return all targets with the options of their group and the defaults applied, each with the name of its group.

    Raises:
        RuleError: A target is incomplete, or two have the same name.
    """
    found: dict[str, tuple[Target, str]] = {}
    for path, target, group in _resolve(options.defaults, options):
        if target.name in found:
            raise RuleError(path, f"two targets are named {target.name!r}; names must be unique")
        found[target.name] = (target, group)
    return list(found.values())


def load_target_files(options: SwitchOptions, folder: Path, check: Callable[[Target], None]) -> SwitchOptions:
    """Return the options with the groups and targets of the files that they name. Blocks.

    Args:
        options: The options in the configuration.
        folder: The folder of the configuration.
        check: Raises ValueError if a target is invalid otherwise.

    Raises:
        ConfigError: A file cannot be read or is invalid; or a target in it is incomplete, or is defined twice.
        RuleError: The same for a target in the configuration itself, or a file does not exist.
    """
    groups, targets = list(options.groups), list(options.targets)
    defined_in = {target.name: "the configuration" for _, target, _ in _resolve(options.defaults, options, check)}
    for path in matching_files("files", options.files, folder):
        more: TargetsFile = yaml_reader.read(path, TargetsFile, "its permissions, and switches.files")
        try:
            for config_path, target, _ in _resolve(options.defaults, more, check):
                if target.name in defined_in:
                    other = defined_in[target.name]
                    raise RuleError(config_path, f"the target {target.name!r} is in {other} too; rename one of them")
                defined_in[target.name] = str(path)
        except RuleError as error:
            raise yaml_reader.error_at(path, error.steps, error.text) from None
        groups += more.groups
        targets += more.targets
    return msgspec.structs.replace(options, groups=tuple(groups), targets=tuple(targets))


def _resolve(
    defaults: CommonOptions, options: SwitchOptions | TargetsFile, check: Callable[[Target], None] = lambda _: None
) -> Iterator[tuple[ConfigPath, Target, str]]:
    """Yield each target with its path and the name of its group, the options of group and defaults applied.

    Raises:
        RuleError: A target is incomplete.
    """
    alone = ((("targets", index), target, None) for index, target in enumerate(options.targets))
    grouped = (
        (("groups", number, "targets", index), target, group)
        for number, group in enumerate(options.groups)
        for index, target in enumerate(group.targets)
    )
    for path, target, group in (*alone, *grouped):
        of_group = group.explicit_options() if group is not None else {}
        merged = defaults.explicit_options() | of_group | target.explicit_options()
        try:
            resolved = Target(name=target.name, address=target.address, **merged)
            check(resolved)
        except RuleError as error:
            raise RuleError([*path, *error.steps], error.text) from None
        except ValueError as error:
            raise RuleError(path, str(error)) from None
        yield path, resolved, group.name if group is not None else ""


def check_profile(target: Target, profiles: "Profiles") -> None:
    """Check that the profile of a target exists, and that its SNMP version supports the profile's counters.

    Args:
        target: A target with `snmp`.
        profiles: All profiles.

    Raises:
        ValueError: There is no such profile; or the version is 1, and the profile has traffic only in Counter64.
    """
    try:
        possible = [profiles.by_name(name) for name in ([target.profile] if target.profile else profiles.names)]
    except ConfigError as error:
        raise RuleError(["profile"], str(error)) from None
    counters = [counter for profile in possible for table in profile.tables for counter in table.counters]
    has_32_bit = any(counter.ending == TRAFFIC and counter.width == 32 for counter in counters)
    if target.snmp is not None and str(target.snmp.version) == "1" and not has_32_bit:
        which = f"the profile {target.profile!r}" if target.profile else "every profile"
        raise RuleError(
            ["snmp"],
            f"version 1 has no 64-bit counters, by which {which} counts traffic; use version 2c or 3, or a profile of"
            " your own with 32-bit counters",
        )
