"""Schemas of formats of others, which check-jsonschema has built in."""

import subprocess
import sys
from pathlib import Path

import pytest


def validate(schema: str, path: Path) -> None:
    """Validate a file with one of the schemas of check-jsonschema."""
    checker = Path(sys.executable).parent / "check-jsonschema"
    if not checker.exists():
        pytest.skip("needs check-jsonschema")
    command = [checker, "--builtin-schema", schema, path]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
