"""Host names in texts, as the resolver accepts them (RFC 1035, section 2.3.4: labels of 1 to 63 characters), and the
addresses that embed others, with the examples of their RFCs.
"""

import ipaddress
import socket

import pytest

from exporter.config.addresses import canonical_name, forms_of, is_host_name, parse_numeric


@pytest.mark.parametrize("text", ["localhost", "leaf-01.example.com", "leaf_01", "192.0.2.1", "a" * 63, "köln.example"])
def test_host_names(text):
    assert is_host_name(text)


@pytest.mark.parametrize(
    "text", ["", "a..b", ".a", "a" * 64, "a b", "a:1", "[::1]", "[a", "a/b", "u@a", "a%20b", "\ud800", "a\n"]
)
def test_what_is_no_host_name(text):
    assert not is_host_name(text)


@pytest.mark.parametrize(
    ("text", "others"),
    [
        ("192.0.2.33", set()),
        ("2001:db8::1", set()),
        ("::1", set()),
        ("::ffff:129.144.52.38", {"129.144.52.38"}),  # RFC 4291, section 2.2
        ("::ffff:8190:3426", {"129.144.52.38"}),
        ("::13.1.68.3", {"13.1.68.3"}),  # RFC 4291, section 2.2
        ("::ffff:0:192.0.2.33", {"192.0.2.33"}),  # RFC 2765, section 2.1
        ("64:ff9b::192.0.2.33", {"192.0.2.33"}),  # RFC 6052, section 2.4
        ("64:ff9b:1::192.0.2.33", {"192.0.2.33"}),  # RFC 8215, section 4.1
        ("2002:c000:221::1", {"192.0.2.33"}),  # RFC 3056, section 2
        ("2001:0:4136:e378:8000:63bf:3fff:fdd2", {"192.0.2.45"}),  # RFC 4380, section 5.3.1: obscured bits
        ("fe80::5efe:192.0.2.33", {"192.0.2.33"}),  # RFC 5214, section 6.1
        ("2001:db8::200:5efe:192.0.2.33", {"192.0.2.33"}),
        ("0.0.0.0", {"127.0.0.1"}),
        ("::", {"::1"}),
        ("::ffff:0.0.0.0", {"0.0.0.0", "127.0.0.1"}),
        ("2002:7f00:1::", {"127.0.0.1"}),
    ],
)
def test_addresses_that_embed_others(text, others):
    assert set(map(str, forms_of(ipaddress.ip_address(text)))) == {str(ipaddress.ip_address(text)), *others}


def test_the_zone_is_not_part_of_a_form():
    assert forms_of(ipaddress.ip_address("fe80::1%eth0")) == {ipaddress.ip_address("fe80::1")}


@pytest.mark.parametrize(
    "text",
    ["127.0.0.1", "127.1", "0x7f.1", "0x7f000001", "2130706433", "0177.0.0.01", "::1", "\uff11\uff12\uff17.0.0.1"],
)
def test_numeric_forms_are_those_that_the_resolver_needs_no_name_server_for(text):
    (found, *_) = socket.getaddrinfo(text, None, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST)
    assert str(parse_numeric(text)) == found[4][0]


@pytest.mark.parametrize("text", ["leaf-1", "dead.beef", "0x7g", "1.2.3.4.5", "256.1.1.1", "a1", "1.example", "", "-1"])
def test_what_the_resolver_takes_for_a_name(text):
    assert parse_numeric(text) is None


def test_names_are_compared_as_the_resolver_uses_them():
    assert {canonical_name(text) for text in ("Leaf-1.Example", "leaf-1.example.", "\uff2ceaf-1.example")} == {
        "leaf-1.example"
    }
