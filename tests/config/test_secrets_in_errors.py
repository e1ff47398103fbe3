"""No error quotes a secret, wherever in a configuration it is by mistake."""

import pytest

from exporter.config.errors import ConfigError, UserError
from exporter.daemon.loading import load_config
from exporter.outputs.webconfig import parse as parse_web

SECRET = "hunter2-Zq"
USER = "version: 3, user: u"


def error_of(folder, text):
    file = folder / "config.yml"
    file.write_text(text)
    with pytest.raises(UserError) as caught:
        load_config(file)
    return str(caught.value)


PLACES = {
    "key without a value": "switches: {defaults: {snmp: {SECRET: }}}",
    "key with a value": "switches: {defaults: {snmp: {SECRET: community}}}",
    "key beside others": "switches: {defaults: {snmp: {community: a, SECRET: }}}",
    "key of a password": "switches: {defaults: {eapi: {username: a, SECRET: b}}}",
    "key one level up": "switches: {defaults: {SECRET: }}",
    "key at the top": "SECRET: a",
    "key of a target": "switches: {targets: [{name: a, address: b, SECRET: }]}",
    "key of the broker": "mqtt: {broker: a, SECRET: }",
    "key below the key": "switches: {defaults: {snmp: {community: {SECRET: }}}}",
    "name of credentials": "probe: {auths: {SECRET: }}",
    "name of credentials with a value": "probe: {auths: {SECRET: a}}",
    "key twice": "switches: {defaults: {snmp: {SECRET: a, SECRET: b}}}",
    "list": "switches: {defaults: {snmp: {community: [SECRET]}}}",
    "in place of a mapping": "switches: {defaults: {snmp: SECRET}}",
    "in place of a target": "switches: {targets: [SECRET]}",
    "in place of an algorithm": f"switches: {{defaults: {{snmp: {{{USER}, auth: SECRET, auth_password: abcdefgh}}}}}}",
    "in place of a version": "switches: {defaults: {snmp: {version: SECRET}}}",
    "in place of a duration": "switches: {defaults: {snmp: {community: a, timeout: SECRET}}}",
    "in place of a number": "switches: {defaults: {snmp: {community: a, retries: SECRET}}}",
    "in place of true": "mqtt: {broker: a, tls: SECRET}",
    "address of SNMP": "switches: {targets: [{name: a, address: 'u:SECRET@b', snmp: {community: c}}]}",
    "address of SNMP with a port": "switches: {targets: [{name: a, address: 'u:SECRET@b:161', snmp: {community: c}}]}",
    "address of an API": "switches: {targets: [{name: a, address: 'u:SECRET@b', eapi: {username: c, password: d}}]}",
    "address of redis": "switches: {targets: [{name: a, address: 'redis://:SECRET@b', redis: {}}]}",
    "address of the broker": "mqtt: {broker: 'mqtt://u:SECRET@b'}",
    "alias": "switches: {defaults: {snmp: {community: *SECRET}}}",
    "tag": "switches: {defaults: {snmp: {community: !SECRET a}}}",
    "quotes": 'switches: {defaults: {snmp: {community: "SECRET}}}',
    "merge": "switches: {defaults: {snmp: {<<: SECRET}}}",
    "complex key": "switches: {defaults: {snmp: {? [SECRET] : a}}}",
}


@pytest.mark.parametrize("place", PLACES)
def test_a_secret_in_a_wrong_place_is_not_quoted(place, tmp_path):
    text = error_of(tmp_path, PLACES[place].replace("SECRET", SECRET))
    assert "hunter2" not in text
    assert text.startswith(f"{tmp_path / 'config.yml'}:1"), "the place is given all the same"


def test_digits_that_stand_where_a_key_belongs_are_not_quoted(tmp_path):
    text = error_of(tmp_path, "switches: {defaults: {snmp: {73515289: a}}}")
    assert "73515289" not in text
    assert text.endswith("switches.defaults.snmp: a key is not a string; put it in quotes")


def test_a_typo_of_a_key_is_still_quoted(tmp_path):
    text = error_of(tmp_path, "switches: {defaults: {snmp: {comunity: a}}}")
    assert text.endswith("switches.defaults.snmp.comunity: unknown key; did you mean 'community'?")


@pytest.mark.parametrize(
    "users", [f"'alice:{SECRET}': a", f"{SECRET}: alice", f"{SECRET}: 5", f"{SECRET}: a, {SECRET}: b"]
)
def test_a_password_in_place_of_a_user_of_the_web_server_is_not_quoted(users, tmp_path):
    with pytest.raises(ConfigError) as caught:
        parse_web(f"basic_auth_users: {{{users}}}".encode(), tmp_path / "web.yml")
    assert "hunter2" not in str(caught.value)


# --- what check-config accepts


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (f"{USER}, auth: sha, auth_password: ab", "auth_password has fewer than 8 bytes, which SNMPv3 forbids"),
        (f"{USER}, auth: sha, auth_password: abcdefg", "auth_password has fewer than 8 bytes"),
        (f"{USER}, auth: sha, auth_password: abcdefgh, priv: aes, priv_password: ab", "priv_password has fewer than 8"),
        (f"version: 3, user: {'u' * 33}", "user has more than 32 bytes"),
        (f"{USER}, context: {'c' * 33}", "context has more than 32 bytes"),
        ("community: ''", "community is empty"),
    ],
)
def test_limits_of_snmp(options, error, tmp_path):
    """RFC 3414, sections 5 and 11.2; RFC 3415, section 4."""
    assert f"switches.defaults.snmp: {error}" in error_of(tmp_path, f"switches: {{defaults: {{snmp: {{{options}}}}}}}")


@pytest.mark.parametrize("options", [f"{USER}, auth: sha, auth_password: pässwör", f"version: 3, user: {'u' * 32}"])
def test_values_at_the_limits_of_snmp(options, tmp_path):
    file = tmp_path / "config.yml"
    file.write_text(f"switches: {{defaults: {{snmp: {{{options}}}}}}}")
    load_config(file)


@pytest.mark.parametrize("way", ["eapi", "nvue", "nxapi", "restconf"])
def test_a_user_of_http_basic_has_no_colon(way, tmp_path):
    """RFC 7617, section 2: the first colon ends the user."""
    text = error_of(tmp_path, f"switches: {{defaults: {{{way}: {{username: 'a:b', password: c}}}}}}")
    assert f"switches.defaults.{way}.username: has a colon" in text


@pytest.mark.parametrize("value", ["*_bytes", "*", "'a', *_b", "%a", "@a", "`a"])
def test_a_pattern_without_quotes_is_not_called_an_alias(value, tmp_path):
    text = error_of(tmp_path, f"switches: {{drop: [{value}]}}")
    assert "alias" not in text
    assert "a value without quotes cannot begin with" in text
    assert text.endswith("; put it in quotes")
