"""Places that verbs write to, checked before the work."""

from __future__ import annotations

import os
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
