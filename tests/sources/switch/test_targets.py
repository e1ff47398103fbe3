"""Options of switches: defaults, groups, targets and files; and that secrets are masked."""

import msgspec
import pytest

from exporter.config.errors import RuleError
from exporter.sources.switch.options import (
    Eapi,
    Redis,
    Snmp,
    Target,
)
from exporter.sources.switch.targets import (
    CommonOptions,
    Group,
    SwitchOptions,
    TargetOptions,
    load_target_files,
    resolve_targets,
)

SNMP = Snmp(community="defaults")


def target(name="a", **said):
    return TargetOptions(name=name, address="192.0.2.1", **said)


def one(options):
    ((found, _),) = resolve_targets(options)
    return found


def test_a_target_overrides_its_group_and_that_the_defaults():
    defaults = CommonOptions(snmp=SNMP, role="core", optics=True, profile="generic")
    group = Group(name="row-7", role="spine", profile="arista", targets=(target(profile="nxos"),))
    found = one(SwitchOptions(defaults=defaults, groups=(group,)))
    assert (found.profile, found.role, found.optics, found.snmp) == ("nxos", "spine", True, SNMP)
    assert [group for _, group in resolve_targets(SwitchOptions(defaults=defaults, groups=(group,)))] == ["row-7"]


@pytest.mark.parametrize("key", ["optics", "lldp", "poll", "pfc_swapped"])
def test_false_overrides_true(key):
    options = SwitchOptions(defaults=CommonOptions(snmp=SNMP, **{key: True}), targets=(target(**{key: False}),))
    assert getattr(one(options), key) is False


def test_a_protocol_is_overridden_as_a_whole():
    own = Snmp(community_file="/own", timeout=3.0)
    found = one(SwitchOptions(defaults=CommonOptions(snmp=SNMP), targets=(target(snmp=own),)))
    assert found.snmp == own
    assert found.snmp.community is None


def test_protocols_of_defaults_and_target_are_combined():
    eapi = Eapi(username="u", password="p")
    found = one(SwitchOptions(defaults=CommonOptions(snmp=SNMP), targets=(target(eapi=eapi),)))
    assert found.protocols() == {"snmp": SNMP, "eapi": eapi}


def test_targets_and_defaults_have_the_same_keys():
    """Every key of a target is also a key of defaults and groups."""
    assert {field.name for field in msgspec.structs.fields(Target)} == {
        field.name for field in msgspec.structs.fields(TargetOptions)
    }


def test_without_files_the_options_are_unchanged(tmp_path):
    options = SwitchOptions(targets=(target(snmp=SNMP),))
    assert load_target_files(options, tmp_path, lambda _: None) == options


def test_a_file_that_matches_two_patterns_is_read_once(tmp_path):
    (tmp_path / "a.yml").write_text("targets: [{name: b, address: b, snmp: {community: c}}]")
    whole = load_target_files(SwitchOptions(files=("*.yml", "a.yml", str(tmp_path / "a*"))), tmp_path, lambda _: None)
    assert [target.name for target, _ in resolve_targets(whole)] == ["b"]


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        (lambda: SwitchOptions(targets=(target(snmp=SNMP), target(snmp=SNMP))), ("targets", 1)),
        (lambda: SwitchOptions(groups=(Group(name="g", targets=(target(),)),)), ("groups", 0, "targets", 0)),
        (lambda: CommonOptions(uplinks=("ok", "[")), ("uplinks", 1)),
    ],
)
def test_errors_have_the_path_of_the_option(options, steps):
    with pytest.raises(RuleError) as caught:
        options()
    assert caught.value.steps == steps


@pytest.mark.parametrize(
    "options",
    [
        Snmp(community="hush-hush"),
        Snmp(version=3, user="u", auth="sha", auth_password="hush-hush", priv="aes", priv_password="hush-hush"),
        Eapi(username="u", password="hush-hush"),
        Redis(password="hush-hush"),
    ],
)
def test_no_secret_is_shown(options):
    shown = repr(CommonOptions(**{type(options).__name__.lower(): options}))
    assert "hush-hush" not in shown
    assert "***" in shown
