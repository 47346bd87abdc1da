"""What a run directory has saved, without reading a tensor; needs no torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from ignite_scheduler.errors import NotFoundError

SCHEMA: Final = "ignite/checkpoint/v1"
FOLDER: Final = "checkpoints"
FACTS: Final = "checkpoint.json"
LATEST: Final = "latest"


def latest(run: Path) -> Path | None:
    """The newest whole checkpoint of a run directory; None if there is none."""
    folder = run / FOLDER
    try:
        checkpoint = folder / (folder / LATEST).read_text().strip()
    except OSError:
        return None
    return checkpoint if (checkpoint / FACTS).is_file() else None


def facts(checkpoint: Path) -> dict[str, Any]:
    """What was written beside the tensors: ``step`` (steps done), ``job``, ``total_steps``, ``split``.

    Raises
    ------
    NotFoundError
        There is no whole checkpoint of ours.
    """
    try:
        found: dict[str, Any] = json.loads((checkpoint / FACTS).read_text())
    except (OSError, ValueError) as error:
        raise NotFoundError(f"expected a checkpoint at {checkpoint}, could not read its {FACTS}: {error}") from error
    if found.get("schema") != SCHEMA:
        raise NotFoundError(f"expected a checkpoint of schema {SCHEMA} at {checkpoint}, found {found.get('schema')!r}")
    return found


def saved_steps(checkpoint: Path) -> int:
    """Steps that a checkpoint holds."""
    return int(facts(checkpoint)["step"])
