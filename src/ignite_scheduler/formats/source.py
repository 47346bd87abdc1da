"""Text of a document → plain data, and for every key the line on which it stands.

YAML is composed to nodes (which know their lines) and turned into plain data here, rather than constructed by the
library: no tag can build an object, an alias cannot blow up, and ``3e-4`` is a number (YAML 1.2). JSON takes the fast
parser of the standard library; only when something is wrong is the text scanned again for the lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from ignite_scheduler.errors import DocumentError, NotFoundError

Place = tuple[str | int, ...]
"""Keys and indices from the top of a document down to a value."""

MAX_YAML_BYTES: Final = 4 * 2**20
"""A hand-written document is smaller; larger data (profiles) comes as JSON."""
MAX_JSON_BYTES: Final = 512 * 2**20
MAX_YAML_VALUES: Final = 200_000
"""Values after all aliases are expanded: stops an alias bomb."""
MAX_DEPTH: Final = 60


@dataclass(frozen=True, kw_only=True)
class Source:
    """A document as plain data, with what is needed to say where something stands.

    ``file`` is the path as the user gave it (None for data that never was a file), ``folder`` is what relative paths in
    the document relate to. ``first_line`` is the line of the text's start within ``file`` (one of a JSON-lines file).
    """

    data: Any
    file: str | None = None
    folder: Path = field(default_factory=Path)
    lines: Mapping[Place, int] | None = None
    json_text: str | None = None
    first_line: int = 1

    def line(self, place: Place) -> int | None:
        """The line of a value, or of the nearest thing around it that has a line."""
        lines = self._all_lines
        if lines is None:
            return None
        for end in range(len(place), -1, -1):
            if place[:end] in lines:
                return lines[place[:end]] + self.first_line - 1
        return None

    @cached_property
    def _all_lines(self) -> Mapping[Place, int] | None:
        """Lines of all places, sought once however many problems there are to place."""
        return json_lines(self.json_text)[0] if self.lines is None and self.json_text is not None else self.lines

    def error(self, place: Place, message: str) -> DocumentError:
        """The error to raise about the value at ``place``."""
        return DocumentError(message, file=self.file, line=self.line(place), field=dotted(place) or None)


def dotted(place: Place) -> str:
    """A place as text.

    >>> dotted(("nodes", 0, "devices", 1, "memory"))
    'nodes[0].devices[1].memory'
    """
    text = ""
    for part in place:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = str(part)  # a key of YAML may be any scalar
            shown = name if name.isprintable() else repr(name)
            text += f".{shown}" if text else shown
    return text


def read_source(path: str | Path) -> Source:
    """The document at ``path``, JSON or YAML.

    Raises
    ------
    NotFoundError
        There is no such file.
    DocumentError
        It cannot be read, is too large, is not UTF-8, or is neither good JSON nor good YAML.
    """
    path, file = Path(path), str(path)
    text = read_text(path)
    folder = path.resolve().parent
    if not text.strip():
        raise DocumentError("the file is empty", file=file)
    if path.suffix.lower() in (".json", ".jsonl"):
        return Source(data=parse_json(text, file), file=file, folder=folder, json_text=text)
    if text.lstrip().startswith("{"):  # JSON under another name; a flow mapping of YAML goes on below
        try:
            return Source(data=parse_json(text, file), file=file, folder=folder, json_text=text)
        except DocumentError:
            pass
    if len(text) > MAX_YAML_BYTES:
        raise DocumentError(
            f"a YAML document has at most {MAX_YAML_BYTES // 2**20} MiB, found {len(text) / 2**20:.0f} MiB; "
            "write large documents as JSON (name it .json)",
            file=file,
        )
    data, lines = parse_yaml(text, file)
    return Source(data=data, file=file, folder=folder, lines=lines)


def read_text(path: Path) -> str:
    """The text of a file, with the errors of :func:`read_source`."""
    file = str(path)
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_JSON_BYTES + 1)  # a device or a pipe does not tell its size
        if len(content) > MAX_JSON_BYTES:
            raise DocumentError(f"the file is larger than the {MAX_JSON_BYTES // 2**20} MiB that are read", file=file)
        return content.decode("utf-8-sig")
    except FileNotFoundError:
        raise NotFoundError(f"no file {file!r}; check the path (it is relative to {str(Path.cwd())!r})") from None
    except IsADirectoryError:
        raise DocumentError("expected a file, found a folder", file=file) from None
    except OSError as error:
        raise DocumentError(f"the file cannot be read: {error.strerror}", file=file) from error
    except UnicodeDecodeError as error:
        raise DocumentError(
            f"expected UTF-8 text, found the byte 0x{error.object[error.start]:02x}", file=file
        ) from error


# --- JSON -----------------------------------------------------------------------------------------------------------


class _RepeatedKeyError(Exception):
    pass


def parse_json(text: str, file: str | None = None, *, first_line: int = 1) -> Any:
    """Plain data of a JSON text; a key given twice is refused."""
    try:
        data = json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        line = error.lineno + first_line - 1
        raise DocumentError(f"broken JSON: {error.msg} (column {error.colno})", file=file, line=line) from None
    except _RepeatedKeyError:
        place, line = json_lines(text)[1] or ((), 1)
        raise DocumentError(
            f"the key {place[-1]!r} is given twice; keep one",
            file=file,
            line=line + first_line - 1,
            field=dotted(place),
        ) from None
    except RecursionError:
        raise DocumentError("the document is nested too deeply", file=file) from None
    except ValueError:
        raise DocumentError("broken JSON: a whole number of thousands of digits", file=file) from None
    half = _HALF.search(text)
    if half is not None and _has_half(data):
        line = text.count("\n", 0, half.start()) + first_line
        raise DocumentError(f"broken JSON: {_HALF_SAID}", file=file, line=line)
    return data


_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")
_HALF_SAID: Final = "half of a character (one surrogate without the other) stands in a text"


def _has_half(data: Any) -> bool:
    """Whether a text in plain data has a code point that no UTF-8 can hold: JSON's escapes can spell one."""
    todo = [data]
    while todo:
        value = todo.pop()
        if isinstance(value, str) and not value.isascii() and any("\ud800" <= sign <= "\udfff" for sign in value):
            return True
        if isinstance(value, dict):
            todo += [*value, *value.values()]
        elif isinstance(value, list):
            todo += value
    return False


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _RepeatedKeyError
    return found


