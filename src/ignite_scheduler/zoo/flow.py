"""Which tensors flow where in a recorded run: what must be sent, and what each layer had better make for itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from torch import nn

from ignite_scheduler.zoo.recording import Recording, Ref, State, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What is made of a value that no weight has touched: made anew from ``roots``, or made once and sent."""

    roots: frozenset[int]
    sent: bool


class Flow:
    """The steps of a recording in two kinds.

    *Free* steps compute from samples, constants and fixed tensors alone: masks, positions, rotations. Each layer that
    reads their results runs them itself, unless what they start from is more to send than what comes out. All others
    are *bound*: they run once, in their order, and what later layers read of them is sent.

    Attributes
    ----------
    steps
        Those of the recording; a block without weights whose results are free is replaced by what it did inside.
    bound
        Indices of bound steps, in order.
    """

    def __init__(self, model: nn.Module, recording: Recording) -> None:
        self._changed = {path for step in recording.steps if step.inside is None for path in step.changes}
        self._heavy = self._changed | {path for path, _ in model.named_parameters()}
        self.values, self.num_inputs, self.output = recording.values, recording.num_inputs, recording.output
        self.steps, bound = self._sorted(recording.steps)
        self._writers: dict[int, list[int]] = defaultdict(list)
        self._first: dict[int, int] = {}
        for index, step in enumerate(self.steps):
            for number in step.outputs:
                if number is not None and number >= self.num_inputs:
                    self._first.setdefault(number, index)
            if index not in bound:
                for storage in {self.values[number].storage for number in step.writes}:
                    self._writers[storage].append(index)
        self.bound = tuple(sorted(bound))

    # -- free and bound -------------------------------------------------------------------------------------------

    def _sorted(self, steps: tuple[Step, ...]) -> tuple[list[Step], set[int]]:
        """The steps to run, and which of them are bound; a memory that a bound step writes to is bound as a whole."""
        written: set[int] = set()
        while True:
            chosen, bound, more = self._pass(steps, written)
            if more <= written:
                return chosen, bound
            written |= more

    def _pass(self, steps: tuple[Step, ...], written: set[int]) -> tuple[list[Step], set[int], set[int]]:
        chosen: list[Step] = []
        bound: set[int] = set()
        heavy: set[int] = set()  # values that bound steps made
        more: set[int] = set()
        index = 0
        while index < len(steps):
            step = steps[index]
            inner: list[Step] = []
            while index + 1 + len(inner) < len(steps) and steps[index + 1 + len(inner)].inside == index:
                inner.append(steps[index + 1 + len(inner)])
            index += 1 + len(inner)
            todo = [step]
            if step.is_call and inner and self._is_free_block(step, inner, heavy, written):
                todo = [replace(each, inside=None) for each in inner]
            for each in todo:
                if self._is_bound(each, heavy, written):
                    bound.add(len(chosen))
                    heavy.update(n for n in each.outputs if n is not None and n >= self.num_inputs)
                    more.update(self.values[number].storage for number in each.writes)
                chosen.append(each)
        return chosen, bound, more

    def _is_bound(self, step: Step, heavy: set[int], written: set[int]) -> bool:
        if step.is_call or not hasattr(step.target, "_schema"):
            return True
        return (
            any(leaf.path in self._heavy for leaf in step.flat if isinstance(leaf, State))
            or any(leaf.value in heavy for leaf in step.flat if isinstance(leaf, Ref))
            or any(self.values[n].storage in written for n in (*step.outputs, *step.writes) if n is not None)
        )

    def _is_free_block(self, call: Step, inner: list[Step], heavy: set[int], written: set[int]) -> bool:
        """Whether nothing that the block returns comes from a weight or from what a weight has touched."""
        touched: set[int] = set(heavy)
        made: set[int] = set()
        for step in inner:
            numbers = [number for number in step.outputs if number is not None]
            made.update(numbers)
            if self._is_bound(step, touched, written):
                touched.update(numbers)
        returned = {number for number in call.outputs if number is not None}
        return bool(returned) and returned <= made and not returned & touched

    # -- what a bound step needs ----------------------------------------------------------------------------------

    @cached_property
    def uses(self) -> dict[int, Use]:
        """Free values that bound steps, or the loss, read."""
        read = {leaf.value for index in self.bound for leaf in self.steps[index].flat if isinstance(leaf, Ref)}
        found = {}
        for number in sorted(read | {self.output}):
            if number >= self.num_inputs and self._first[number] not in self.bound:
                roots = self._roots(number)
                weight = sum(self.values[root].num_bytes for root in roots)
                found[number] = Use(roots=roots, sent=bool(roots) and weight > self.values[number].num_bytes)
        return found

    def _roots(self, number: int) -> frozenset[int]:
        steps = self.recipe(number, len(self.steps))
        leaves = (leaf for index in steps for leaf in self.steps[index].flat)
        return frozenset(leaf.value for leaf in leaves if isinstance(leaf, Ref) and leaf.value < self.num_inputs)

    def recipe(self, number: int, before: int) -> set[int]:
        """Indices of the free steps below ``before`` that make the value."""
        needed: set[int] = set()
        asked = [number]
        while asked:
            value = asked.pop()
            makers = [self._first[value]] if value >= self.num_inputs else []
            for index in (*makers, *self._writers[self.values[value].storage]):
                if index < before and index not in needed:
                    needed.add(index)
                    asked.extend(leaf.value for leaf in self.steps[index].flat if isinstance(leaf, Ref))
        return needed

    def needed(self, flat: Iterable[Any]) -> Iterator[int]:
        """Values that must be there for these arguments: bound ones, inputs of the model, free ones that are sent."""
        for leaf in flat:
            if isinstance(leaf, Ref):
                use = self.uses.get(leaf.value)
                if use is None or use.sent:
                    yield leaf.value
                else:
                    yield from use.roots

    # -- along the bound steps ------------------------------------------------------------------------------------

    @cached_property
    def _spans(self) -> dict[int, tuple[int, int]]:
        """Value → (place of the bound step that makes it, −1 = there from the start; place of its last reader)."""
        position = {index: place for place, index in enumerate(self.bound)}
        spans: dict[int, tuple[int, int]] = {}
        uses = [self.steps[index].flat for index in self.bound] + [(Ref(self.output),)]
        for place, flat in enumerate(uses):
            for number in self.needed(flat):
                made = position.get(self._first[number], -1) if number >= self.num_inputs else -1
                spans[number] = (made, place)
        return spans

    def live(self, place: int) -> tuple[int, ...]:
        """Values that cross the gap behind the bound step at ``place``, in order of their making."""
        return tuple(sorted(n for n, (made, last) in self._spans.items() if made <= place < last))

    def unbroken(self) -> Iterator[tuple[int, int]]:
        """Ranges (first, last) of places in which a memory is changed in place, so that no cut may lie between."""
        for path in self._changed:
            readers = [place for place, index in enumerate(self.bound) if State(path) in self.steps[index].flat]
            yield readers[0], readers[-1]
        first: dict[int, int] = {}
        for place, index in enumerate(self.bound):
            step = self.steps[index]
            for number in step.outputs:
                if number is not None:
                    first.setdefault(self.values[number].storage, place)
            for number in step.writes:
                yield first.get(self.values[number].storage, 0), place
