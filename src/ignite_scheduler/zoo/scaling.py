"""From runs on a few numbers of samples to one that holds for any: which whole numbers grow with the samples.

``x.view(2, 49, 64)`` of two samples is ``x.view(3, 49, 64)`` of three. Two runs tell a and b of a number a + b·samples,
and it holds for any number of samples: products of the samples and sums of such are all that is met, with a and b not
below 0 (a square of the samples would show an a below 0). Anything else that differs would make a sample's result
depend on how many stand beside it, and is refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import torch

from ignite_scheduler.errors import InputError
from ignite_scheduler.zoo.recording import Literal, Recording, Step


class Scaled(NamedTuple):
    """The whole number ``base + slope · samples``."""

    base: int
    slope: int

    def at(self, samples: int) -> int:
        """The number for so many samples."""
        return self.base + self.slope * samples


def scaled(first: Recording, second: Recording, source: str) -> Recording:
    """The first of two runs, the second on one sample more, with numbers that grow put as :class:`Scaled`.

    Raises
    ------
    InputError
        The runs differ by more; the message has the model's line.
    """
    _check_alike(first, second, source)
    for index, (a, b) in enumerate(zip(first.literals, second.literals, strict=True)):
        if a.shape != b.shape or not torch.equal(a, b):
            raise _unlike(source, _reader_of(first, index), "reads a tensor that no operation made, and which changes")
    steps = []
    for one, other in zip(first.steps, second.steps, strict=True):
        pairs = enumerate(zip(one.flat, other.flat, strict=True))
        steps.append(replace(one, flat=tuple(_common(one, i, a, b, first.samples, source) for i, (a, b) in pairs)))
    values = (
        replace(value, rows=_rows(first.samples, value.shape, other.shape))
        for value, other in zip(first.values, second.values, strict=True)
    )
    return replace(first, steps=tuple(steps), values=tuple(values))


def _rows(samples: int, shape: tuple[int, ...], with_one_more: tuple[int, ...]) -> int:
    """Rows of dimension 0 for each sample; 0 where they are not so many times the samples."""
    if not shape:
        return 0
    rows = with_one_more[0] - shape[0]
    return rows if rows * samples == shape[0] else 0


def _check_alike(a: Recording, b: Recording, source: str) -> None:
    for one, other in zip(a.steps, b.steps, strict=False):
        if _kind(one) != _kind(other):
            raise _unlike(source, one.where, "takes another way")
    if (len(a.steps), len(a.values), len(a.literals), a.output) != (
        len(b.steps),
        len(b.values),
        len(b.literals),
        b.output,
    ):
        longest = max((a, b), key=lambda recording: len(recording.steps))
        where = longest.steps[-1].where if longest.steps else "its beginning"
        raise _unlike(source, where, "takes more steps")


def _kind(step: Step) -> tuple[Any, ...]:
    """What must not differ; but for whole numbers among the arguments."""
    return step.target, len(step.flat), step.form, step.outputs, step.around, step.grad, step.inside, step.writes


def _common(step: Step, leaf: int, a: Any, b: Any, samples: int, source: str) -> Any:
    if type(a) is int and type(b) is int:
        slope = b - a
        base = a - samples * slope
        if slope == 0:
            return a
        if slope > 0 and base >= 0 and step.takes_size(leaf):
            return Scaled(base, slope)
    elif a is b or (type(a) is type(b) and (_opaque(a) or a == b)):
        return a
    raise _unlike(source, step.where, f"uses {b} where it used {a}, which is no size that simply grows with them,")


def _opaque(leaf: Any) -> bool:
    """An object of the model's own: options of a call, which are not compared."""
    return not isinstance(leaf, bool | int | float | complex | str | bytes | tuple | None.__class__)


def _reader_of(recording: Recording, literal: int) -> str:
    return next((step.where for step in recording.steps if Literal(literal) in step.flat), "an unknown line")


def _unlike(source: str, where: str, what: str) -> InputError:
    return InputError(
        f"{source}: with another number of samples the forward {what} at {where}; each sample must be computed alike, "
        "however many stand beside it (is there chance in it, or an average over the batch?)"
    )
