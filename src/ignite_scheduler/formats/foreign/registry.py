"""The formats that can be imported, and how the right one is found: by content."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from ignite_scheduler.errors import DocumentError, InputError
from ignite_scheduler.formats.foreign import (
    graph_text,
    graph_text_export,
    partition,
    partition_export,
    pipeedge,
    piper,
    piper_export,
    sailor,
    sailor_export,
)
from ignite_scheduler.formats.foreign.common import Choices, ForeignFormat, Found, Imported
from ignite_scheduler.formats.foreign.exporting import Exported
from ignite_scheduler.formats.foreign.refused import OTHERS
from ignite_scheduler.formats.source import Source, parse_json, read_text
from ignite_scheduler.model import Profile

FORMATS: Final[Mapping[str, ForeignFormat]] = {
    one.name: one for one in (graph_text.FORMAT, piper.FORMAT, partition.FORMAT, sailor.FORMAT, pipeedge.FORMAT)
}
"""Name → format; DAPPLE's files are in PipeDream's."""
ALIASES: Final[Mapping[str, str]] = {"dapple": "pipedream"}


def import_profile(path: str | Path, *, form: str | None = None, choices: Choices | None = None) -> Imported:
    """A foreign profile in our form.

    Parameters
    ----------
    path
        A file, or a folder of a format that spreads one model over several files.
    form
        Name of the format; None = by content.
    choices
        What the file does not say.

    Raises
    ------
    NotFoundError
        There is no such file.
    DocumentError
        It is no profile (the message says what it is and what to use it for), or a broken one (file, line, key).
    InputError
        There is no such format, or a choice means nothing for this one.
    """
    found, choices = look_at(path), choices or Choices()
    chosen = _format(found) if form is None else _named(form)
    unused = choices.given() - chosen.choices
    if unused:
        shown = ", ".join(f"--{name.replace('_', '-').replace('inputs', 'input')}" for name in sorted(unused))
        raise InputError(f"{shown}: means nothing for {found.file}, which is {chosen.title}; leave it out")
    if found.source is None and not found.path.is_dir() and chosen is not graph_text.FORMAT:
        raise DocumentError(f"expected JSON in the format {chosen.name!r}, found text", file=found.file)
    if found.path.is_dir() and not chosen.recognises(found):
        raise _folder_refusal(found)
    return chosen.read(found, choices)


EXPORTERS: Final[Mapping[str, Callable[..., Exported]]] = {
    "pipedream": graph_text_export.export,
    "dapple": graph_text_export.export,
    "piper": piper_export.export,
    "dnn-partitioning": partition_export.export,
    "sailor": sailor_export.export,
}
"""Format → its writer. PipeEdge has none: it has no place for a backward pass, half of what a profile is."""


def export_profile(profile: Profile, form: str, *, kind: str | None = None, samples: int | None = None) -> Exported:
    """A profile of ours in another planner's format: the texts, and what the format has no place for.

    Raises
    ------
    InputError
        There is no such format, or the profile has no such times or cannot be written in it.
    """
    if form not in EXPORTERS:
        raise InputError(f"no format {form!r} to export to; known: {', '.join(EXPORTERS)}")
    return EXPORTERS[form](profile, kind=kind, samples=samples)


def look_at(path: str | Path) -> Found:
    """The file or folder at ``path``, its JSON parsed.

    Raises
    ------
    NotFoundError
        There is no such file.
    DocumentError
        It cannot be read, or it begins like JSON and is broken.
    """
    path = Path(path)
    if path.is_dir():
        return Found(path=path)
    text = read_text(path)
    if not text.strip():
        raise DocumentError("the file is empty", file=str(path))
    if path.suffix.lower() != ".json" and text.lstrip()[:1] not in ("{", "["):
        return Found(path=path, text=text)
    data = parse_json(text, str(path))
    source = Source(data=data, file=str(path), folder=path.resolve().parent, json_text=text)
    return Found(path=path, text=text, source=source)


def refusal(found: Found, expected: str) -> DocumentError:
    """The error that says what a file is and what to use it for; ``expected`` where we do not know it."""
    for other in OTHERS:
        if other.recognises(found):
            return DocumentError(f"this is {other.what}, not imported as a profile: {other.use}", file=found.file)
    return DocumentError(f"this is {expected}; docs/import_export.md shows what can be imported", file=found.file)


def _named(form: str) -> ForeignFormat:
    name = ALIASES.get(form, form)
    if name not in FORMATS:
        raise InputError(f"no format {form!r}; known: {', '.join([*FORMATS, *ALIASES])}")
    return FORMATS[name]


def _format(found: Found) -> ForeignFormat:
    for one in FORMATS.values():
        if one.recognises(found):
            return one
    if found.path.is_dir():
        raise _folder_refusal(found)
    raise refusal(found, f"no profile in a format that we know ({', '.join(FORMATS)})")


def _folder_refusal(found: Found) -> DocumentError:
    names = sorted(path.name for path in found.path.iterdir())
    shown = ", ".join(names[:8]) + (" …" if len(names) > 8 else "")
    return DocumentError(
        "a folder is imported where one model lies in several files (Sailor's compute/MODEL, PipeEdge's model_*.json "
        f"with device_*.json); this one holds {shown or 'nothing'}: give one of its files",
        file=found.file,
    )
