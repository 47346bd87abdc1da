"""The public surface: changing it is a decision, so it is written down here."""

from __future__ import annotations

import inspect

import pytest

import ignite_scheduler
from ignite_scheduler import errors
from ignite_scheduler.cli import ignite

PUBLIC = [
    "Calibrated",
    "ConflictError",
    "DocumentError",
    "ExternalError",
    "IgniteError",
    "InputError",
    "NotFoundError",
    "Planned",
    "Ran",
    "Simulated",
    "calibrate",
    "load_calibration",
    "load_cluster",
    "load_job",
    "load_profile",
    "pareto",
    "plan",
    "profile",
    "run",
    "simulate",
]
VERBS = [
    "init", "devices", "links", "doctor", "profile", "plan", "compare", "simulate",
    "run", "calibrate", "trace", "import", "export", "schema", "demo",
]  # fmt: skip


def test_the_public_names_are_frozen() -> None:
    assert sorted(ignite_scheduler.__all__) == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_each_public_name_is_there_and_documented(name: str) -> None:
    value = getattr(ignite_scheduler, name)

    assert value.__name__ == name
    assert inspect.getdoc(value)
    assert name in dir(ignite_scheduler)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="ignite_scheduler"):
        _ = ignite_scheduler.nothing


def test_the_errors_of_the_package_are_those_of_the_tree() -> None:
    for name in ("ConflictError", "DocumentError", "ExternalError", "IgniteError", "InputError", "NotFoundError"):
        assert getattr(ignite_scheduler, name) is getattr(errors, name)


def test_the_verbs_are_frozen() -> None:
    assert ignite.list_commands(None) == VERBS  # type: ignore[attr-defined, arg-type]


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_teaches(verb: str) -> None:
    command = ignite.get_command(None, verb)  # type: ignore[attr-defined, arg-type]

    assert command is not None
    assert command.help
    assert command.epilog
    assert "xample" in command.epilog
