"""Text → plain data with lines: YAML 1.2 numbers, JSON, and everything that must be refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ignite_scheduler.errors import DocumentError, NotFoundError
from ignite_scheduler.formats import load_cluster, source
from ignite_scheduler.formats.source import (
    MAX_YAML_BYTES,
    Place,
    dotted,
    json_lines,
    parse_json,
    parse_yaml,
    read_source,
)


def refused(text: str) -> DocumentError:
    with pytest.raises(DocumentError) as caught:
        parse_yaml(text, "f.yaml")
    return caught.value


def test_scalars_are_those_of_yaml_1_2() -> None:
    text = (
        "a: 3e-4\nb: 1_000\nc: 0o17\nd: 0x1F\ne: yes\nf: true\ng: ~\nh: 12:30:45\ni: 2026-01-01\nj: '7'\nk: -5\nl: 1e3"
    )
    data, _ = parse_yaml(text)
    assert data == {
        "a": 0.0003, "b": 1000, "c": 15, "d": 31, "e": "yes", "f": True, "g": None,
        "h": "12:30:45", "i": "2026-01-01", "j": "7", "k": -5, "l": 1000.0,
    }  # fmt: skip
    assert isinstance(data["l"], float)


def test_every_value_has_its_line() -> None:
    _, lines = parse_yaml("a:\n  - x: 1\n    y: 2\n  - z\nb: {c: 3}\n")
    assert lines[("a",)] == 1
    assert lines[("a", 0, "y")] == 3
    assert lines[("a", 1)] == 4
    assert lines[("b", "c")] == 5


def test_lines_of_json_are_those_of_the_keys() -> None:
    text = '{"a": [1,\n  {"b": "x,}]\\"",\n   "c": [[], 2]}],\n "d": {}}'
    lines, repeated = json_lines(text)
    assert repeated is None
    assert lines[("a", 1, "b")] == 2
    assert lines[("a", 1, "c")] == 3
    assert lines[("a", 1, "c", 1)] == 3
    assert lines[("d",)] == 4


@pytest.mark.parametrize("value", [{}, [], [[]], {"a": {"b": [{"c": 1}, 2, "x"]}}, "text", 3, None])
@pytest.mark.parametrize("indent", [None, 1])
def test_json_lines_knows_every_place(value: object, indent: int | None) -> None:
    lines, repeated = json_lines(json.dumps(value, indent=indent))
    assert repeated is None
    assert set(lines) == set(places(value))


def places(value: object, place: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place] + [found for key, part in inner for found in places(part, (*place, key))]


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("a: 1\na: 2", 2, "given twice"),
        ("a: [1, 2", 1, "broken YAML"),
        ("a: 1\n b: 2", 2, "broken YAML"),
        ("a: *b", 1, "undefined alias"),
        ("a: 1\n---\nb: 2", 2, "single document"),
        ("? [a]\n: 1", 1, "a key must be"),
        ("a: !!python/object/apply:os.system ['true']", 1, "not allowed"),
        ("a: !mine 3", 1, "not allowed"),
        ("a: !!int x", 1, "not a int"),
        ("a: !!bool x", 1, "not a bool"),
    ],
)
def test_broken_yaml_has_its_line(text: str, line: int, said: str) -> None:
    error = refused(text)
    assert error.line == line
    assert said in str(error)
    assert str(error).startswith("f.yaml:")


def test_an_alias_may_be_used() -> None:
    assert parse_yaml("a: &x [1]\nb: *x")[0] == {"a": [1], "b": [1]}


def test_an_alias_bomb_is_refused() -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    for level in range(1, 12):
        bomb += f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n"
    assert "aliases" in str(refused(bomb))


@pytest.mark.parametrize("text", ["a: &a [*a]", "a: &a {b: *a}"])
def test_an_endless_document_is_refused(text: str) -> None:
    assert "endless" in str(refused(text))


def test_deep_nesting_is_refused() -> None:
    assert "nested too deeply" in str(refused("[" * 5_000)) or "broken" in str(refused("[" * 5_000))
    with pytest.raises(DocumentError, match="nested too deeply"):
        parse_json("[" * 200_000)


def test_repeated_keys_of_json_have_line_and_field() -> None:
    with pytest.raises(DocumentError) as caught:
        parse_json('{"a": 1,\n "b": {"c": 1,\n "c": 2}}', "f.json")
    assert (caught.value.line, caught.value.field) == (3, "b.c")


def test_broken_json_has_its_line() -> None:
    with pytest.raises(DocumentError, match=r"f.json:2: broken JSON"):
        parse_json('{"a": 1,\n b}', "f.json")


def test_lines_are_sought_once_for_all_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def counted(text: str) -> tuple[dict[Place, int], tuple[Place, int] | None]:
        calls.append(text)
        return json_lines(text)

    monkeypatch.setattr(source, "json_lines", counted)
    found = source.Source(data=[1, 2], json_text="[1,\n2]")
    assert [found.error((index,), "wrong").line for index in (0, 1, 1)] == [1, 2, 2]
    assert len(calls) == 1


def test_long_texts_have_lines_too() -> None:
    long = "x" * 10**6
    assert json_lines(f'{{"a": "{long}",\n"{long}": 1}}')[0] == {(): 1, ("a",): 1, (long,): 2}


def test_what_does_not_tell_its_size_is_not_read_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MAX_JSON_BYTES", 2**20)
    with pytest.raises(DocumentError, match="larger than the 1 MiB"):
        read_source("/dev/zero")


def test_half_of_a_character_is_refused() -> None:
    with pytest.raises(DocumentError, match=r"f.json:2: broken JSON: half of a character"):
        parse_json('{"a": 1,\n "\\ud83d": "b"}', "f.json")
    assert parse_json(r'{"a": "\ud83d\ude80"}') == {"a": "\U0001f680"}, "both halves are one character"
    assert "half of a character" in str(refused(r'a: "\ud83d"'))


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"nothing\.yaml"):
        read_source(tmp_path / "nothing.yaml")


@pytest.mark.parametrize("content", [b"", b"  \n\n", b"# only a comment\n", b"\xff\xfe\x00a"])
def test_a_file_without_a_document_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(content)
    with pytest.raises(DocumentError, match=r"f\.yaml"):
        read_source(path)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="found a folder"):
        read_source(tmp_path)


def test_a_huge_yaml_file_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text("a: " + "x" * (MAX_YAML_BYTES + 1))
    with pytest.raises(DocumentError, match="as JSON"):
        read_source(path)


def test_json_may_stand_in_a_yaml_file(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text('{\n\t"a": [1, 2.5e3],\n\t"b": null}')
    source = read_source(path)
    assert source.data == {"a": [1, 2500.0], "b": None}
    assert source.line(("b",)) == 3


def test_a_place_as_text() -> None:
    assert dotted(("nodes", 0, "devices", 1, "memory")) == "nodes[0].devices[1].memory"
    assert dotted((3, "a")) == "[3].a"
    assert dotted(("a", "b\nc")) == "a.'b\\nc'"


@pytest.mark.parametrize("key", ["~", "1.5", "true", "'a\\nb'", '"a\\nb"'])
def test_an_odd_key_is_told_on_one_line(tmp_path: Path, key: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(f"version: 1\nname: c\n{key}: 1\nnodes: []\n")
    with pytest.raises(DocumentError, match="unknown key") as caught:
        load_cluster(path)
    assert caught.value.line == 3
    assert str(caught.value).isprintable()
