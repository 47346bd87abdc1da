"""Writing whole files: what a reader sees is the old text or the new one, never a part, even after a crash."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, Final

from ignite_scheduler.errors import ExternalError


def write_text(path: str | Path, text: str) -> None:
    """Put ``text`` at ``path``: a temporary file beside it, flushed to the disk, then renamed over it.

    A link is followed. What is no regular file (a pipe, ``/dev/stdout``) is written to as it is, never replaced.

    Raises
    ------
    ExternalError
        The place cannot be written, or the disk is full; what was there before is untouched.
    """
    path = Path(path)
    try:
        if _is_stream(path):
            path.write_bytes(text.encode())
        else:
            _replace(Path(os.path.realpath(path)), text.encode())
    except OSError as error:
        raise ExternalError(f"cannot write {str(path)!r}: {error.strerror or error}") from error


def _is_stream(path: Path) -> bool:
    """Whether a file may not be put in the place of ``path``: what a link below ``/dev`` leads to is open already."""
    return path.exists() and (not path.is_file() or (path.is_symlink() and Path("/dev") in path.absolute().parents))


def _replace(path: Path, content: bytes) -> None:
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)  # mkstemp's own mode is for its maker alone
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _umask() -> int:
    mask = os.umask(0o022)  # the only way to ask for it
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable (POSIX; elsewhere a folder cannot be opened, and need not be)."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def json_text(document: Mapping[str, Any] | Sequence[Any]) -> str:
    """A document as JSON text; a number that is not finite is a ValueError, since JSON has none."""
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def digest(document: Mapping[str, Any]) -> str:
    """Hexadecimal digits that are the same for equal documents, whatever the order of their keys."""
    import hashlib

    text = json.dumps(document, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


_PLAIN: Final = re.compile(r"[A-Za-z0-9_/.][A-Za-z0-9_/.+-]*( [A-Za-z0-9_/.+-]+)*")
"""Text that may stand without quotes in any place (if it does not look like a number or another word of YAML)."""


def yaml_text(document: Mapping[str, Any]) -> str:
    """A document as YAML text that reads back the same."""
    from ruamel.yaml import YAML
    from ruamel.yaml.representer import SafeRepresenter

    class Quoting(SafeRepresenter):
        """Quotes all but the plainest text: ``[?a]``, which the library writes for a list, reads back as a mapping."""

    def represent(writer: SafeRepresenter, text: str) -> Any:
        style = None if _PLAIN.fullmatch(text) else '"'
        return writer.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Quoting.add_representer(str, represent)
    yaml: Any = YAML(typ="safe", pure=True)
    yaml.Representer = Quoting
    yaml.default_flow_style = None  # short lists and mappings on one line
    yaml.sort_base_mapping_type_on_output = False
    yaml.width = 120
    out = StringIO()
    yaml.dump(json.loads(json.dumps(document)), out)
    return out.getvalue()


def write_json(path: str | Path, document: Mapping[str, Any] | Sequence[Any]) -> None:
    """Write a document as JSON, whole or not at all."""
    write_text(path, json_text(document))


def write_yaml(path: str | Path, document: Mapping[str, Any]) -> None:
    """Write a document as YAML, whole or not at all."""
    write_text(path, yaml_text(document))
