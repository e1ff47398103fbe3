"""The error texts of msgspec that our errors are made of: a release that words them differently fails here."""

import enum
import re
from typing import Annotated, Literal

import msgspec
import pytest

from exporter.config.errors import RuleError
from exporter.config.msgspec_errors import ErrorText, explain, parse_error_text
from tests.helpers.paths import ROOT


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Part(msgspec.Struct, forbid_unknown_fields=True):
    size: int
    name: str = ""
    speed: float | None = None
    on: bool = True

    def __post_init__(self):
        if self.size == 13:
            raise ValueError("size is 13; give another")
        if self.size == 14:
            raise RuleError(["size"], "is 14; give another")


class Whole(msgspec.Struct, forbid_unknown_fields=True):
    parts: list[Part] = []
    by_name: dict[str, Part] = {}
    colour: Colour = Colour.RED
    level: Literal["low", "high"] = "low"
    count: Annotated[int, msgspec.Meta(ge=0, le=255)] = 0
    word: Annotated[str, msgspec.Meta(pattern="^[a-z]+$")] = "a"
    pair: tuple[int, int] = (0, 0)


TEXTS = {
    "unknown_key": (
        {"parts": [{"size": 1, "sise": 2}]},
        "Object contains unknown field `sise` - at `$.parts[0]`",
        ErrorText("unknown_key", "$.parts[0]", "sise"),
        (["parts", 0, "sise"], "unknown key; did you mean 'size'?"),
    ),
    "unknown_key_at_the_top": (
        {"x": 1},
        "Object contains unknown field `x`",
        ErrorText("unknown_key", "", "x"),
        (["x"], "unknown key; known keys are parts, by_name, colour, level, count, word, pair"),
    ),
    "missing_key": (
        {"parts": [{}]},
        "Object missing required field `size` - at `$.parts[0]`",
        ErrorText("missing_key", "$.parts[0]", "size"),
        (["parts", 0], "missing key 'size'; add it"),
    ),
    "key_type": (
        {"by_name": {7: {"size": 1}}},
        "Expected `str`, got `int` - at `key` in `$.by_name`",
        ErrorText("key_type", "$.by_name", "Expected `str`, got `int`"),
        (["by_name"], "the key 7 is not a string; put it in quotes"),
    ),
    "choice_of_an_enumeration": (
        {"colour": "bleu"},
        "Invalid enum value 'bleu' - at `$.colour`",
        ErrorText("choice", "$.colour", "Invalid enum value 'bleu'"),
        (["colour"], "is 'bleu'; expected one of red, blue; did you mean 'blue'?"),
    ),
    "choice_of_literals": (
        {"level": "hihg"},
        "Invalid enum value 'hihg' - at `$.level`",
        ErrorText("choice", "$.level", "Invalid enum value 'hihg'"),
        (["level"], "is 'hihg'; expected one of low, high; did you mean 'high'?"),
    ),
    "type": (
        {"parts": [{"size": "5"}]},
        "Expected `int`, got `str` - at `$.parts[0].size`",
        ErrorText("type", "$.parts[0].size", "`int`"),
        (["parts", 0, "size"], "expected an integer, got '5'; remove the quotes"),
    ),
    "type_of_several": (
        {"parts": [{"size": 5, "speed": "fast"}]},
        "Expected `float | null`, got `str` - at `$.parts[0].speed`",
        ErrorText("type", "$.parts[0].speed", "`float | null`"),
        (["parts", 0, "speed"], "expected a number or null, got 'fast'"),
    ),
    "type_of_a_mapping": (
        {"parts": ["x"]},
        "Expected `object`, got `str` - at `$.parts[0]`",
        ErrorText("type", "$.parts[0]", "`object`"),
        (["parts", 0], "expected a mapping, got a string"),
    ),
    "type_of_a_list": (
        {"parts": {"size": 1}},
        "Expected `array`, got `object` - at `$.parts`",
        ErrorText("type", "$.parts", "`array`"),
        (["parts"], "expected a list, got a mapping"),
    ),
    "type_below_a_free_key": (
        {"by_name": {"a": {"size": 1}, "b": {"size": None}}},
        "Expected `int`, got `null` - at `$.by_name[...].size`",
        ErrorText("type", "$.by_name[...].size", "`int`"),
        (["by_name", "b", "size"], "expected an integer, got an empty value"),
    ),
    "limit": (
        {"count": 256},
        "Expected `int` <= 255 - at `$.count`",
        ErrorText("limit", "$.count", "`int` <= 255"),
        (["count"], "expected an integer <= 255, got 256"),
    ),
    "limit_of_a_string": (
        {"word": "A`b"},
        "Expected `str` matching regex '^[a-z]+$' - at `$.word`",
        ErrorText("limit", "$.word", "`str` matching regex '^[a-z]+$'"),
        (["word"], "expected a string matching regex '^[a-z]+$', got 'A`b'"),
    ),
    "limit_of_a_list": (
        {"pair": [1]},
        "Expected `array` of length 2, got 1 - at `$.pair`",
        ErrorText("limit", "$.pair", "`array` of length 2, got 1"),
        (["pair"], "expected a list of length 2, got 1"),
    ),
    "rule": (
        {"parts": [{"size": 13}]},
        "size is 13; give another - at `$.parts[0]`",
        ErrorText("rule", "$.parts[0]", "size is 13; give another"),
        (["parts", 0], "size is 13; give another"),
    ),
    "rule_with_steps": (
        {"parts": [{"size": 14}]},
        "size: is 14; give another - at `$.parts[0]`",
        ErrorText("rule", "$.parts[0]", "size: is 14; give another"),
        (["parts", 0, "size"], "is 14; give another"),
    ),
}
"""By case: a value, the text of msgspec, its parts, and what the user is shown: path and text."""


@pytest.mark.parametrize("case", TEXTS)
def test_texts_of_msgspec_and_what_is_made_of_them(case):
    value, text, parts, shown = TEXTS[case]
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.convert(value, Whole)
    assert str(raised.value) == text
    assert parse_error_text(text) == parts
    assert explain(raised.value, value, Whole) == shown


def test_no_other_module_takes_such_texts_apart():
    form = re.compile(r"- at `|Object (?:contains|missing)|unknown field|Invalid enum")
    found = [path.name for path in (ROOT / "exporter").rglob("*.py") if form.search(path.read_text())]
    assert found == ["msgspec_errors.py"]