_TOKEN: Final = re.compile(r'\s*("(?:[^"\\]++|\\.)*+"|[{}\[\],:]|[^\s{}\[\],:"]+)')


def json_lines(text: str) -> tuple[dict[Place, int], tuple[Place, int] | None]:
    """(line of every value of a well-formed JSON text, the first key given twice and its line).

    Notes
    -----
    O(characters); called only when an error has to be placed.
    """
    lines: dict[Place, int] = {(): 1}
    repeated: tuple[Place, int] | None = None
    place: list[str | int] = []  # of the value that comes next
    expects_key: list[bool] = []  # per open bracket; a list never does
    line, seen = 1, 0
    for match in _TOKEN.finditer(text):
        token, start = match.group(1), match.start(1)
        line, seen = line + text.count("\n", seen, start), start
        if token in "{[":
            lines.setdefault(tuple(place), line)
            expects_key.append(token == "{")
            place.append("" if token == "{" else 0)
        elif token in "}]":
            place.pop()
            expects_key.pop()
        elif token == ",":
            last = place[-1]
            if isinstance(last, int):
                place[-1] = last + 1
            else:
                expects_key[-1] = True
        elif token == ":":
            continue
        elif expects_key and expects_key[-1]:
            place[-1], expects_key[-1] = token[1:-1] if "\\" not in token else str(json.loads(token)), False
            if tuple(place) in lines and repeated is None:
                repeated = tuple(place), line
            lines[tuple(place)] = line
        else:
            lines.setdefault(tuple(place), line)
    return lines, repeated


