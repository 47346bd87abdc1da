"""Files that verbs write: checked before the work, written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ignite_scheduler.errors import InputError


def check_places(*paths: Path | None) -> None:
    """Refuse files that could not be written, before any work is done.

    Raises
    ------
    InputError
        A folder is missing, is not writable, or the path is a folder.
    """
    for path in paths:
        if path is None:
            continue
        folder = path.absolute().parent
        if not folder.is_dir():
            raise InputError(f"cannot write {path}: there is no folder {folder}")
        if path.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
            raise InputError(f"cannot write {path}: {'it is a folder' if path.is_dir() else 'no permission'}")


def write_whole(path: Path, text: str) -> None:
    """Write the file in one move, so that a reader never sees half of it."""
    handle, name = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
