"""An AlertmanagerConfig of the Prometheus Operator (v1alpha1), made of a configuration of Alertmanager.

The operator has other names for the same things, takes secrets from a Secret instead of files, and has matchers as
objects. A key that is not listed here is an error, so that none is lost.
"""

import re
from collections.abc import Mapping
from pathlib import PurePath

import yaml

SECRET = "fabric-exporter-alertmanager"  # noqa: S105  # the name of a Secret
"""The Secret whose keys are the names of the files."""

HEAD = """\
# Made by deploy/helm/build.py of alerts/alertmanager.yml: change alerts/routing.yml.
"""

NAMES = {
    "receivers": "receivers",
    "route": "route",
    "inhibit_rules": "inhibitRules",
    "name": "name",
    # routes
    "receiver": "receiver",
    "group_by": "groupBy",
    "group_wait": "groupWait",
    "group_interval": "groupInterval",
    "repeat_interval": "repeatInterval",
    "routes": "routes",
    "matchers": "matchers",
    "source_matchers": "sourceMatch",
    "target_matchers": "targetMatch",
    "equal": "equal",
    # receivers
    "pagerduty_configs": "pagerdutyConfigs",
    "webhook_configs": "webhookConfigs",
    "slack_configs": "slackConfigs",
    "routing_key_file": "routingKey",
    "credentials_file": "credentials",
    "slack_api_url_file": "apiURL",
    "http_config": "httpConfig",
    "authorization": "authorization",
    "send_resolved": "sendResolved",
    "severity": "severity",
    "class": "class",
    "description": "description",
    "client_url": "clientURL",
    "url": "url",
    "channel": "channel",
    "title": "title",
    "text": "text",
}
"""The operator's name of each key."""

MATCHER_KEYS = {"matchers", "source_matchers", "target_matchers"}

GLOBALS = {"pagerduty_url": ("pagerduty_configs", "url"), "slack_api_url_file": ("slack_configs", "slack_api_url_file")}
"""Where a key of `global` belongs, as the operator has no `global`: receivers of a kind, and the key there."""

MATCHER = re.compile(r"(\w+)\s*(=~|!~|!=|=)\s*(.*)")


PARTS = {"receivers.yml": {"receivers"}, "routes.yml": {"route", "inhibitRules"}}
"""The files that the `spec` is made of, as receivers can be replaced: their keys."""


def converted(text: str) -> Mapping[str, str]:
    """Return the parts of the `spec` of an AlertmanagerConfig as YAML, by the names of their files.

    Args:
        text: A configuration of Alertmanager.

    Raises:
        KeyError: It has a key that the operator has no known name for.
    """
    config = yaml.safe_load(text)
    for key, value in config.pop("global", {}).items():
        kind, name = GLOBALS[key]
        for receiver in config["receivers"]:
            for one in receiver.get(kind, ()):
                one[name] = value
    spec = {NAMES[key]: _member(key, value) for key, value in config.items()}
    return {
        name: HEAD + yaml.safe_dump({key: spec[key] for key in spec if key in keys}, sort_keys=False, width=120)
        for name, keys in PARTS.items()
    }


def _renamed(value: object) -> object:
    if isinstance(value, Mapping):
        return {NAMES[key]: _member(key, one) for key, one in value.items()}
    if isinstance(value, list):
        return [_renamed(one) for one in value]
    return value


def _member(key: str, value: object) -> object:
    if key in MATCHER_KEYS and isinstance(value, list):
        return [matcher(one) for one in value]
    if key.endswith("_file"):
        return {"name": SECRET, "key": PurePath(str(value)).name}
    return _renamed(value)


def matcher(text: str) -> dict[str, str]:
    """Return a matcher of Alertmanager, such as `severity = critical`, as the operator has it."""
    found = MATCHER.fullmatch(text.strip())
    if found is None:
        raise SystemExit(f"{text!r} is not a matcher: write NAME = VALUE, or with !=, =~ or !~")
    name, operator, value = found.groups()
    return {"name": name, "matchType": operator, "value": value.strip('"')}