# --- YAML -----------------------------------------------------------------------------------------------------------

_TAG: Final = "tag:yaml.org,2002:"


def parse_yaml(text: str, file: str | None = None) -> tuple[Any, dict[Place, int]]:
    """(plain data of a YAML 1.2 text, line of every value)."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        node: Any = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = " ".join(str(part) for part in (error.context, error.problem) if part)
        raise DocumentError(f"broken YAML: {problem}", file=file, line=mark.line + 1 if mark else None) from None
    except YAMLError as error:
        raise DocumentError(f"broken YAML: {str(error).splitlines()[0]}", file=file) from None
    except RecursionError:
        raise DocumentError("the document is nested too deeply", file=file) from None
    except ValueError as error:  # a character reference or a version that cannot be read
        raise DocumentError(f"broken YAML: {error}", file=file) from None
    if node is None:
        raise DocumentError("the file holds no document", file=file)
    reading = _YamlReading(file=file)
    data = reading.value(node, ())
    return data, reading.lines


@dataclass(kw_only=True)
class _YamlReading:
    file: str | None
    lines: dict[Place, int] = field(default_factory=dict)
    num_values: int = 0

    def value(self, node: Any, place: Place) -> Any:
        self.num_values += 1
        if self.num_values > MAX_YAML_VALUES or len(place) > MAX_DEPTH:
            raise self.error(node, (), "aliases make the document too large or endless; write the values out")
        self.lines.setdefault(place, node.start_mark.line + 1)
        kind = type(node).__name__
        if kind == "MappingNode":
            self.check_tag(node, place, ("map",))
            return self.mapping(node, place)
        if kind == "SequenceNode":
            self.check_tag(node, place, ("seq",))
            return [self.value(item, (*place, index)) for index, item in enumerate(node.value)]
        return self.scalar(node, place)

    def mapping(self, node: Any, place: Place) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            if type(key_node).__name__ != "ScalarNode":
                raise self.error(key_node, place, "a key must be a word or a number, found a list or a mapping")
            key = self.scalar(key_node, place)
            inner = (*place, key)
            if key in found:
                raise self.error(key_node, inner, f"the key {key!r} is given twice; keep one")
            self.lines[inner] = key_node.start_mark.line + 1
            found[key] = self.value(value_node, inner)
        return found

    def scalar(self, node: Any, place: Place) -> Any:
        self.check_tag(node, place, ("str", "int", "float", "bool", "null", "timestamp", "merge", "value"))
        text, tag = str(node.value), str(node.tag).removeprefix(_TAG)
        if _has_half(text):
            raise self.error(node, place, f"broken YAML: {_HALF_SAID}")
        try:
            return _SCALARS[tag](text) if tag in _SCALARS else text
        except (ValueError, KeyError):
            raise self.error(node, place, f"{text!r} is not a {tag}") from None

    def check_tag(self, node: Any, place: Place, allowed: Sequence[str]) -> None:
        tag = str(node.tag)
        if tag.removeprefix(_TAG) not in allowed:
            raise self.error(node, place, f"the tag {tag!r} is not allowed; write plain values")

    def error(self, node: Any, place: Place, message: str) -> DocumentError:
        return DocumentError(message, file=self.file, line=node.start_mark.line + 1, field=dotted(place) or None)


def _whole(text: str) -> int:
    sign, digits = (-1, text[1:]) if text[0] == "-" else (1, text.removeprefix("+"))
    digits = digits.replace("_", "")
    return sign * int(digits, 0 if digits[:2] in ("0x", "0o", "0b") else 10)


def _number(text: str) -> float:
    text = text.replace("_", "").lower()
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


_SCALARS: Final[Mapping[str, Callable[[str], Any]]] = {
    "int": _whole,
    "float": _number,
    "bool": lambda text: {"true": True, "false": False}[text.lower()],
    "null": lambda text: None,
}
