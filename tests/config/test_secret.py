"""Secrets: where they are read from, and that errors name the place, never the content."""

import os

import pytest

from exporter.config.secret import (
    MAX_SIZE,
    SecretError,
    check_exactly_one,
    read_secret,
)


@pytest.mark.parametrize("given", [(None, None, None), ("a", "b", None), ("a", None, "c"), ("a", "b", "c")])
def test_none_or_several_ways_are_rejected(given):
    with pytest.raises(ValueError, match="give exactly one of community, community_file and community_env"):
        check_exactly_one("community", *given)


@pytest.mark.parametrize("given", [("", None, None), (None, "b", None), (None, None, "c")])
def test_one_way_is_accepted(given):
    check_exactly_one("community", *given)


def test_inline():
    assert read_secret("public", None, None) == "public"
    assert read_secret(" blanks\n", None, None) == " blanks\n"


@pytest.mark.parametrize(
    ("content", "secret"),
    [
        ("public", "public"),
        ("public\n", "public"),
        ("public\r\n\n", "public"),
        (" with blanks \n", " with blanks "),
        ("pässwörd\n", "pässwörd"),
        ("two\nlines\n", "two\nlines"),
        ("x" * MAX_SIZE, "x" * MAX_SIZE),
    ],
)
def test_a_file_is_read_without_its_line_end(tmp_path, content, secret):
    file = tmp_path / "secret"
    file.write_bytes(content.encode())
    assert read_secret(None, str(file), None) == secret
    link = tmp_path / "link"
    link.symlink_to(file)  # as Kubernetes mounts them
    assert read_secret(None, str(link), None) == secret


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "the secret cannot be read: No such file or directory"),
        (b"", "the secret is empty or not set"),
        (b"\n\n", "the secret is empty or not set"),
        (b"hidden\xff", "the secret cannot be read: it is not valid UTF-8"),
        (b"hidden" * 20_000, "the secret cannot be read: it is larger than 65536 bytes"),
    ],
)
def test_errors_name_the_file_and_not_its_content(tmp_path, content, reason):
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SecretError) as caught:
        read_secret(None, str(file), None)
    assert str(caught.value) == f"{file}: {reason}"
    assert caught.value.__cause__ is None


def test_pipes_devices_folders_and_invalid_paths_are_rejected(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (str(pipe), "/dev/zero"):
        with pytest.raises(SecretError, match=f"{path}: the secret cannot be read: it is not a regular file"):
            read_secret(None, path, None)
    with pytest.raises(SecretError, match="the secret cannot be read: "):
        read_secret(None, str(tmp_path), None)
    with pytest.raises(SecretError, match="the secret cannot be read: the name contains a NUL"):
        read_secret(None, "a\0b", None)


def test_environment_variable(monkeypatch):
    monkeypatch.setenv("FABRIC_TEST_SECRET", "from there")
    assert read_secret(None, None, "FABRIC_TEST_SECRET") == "from there"
    for value in ("", None):
        if value is None:
            monkeypatch.delenv("FABRIC_TEST_SECRET")
        else:
            monkeypatch.setenv("FABRIC_TEST_SECRET", value)
        with pytest.raises(SecretError, match="environment variable FABRIC_TEST_SECRET: the secret is empty or not"):
            read_secret(None, None, "FABRIC_TEST_SECRET")


def test_the_error_of_a_relative_path_has_the_absolute_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SecretError, match=f"^{tmp_path}/none: the secret cannot be read: No such file"):
        read_secret(None, "none", None)
