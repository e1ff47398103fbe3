"""A YAML document: limits that apply while it is read, and the error of what YAML allows and no configuration needs."""

import tracemalloc

import msgspec
import pytest

from exporter.config import yaml_loader, yaml_reader
from exporter.config.errors import ConfigError


class Document(msgspec.Struct, frozen=True):
    host: str | None = None
    sources: dict[str, int] = {}


def failed(raw: bytes) -> str:
    with pytest.raises(ConfigError) as caught:
        yaml_reader.parse(raw, "c.yml", Document)
    return str(caught.value)


def peak(raw: bytes) -> int:
    """Return the peak memory of an error, in bytes."""
    tracemalloc.start()
    try:
        failed(raw)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["x: [{}]", "x: {{{}}}", "{}"])
def test_values_beyond_the_limit_are_not_composed(monkeypatch, kind):
    """The rest of such a file costs the memory of its text, not that of nodes, which is a hundred times as much."""
    monkeypatch.setattr(yaml_loader, "MAX_VALUES", 500)
    item = "- a\n" if kind == "{}" else "a,"
    small, large = (kind.format(item * count).encode() for count in (1_000, 10_000))
    assert failed(large) == "c.yml: has more than 500 values; split it, or name the right file"
    failed(small)  # what is made once, such as compiled expressions, is not part of the peaks
    assert peak(large) - peak(small) < 10 * (len(large) - len(small))


def test_a_document_may_have_as_many_values_as_the_limit(monkeypatch):
    monkeypatch.setattr(yaml_loader, "MAX_VALUES", 5)
    assert yaml_reader.parse(b"host: a\nsources: {}", "c.yml", Document) == Document(host="a")
    assert "more than 5 values" in failed(b"host: a\nsources: {b: 1}")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("!!timestamp x", "timestamp"),
        ('!!timestamp "2001-01-01 00:00:00 +99:99"', "timestamp"),
        ("2024-13-45", "timestamp"),
        ("!!bool maybe", "bool"),
        ('!!int ""', "int"),
        ("!!int hunter2", "int"),
        ('!!float ""', "float"),
    ],
)
def test_a_value_that_does_not_match_its_tag(text, kind):
    expected = f"is not valid YAML: the value is not a valid {kind}; check indentation and quotes"
    assert failed(f"\nhost: {text}".encode()) == f"c.yml:2:7: {expected}"
    assert failed(f"? {text}\n: 1".encode()) == f"c.yml:1:3: {expected}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("!!int [a]", "expected a scalar node, but found sequence"),
        ('!!int {=: "9999999999999999999999"}', "expected a scalar node, but found mapping"),
        ("!!map [a]", "expected a mapping node, but found sequence"),
        ("!!map a", "expected a mapping node, but found scalar"),
        ("!!seq {a: 1}", "expected a sequence node, but found mapping"),
    ],
)
def test_a_tag_of_another_kind_of_node(text, problem):
    assert failed(f"\nhost: {text}".encode()).startswith(f"c.yml:2:7: is not valid YAML: {problem}; ")


@pytest.mark.parametrize(
    ("escape", "character"),
    [
        (r"\uD800", "U+D800"),
        (r"\uDFFF", "U+DFFF"),
        (r"\uD83D\uDE00", "U+D83D"),
        (r"\0", "U+0000"),
        (r"a\x00", "U+0000"),
    ],
)
@pytest.mark.parametrize("form", ['\nhost: "{}"', '\n"{}": 1', '\nsources: {{"{}": 1}}', '\nsources: {{a: ["{}"]}}'])
def test_a_character_that_only_an_escape_can_write(escape, character, form):
    """Half of a character cannot be encoded, and a path or a host name that contains NUL cannot be used."""
    error = failed(form.format(escape).encode())
    assert error == (
        f"c.yml:2: the character {character} is not allowed; "
        "write a character itself in place of its escape, or remove it"
    )


@pytest.mark.parametrize("escape", [r"\U00110000", r"\UFFFFFFFF"])
def test_an_escape_beyond_unicode(escape):
    error = failed(f'\nhost: "{escape}"'.encode())
    assert error == "c.yml:2: is not valid YAML: an escape is not a character; remove it"


def test_a_character_outside_the_basic_plane():
    for text in ('host: "\\U0001F600"', "host: 😀"):
        assert yaml_reader.parse(text.encode(), "c.yml", Document) == Document(host="😀")
