"""Whatever stands in a document, the reader gives a value or one DocumentError: never another exception."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ignite_scheduler.errors import DocumentError
from ignite_scheduler.formats import parse_answer, parse_cluster, parse_job, parse_profile, parse_timeline
from ignite_scheduler.formats.source import json_lines, parse_json, parse_yaml
from spoilt_documents import numbers, places, spoilt

EXAMPLES = Path(str(resources.files("ignite_scheduler"))) / "cli" / "examples"
GOLDEN = Path(__file__).parents[1] / "golden"
INTERVAL = {"action": "0F0", "row": 0, "start_s": 0, "end_s": 1}
TRANSFER = {"source": 0, "target": 1, "kind": "F", "microbatch": 0, "start_s": 0, "end_s": 1}
STEP = {"step": 0, "step_s": 1, "intervals": [INTERVAL], "transfers": [TRANSFER], "finishes": []}
TIMELINE = {"schema": "ignite/timeline/v1", "measured": True, "devices": [{"id": "a"}], "steps": [STEP]}

READERS: dict[str, tuple[Callable[[Any], object], Any]] = {
    "cluster": (parse_cluster, parse_yaml((EXAMPLES / "cluster.yaml").read_text(encoding="utf-8"))[0]),
    "job": (parse_job, parse_yaml((EXAMPLES / "job.yaml").read_text(encoding="utf-8"))[0]),
    "profile": (parse_profile, json.loads((EXAMPLES / "profile.json").read_text(encoding="utf-8"))),
    "plan": (parse_answer, json.loads((GOLDEN / "plan_v1.json").read_text(encoding="utf-8"))),
    "timeline": (parse_timeline, TIMELINE),
}

words = st.text(max_size=6) | st.sampled_from(["auto", "8GB", "1e999GB", "a:b", "1F0", "٣", "3 steps"])
values = st.recursive(
    st.none() | st.booleans() | numbers | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words | st.integers(), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
def test_a_spoilt_document_is_a_value_or_one_error(name: str, data: st.DataObject) -> None:
    read, document = READERS[name]
    place = data.draw(st.sampled_from(places(document)))
    try:
        read(spoilt(document, place, data.draw(values)))
    except DocumentError as error:
        message = str(error)
    else:
        return
    assert message
    assert message.isprintable()


@given(st.text() | st.text("{}[]:,-&*!|>'\"%@ \n\tab1"))
def test_any_text_is_yaml_or_one_error(text: str) -> None:
    try:
        data, lines = parse_yaml(text)
    except DocumentError:
        return
    assert () in lines
    assert set(lines) == set(places(data))


@given(st.text() | st.text('{}[]:,"ab1 \n\\'))
def test_any_text_is_json_or_one_error(text: str) -> None:
    try:
        data = parse_json(text)
    except DocumentError:
        return
    assert set(json_lines(text)[0]) == set(places(data))
