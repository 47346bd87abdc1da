"""decode ∘ encode = identity for every event and command, through JSON text."""

from __future__ import annotations

import dataclasses
import json
import typing
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import formats_strategies as our
from ignite_scheduler.control.commands import Command
from ignite_scheduler.control.events import Event
from ignite_scheduler.formats.codec import coding
from ignite_scheduler.formats.journal import JOURNAL_CODEC
from ignite_scheduler.model import Device, Infeasible, Plan, QueueTerms
from ignite_scheduler.policy.candidates import Candidate

any_float = st.floats(allow_nan=False) | st.integers(-(2**53), 2**53)
KNOWN: dict[Any, st.SearchStrategy[Any]] = {
    Plan: our.plans(),
    Infeasible: our.infeasibles,
    Device: our.names.flatmap(our.devices),
    QueueTerms: our.queue_terms,
    float: any_float,
    str: st.text(max_size=8),
    int: st.integers(),
    bool: st.booleans(),
}


def of_hint(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type hint, so that a new event or field is tested without a word here."""
    if hint in KNOWN:
        return KNOWN[hint]
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return st.builds(hint, **{field.name: of_hint(hints[field.name]) for field in dataclasses.fields(hint)})
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(of_hint(arguments[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(of_hint, arguments))
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    return st.one_of(st.none() if argument is type(None) else of_hint(argument) for argument in arguments)


events = st.one_of(of_hint(kind) for kind in typing.get_args(Event))
commands = st.one_of(of_hint(kind) for kind in typing.get_args(Command))


@given(events)
def test_events(event: Event) -> None:
    text = json.dumps(JOURNAL_CODEC.encode_event(event), allow_nan=False)
    assert JOURNAL_CODEC.decode_event(json.loads(text)) == event


@given(commands)
def test_commands(command: Command) -> None:
    text = json.dumps(JOURNAL_CODEC.encode_command(command), allow_nan=False)
    assert JOURNAL_CODEC.decode_command(json.loads(text)) == command


@given(of_hint(Candidate))
def test_encoding_twice_gives_the_same_text(candidate: Candidate) -> None:
    code = coding(Candidate)
    text = json.dumps(code.encode(candidate))
    assert json.dumps(code.encode(code.decode(json.loads(text)))) == text


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(
            st.text(max_size=4) | st.sampled_from(["$tuple", "$pairs"]) | st.integers(), inner, max_size=3
        )
        | st.frozensets(st.integers() | st.text(max_size=3), max_size=3)
    ),
    max_leaves=8,
)


@given(plain)
def test_values_without_a_hint(value: Any) -> None:
    code = coding(Any)
    found = code.decode(json.loads(json.dumps(code.encode(value), allow_nan=False)))
    assert found == value
    assert type(found) is type(value)
