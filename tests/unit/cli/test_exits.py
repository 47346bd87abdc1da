"""One place turns outcomes into exit codes and messages."""

from __future__ import annotations

from collections.abc import Callable

import click
import pytest
from click.testing import CliRunner

from ignite_scheduler.cli import exits, root
from ignite_scheduler.errors import (
    ConflictError,
    DocumentError,
    ExternalError,
    InputError,
    InvariantError,
    NotFoundError,
    ScheduleError,
)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (InputError("expected more"), 2, "error: expected more"),
        (DocumentError("wrong", file="a.yaml", line=3, field="nodes"), 2, "error: a.yaml:3: nodes: wrong"),
        (ScheduleError("0B0 is blocked"), 2, "error: 0B0 is blocked"),
        (NotFoundError("no such job"), 2, "error: no such job"),
        (ConflictError("it runs"), 1, "error: it runs"),
        (ExternalError("disk full"), 1, "error: disk full"),
        (InvariantError("lost a device", story=("it was there",)), 70, "lost a device\nit was there"),
        (FileNotFoundError(2, "No such file or directory", "x.yaml"), 2, "No such file or directory: x.yaml"),
        (OSError("disk on fire"), 1, "error: disk on fire"),
        (ModuleNotFoundError("no torch", name="torch"), 1, "pip install 'ignite-scheduler[torch]'"),
        (ModuleNotFoundError("no such room", name="ignite_scheduler.attic"), 70, "report it"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (click.exceptions.Abort(), 130, "interrupted"),
        (ZeroDivisionError("division by zero"), 70, "report it"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_each_error_has_its_code_and_one_message(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(exits.DEBUG_VARIABLE, raising=False)

    assert exits.conclude(error) == code

    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert "Traceback" not in err


def test_an_error_that_repeats_a_document_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    assert exits.conclude(InputError(f"expected a name, found {'x' * 10**6}, in f.json")) == 2

    err = capsys.readouterr().err
    assert len(err) < exits.LONGEST + 10
    assert err.startswith("error: expected a name, found xx")
    assert err.endswith("xx, in f.json\n")


def test_the_traceback_is_shown_on_demand(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(exits.DEBUG_VARIABLE, "1")

    exits.conclude(ZeroDivisionError("division by zero"))

    assert "ZeroDivisionError" in capsys.readouterr().err


def verb(body: Callable[[click.Context], None]) -> click.Command:
    return click.command()(click.pass_context(body))


@pytest.mark.parametrize("code", [0, 3, 4])
def test_a_verb_chooses_its_exit_code(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr(root.LazyGroup, "get_command", lambda *_: verb(lambda ctx: ctx.exit(code)))

    assert CliRunner().invoke(root.ignite, ["plan"]).exit_code == code


def test_a_bug_in_a_verb_leaves_as_70(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: click.Context) -> None:
        raise AssertionError("cannot be")

    monkeypatch.setattr(root.LazyGroup, "get_command", lambda *_: verb(broken))

    result = CliRunner().invoke(root.ignite, ["plan"])

    assert result.exit_code == 70
    assert "cannot be" in result.stderr
    assert result.stdout == ""
