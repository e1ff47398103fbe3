"""Texts that people read use the words of the field's documents, not words of this project's own."""

import ast
import io
import re
import tokenize

import pytest

from exporter.daemon.sources import metrics
from tests.helpers.paths import ROOT

HOUSE_WORDS = re.compile(
    r"\b(?:tells?|told|telling|hears?|heard|hearing|anew|said|whoever|nobody|stands?|stood)\b"
    r"|\bis no (?:number|text|file)\b|\bports are at\b",
    re.IGNORECASE,
)
"""Words for which the field has terms: report, receive, again, reset, detect, is, no one."""

MODULES = sorted((ROOT / "exporter").rglob("*.py"))
DOCUMENTS = sorted(
    path
    for pattern in (
        "*.md",
        "docs/**/*.md",
        "docs/*.yml",
        "alerts/*.*",
        "alerts/[!t]*/*.yml",
        "deploy/**/*",
        "dashboards/*.md",
        "benchmarks/*.md",
    )
    for path in ROOT.glob(pattern)
    if path.is_file() and "__pycache__" not in path.parts
)


def found(text: str) -> list[str]:
    return [match[0] for match in HOUSE_WORDS.finditer(text)]


def texts_of(source: str) -> list[tuple[int, str]]:
    """List the texts of a module with their lines: comments, docstrings, log lines, errors and help texts."""
    comments = [
        (token.start[0], token.string)
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    ]
    strings = [
        (node.lineno, node.value)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return comments + strings


def test_help_texts_use_the_words_of_the_field():
    every = metrics()
    assert len(every) > 300
    assert {one.name: words for one in every if (words := found(one.help))} == {}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_use_the_words_of_the_field(path):
    lines = enumerate(path.read_text().splitlines(), start=1)
    assert [f"{path.name}:{number}: {words}" for number, line in lines if (words := found(line))] == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_comments_docstrings_log_lines_and_errors_use_the_words_of_the_field(path):
    assert [f"{path.name}:{line}: {words}" for line, text in texts_of(path.read_text()) if (words := found(text))] == []


def test_house_words_are_seen():
    assert found("Replies that told this sender. It stands still; nobody is heard.") == [
        "told",
        "stands",
        "nobody",
        "heard",
    ]
    assert texts_of('"""Tell."""\nx = 1  # told\n') == [(2, "# told"), (1, "Tell.")]
    assert not found("understands a standalone answer")
