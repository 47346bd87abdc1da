"""The model as a chain of named layers, and the parts of it that a rank holds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final

import torch
from torch import Tensor, nn

from ignite_scheduler import zoo
from ignite_scheduler.engine.recompute import recomputed
from ignite_scheduler.errors import IgniteError, InputError
from ignite_scheduler.model import Reference
from ignite_scheduler.zoo.chain import Layers
from ignite_scheduler.zoo.dropout import drawing

Tensors = tuple[Tensor, ...]

DTYPES: Final = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16}
"""Element types by the name of a precision. ``fp64`` is for checks. fp16 would need a loss scale."""


def element_type(precision: str) -> torch.dtype:
    """The element type of a precision; InputError if this engine does not train in it."""
    if precision not in DTYPES:
        raise InputError(f"the engine trains in {', '.join(DTYPES)}, found precision {precision!r}")
    return DTYPES[precision]


class LayerError(IgniteError):
    """A layer raised; names the stage, the layer and what it was given."""

    def __init__(self, message: str, *, layer: str) -> None:
        super().__init__(message)
        self.layer = layer


def describe(tensors: Iterable[Tensor]) -> str:
    """Types and shapes as text, such as ``float32[8, 3, 32, 32]``."""
    return ", ".join(f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for t in tensors) or "nothing"


def build_chain(
    reference: Reference, *, seed: int, data: Reference | None = None, dtype: torch.dtype = torch.float32
) -> nn.Sequential:
    """The whole model, initialised from ``seed`` alone, with dropout keyed by sample.

    Every rank builds the same chain and keeps its part, so weights do not depend on the split. ``data``: whose samples
    show what the model's forward takes.
    """
    return zoo.build(reference, seed=seed, data=data, dtype=dtype).to(dtype)


def layer_names(chain: nn.Module) -> tuple[str, ...]:
    """Names of the layers in order."""
    return tuple(name for name, _ in chain.named_children())


def tied_parameters(chain: nn.Module) -> tuple[tuple[str, ...], ...]:
    """Groups of parameter names that are one and the same tensor, in order of the chain."""
    names: dict[int, list[str]] = {}
    for name, parameter in chain.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return tuple(tuple(group) for group in names.values() if len(group) > 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageModule:
    """The layers of one stage, called one after the other.

    ``recompute``: segments, as (first, end) positions among its layers, whose activations are not kept in training but
    computed again in the backward.
    """

    index: int
    layers: nn.Sequential
    recompute: tuple[tuple[int, int], ...] = ()

    @property
    def first(self) -> str:
        """Name of its first layer."""
        return next(iter(self.layers._modules))

    @property
    def last(self) -> str:
        """Name of its last layer."""
        return next(reversed(self.layers._modules))

    def __call__(self, inputs: Tensors, *, seed: int, step: int, samples: Tensor) -> Tensors:
        """Pass one microbatch through the stage.

        ``samples`` are the places of its rows in the step's batch: dropout draws by them. Other random numbers that a
        layer may draw start from (seed, step, first sample, layer), so they do not depend on the split either.

        Raises
        ------
        LayerError
            A layer raised, or returned something else than a tensor or a tuple of tensors.
        """
        value: Tensor | Tensors = inputs[0] if len(inputs) == 1 else inputs
        named = list(self.layers.named_children())
        recompute = self.recompute if self.layers.training and torch.is_grad_enabled() else ()
        for first, end in _parts(len(named), recompute):
            run = partial(self._run, named[first:end], seed, step, samples)
            value = recomputed(run, value, named[first:end]) if (first, end) in recompute else run(value)
        return (value,) if isinstance(value, Tensor) else value

    def _run(
        self,
        named: Sequence[tuple[str, nn.Module]],
        seed: int,
        step: int,
        samples: Tensor,
        value: Tensor | Tensors,
    ) -> Tensor | Tensors:
        first = int(samples[0]) if len(samples) else 0
        with drawing(seed, step, samples):
            for name, layer in named:
                if self.layers.training:
                    seed_random_numbers(f"{seed}/{step}/{first}/{name}", samples.device)
                value = self._call(name, layer, value)
        return value

    def _call(self, name: str, layer: nn.Module, value: Tensor | Tensors) -> Tensor | Tensors:
        given = (value,) if isinstance(value, Tensor) else value
        try:
            result = layer(value)
        except IgniteError:
            raise
        except Exception as error:
            raise LayerError(
                f"stage {self.index}, layer {name!r}: {type(error).__name__}: {error} (the layer was given "
                f"{describe(given)})",
                layer=name,
            ) from error
        if isinstance(result, list):
            result = tuple(result)
        if not (
            isinstance(result, Tensor) or (isinstance(result, tuple) and all(isinstance(r, Tensor) for r in result))
        ):
            raise LayerError(
                f"stage {self.index}, layer {name!r}: expected a tensor or a tuple of tensors, found "
                f"{type(result).__name__}",
                layer=name,
            )
        return result


def _parts(num_layers: int, segments: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The segments and what lies between them, in order."""
    bounds = sorted({0, num_layers, *(place for segment in segments for place in segment)})
    return list(pairwise(bounds))


def seed_random_numbers(key: str, device: torch.device) -> None:
    """Let torch's random numbers in this process start from ``key``."""
    number = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little") >> 1
    torch.default_generator.manual_seed(number)
    if device.type == "cuda":
        torch.cuda.manual_seed(number)


def cut(
    chain: nn.Sequential,
    stages: Sequence[Sequence[str]],
    recompute: Sequence[tuple[tuple[int, int], ...]] | None = None,
) -> tuple[StageModule, ...]:
    """The stages that hold these layers; ``recompute`` are the segments of each, None = nowhere any.

    Raises
    ------
    InputError
        The names are not those of the chain, each once and in order.
    """
    children = dict(chain.named_children())
    expected, found = list(children), [name for names in stages for name in names]
    if expected != found:
        place = next((i for i, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b), None)
        if place is None:
            place = min(len(expected), len(found))
        wanted = repr(expected[place]) if place < len(expected) else "no further layer"
        named = repr(found[place]) if place < len(found) else "the end"
        raise InputError(
            f"the plan does not suit the model: expected {wanted} as layer {place} (the model has {len(expected)} "
            f"layers), found {named} (the plan has {len(found)})"
        )
    return tuple(
        StageModule(
            index=index,
            layers=Layers((name, children[name]) for name in names),
            recompute=recompute[index] if recompute is not None else (),
        )
        for index, names in enumerate(stages)
    )
