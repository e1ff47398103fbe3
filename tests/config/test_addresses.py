"""Host names in texts, as the resolver accepts them (RFC 1035, section 2.3.4: labels of 1 to 63 characters)."""

import pytest

from exporter.config.addresses import is_host_name


@pytest.mark.parametrize("text", ["localhost", "leaf-01.example.com", "leaf_01", "192.0.2.1", "a" * 63, "köln.example"])
def test_host_names(text):
    assert is_host_name(text)


@pytest.mark.parametrize(
    "text", ["", "a..b", ".a", "a" * 64, "a b", "a:1", "[::1]", "[a", "a/b", "u@a", "a%20b", "\ud800", "a\n"]
)
def test_what_is_no_host_name(text):
    assert not is_host_name(text)
