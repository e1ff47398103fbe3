"""Kinds of jobs: which runs are compared with each other."""

import pytest

from exporter.meaning.training.job_kinds import name_of


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("llama-70b-12", "llama-70b"),
        ("llama-70b-run12", "llama-70b"),
        ("llama-70b-run-007", "llama-70b"),
        ("llama_70b.try2", "llama_70b"),
        ("llama-70b_20261129T1453", "llama-70b"),
        ("llama-70b-2026-11-29", "llama-70b"),
        ("llama-3f2504e0-4f89-11d3-9a0c-0305e82c3301", "llama"),
        ("pretrain_4711_3", "pretrain"),
        ("team/llama-70b/12", "team/llama-70b"),
        ("gpt2", "gpt2"),
        ("mixtral-8x7b", "mixtral-8x7b"),
        ("llama-v2", "llama-v2"),
        ("nightly", "nightly"),
        ("4711", ""),
        ("4711_3", ""),
        ("job-4711", ""),
        ("run12", ""),
        ("unknown", ""),
        ("", ""),
    ],
)
def test_the_kind_is_the_name_without_the_number_of_the_run(name, kind):
    assert name_of(name) == kind


def test_long_names_are_bounded():
    assert name_of("-1" * 100_000) == ""
    assert len(name_of("a" * 100_000)) == 256
