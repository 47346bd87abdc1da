"""A recorded run of a model's forward: calls of its blocks, the operations between them, and the tensors that pass.

A step names tensors by number, parameters and buffers by their path, and the device by a mark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as tree

from ignite_scheduler.errors import InputError


class Ref(NamedTuple):
    """A tensor that an earlier step made, or an input of the model."""

    value: int


class State(NamedTuple):
    """A parameter or buffer of the model, by its path."""

    path: str


class Literal(NamedTuple):
    """A tensor that is neither: a number written in the model's code, a table that it keeps aside."""

    number: int


class Place(NamedTuple):
    """The device that the layer runs on."""


class DataDependentError(InputError):
    """The forward chose its way by the values of the samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A tensor of the recorded run.

    ``storage`` tells views of one memory. ``rows``: how many rows (of dimension 0) each sample has; 0 = it is not so.
    """

    shape: tuple[int, ...]
    num_bytes: int
    storage: int
    from_samples: bool
    rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing that the forward did.

    Attributes
    ----------
    target
        Path of a block (a call), an operation, or a function of torch that drops elements at random.
    flat, form
        Its arguments ``(args, kwargs)`` as leaves and their tree.
    outputs
        Value numbers of its results' leaves; None for what is no tensor.
    around
        Containers whose forward was running, outermost first, each call of one with a serial number.
    grad
        Whether gradients were on.
    inside
        The index of the call within whose block this operation took place; None for operations between blocks.
    draws
        A call whose block calls functions that drop elements at random.
    writes, changes
        Value numbers, and paths of parameters and buffers, that it changes in place.
    where
        The model's line.
    """

    target: Any
    flat: tuple[Any, ...]
    form: tree.TreeSpec
    outputs: tuple[int | None, ...]
    around: tuple[tuple[str, int], ...]
    grad: bool
    where: str
    inside: int | None = None
    draws: bool = False
    writes: tuple[int, ...] = ()
    changes: tuple[str, ...] = ()

    @property
    def is_call(self) -> bool:
        """Whether it calls a block."""
        return isinstance(self.target, str)

    def takes_size(self, leaf: int) -> bool:
        """Whether this leaf of the arguments says how large something is, and is not reckoned with."""
        tensors = (Ref, State, Literal)
        if not hasattr(self.target, "_schema") or not any(isinstance(each, tensors) for each in self.flat):
            return True
        args, kwargs = tree.tree_unflatten(list(range(len(self.flat))), self.form)
        by_name = {argument.name: argument for argument in self.target._schema.arguments}
        given = [*zip(self.target._schema.arguments, args, strict=False), *((by_name[k], v) for k, v in kwargs.items())]
        return any("int" in str(argument.type).lower() for argument, value in given if leaf in tree.tree_leaves(value))

    def __deepcopy__(self, memo: Any) -> Step:
        """Itself: it never changes, and copies of a layer do the same."""
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A run of the model on ``samples`` rows. Values 0 … ``num_inputs`` − 1 are its inputs."""

    samples: int
    num_inputs: int
    steps: tuple[Step, ...]
    values: tuple[Value, ...]
    literals: tuple[Tensor, ...]
    output: int

    @property
    def is_plain(self) -> bool:
        """Whether it suits any model of the same structure: it holds no object of the model's own."""
        plain = (bool, int, float, complex, str, bytes, type(None), tuple, torch.dtype, torch.device)
        kinds = (*plain, torch.layout, torch.memory_format)
        return not self.literals and all(isinstance(leaf, kinds) for step in self.steps for leaf in step.flat)
