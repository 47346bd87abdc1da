"""A layer of a model that was cut along its graph: runs its part of the recorded steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as tree

from ignite_scheduler.zoo.dropout import KeyedFunctions, scope, without_drops
from ignite_scheduler.zoo.recording import Literal, Place, Ref, State, Step
from ignite_scheduler.zoo.scaling import Scaled

_MODULE = "module"
"""Name of a layer's only block within the layer."""


class Part(NamedTuple):
    """A step of a layer.

    ``repeat`` tells what it draws from what others draw: for a call of a block from earlier calls of it (empty for the
    first).
    """

    step: Step
    repeat: str = ""


class Segment(nn.Module):
    """Some consecutive steps of a model.

    It is called with the values that cross the boundary before it (one tensor, or a tuple) and returns those that
    cross the one after it. Blocks, parameters and buffers are the model's own objects: what the model ties is tied.

    Parameters
    ----------
    given, returned
        Numbers of the values before and after.
    rows
        (which of ``given``, its rows for each sample): tells how many samples there are; None where nobody asks.
    modules, states
        The blocks called and the tensors read, by their paths in the model.
    literals
        Tensors that are neither, by index.

    Attributes
    ----------
    origins
        Name of a child, parameter or buffer of this layer → its path in the model.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        *,
        given: tuple[int, ...],
        returned: tuple[int, ...],
        rows: tuple[int, int] | None,
        modules: Mapping[str, nn.Module],
        states: Mapping[str, Tensor],
        literals: Mapping[int, Tensor],
    ) -> None:
        super().__init__()
        self._parts, self._given, self._returned, self._rows = tuple(parts), given, returned, rows
        self.origins: dict[str, str] = {}
        names = {path: _MODULE if len(modules) == 1 else path.replace(".", "_") for path in modules}
        for path, module in modules.items():
            self.add_module(self._named(names[path], path), module)
        for path, tensor in states.items():
            name = self._named(path.replace(".", "_"), path)
            if isinstance(tensor, nn.Parameter):
                self.register_parameter(name, tensor)
            else:
                self.register_buffer(name, tensor)
        self._literals = dict(literals)  # no buffers: a change of element type is not meant for them
        self._names = {path: name for name, path in self.origins.items()}

    def _named(self, name: str, path: str) -> str:
        while name in self.origins or hasattr(self, name):
            name += "_"
        self.origins[name] = path
        return name

    def forward(self, values: Tensor | tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
        """The values that cross the boundary after this layer."""
        parts = (values,) if isinstance(values, Tensor) else tuple(values)
        known = dict(zip(self._given, parts, strict=True))
        samples = None if self._rows is None else parts[self._rows[0]].shape[0] // self._rows[1]
        for part in self._parts:
            step = part.step
            flat = [self._decoded(leaf, known, samples, parts[0].device) for leaf in step.flat]
            args, kwargs = tree.tree_unflatten(flat, step.form)
            result = self._run(part, args, kwargs)
            for number, leaf in zip(step.outputs, tree.tree_leaves(result), strict=True):
                if number is not None:
                    known[number] = leaf
        returned = tuple(known[number] for number in self._returned)
        return returned[0] if len(returned) == 1 else returned

    def _decoded(self, leaf: Any, known: Mapping[int, Tensor], samples: int | None, device: torch.device) -> Any:
        match leaf:
            case Ref(number):
                return known[number]
            case State(path):
                return getattr(self, self._names[path])
            case Literal(index):
                self._literals[index] = self._literals[index].to(device)
                return self._literals[index]
            case Scaled():
                assert samples is not None
                return leaf.at(samples)
            case Place():
                return device
        return leaf

    def _run(self, part: Part, args: Any, kwargs: Any) -> Any:
        step = part.step
        if step.is_call:
            keyed = KeyedFunctions(step.target) if step.draws and self.training else nullcontext()
            with scope(part.repeat), keyed, torch.set_grad_enabled(step.grad and torch.is_grad_enabled()):
                return getattr(self, self._names[step.target])(*args, **kwargs)
        with torch.set_grad_enabled(step.grad and torch.is_grad_enabled()):
            if isinstance(step.target, torch._ops.OpOverload):
                return step.target(*args, **kwargs)
            if not self.training:
                return without_drops(step.target, args, kwargs)
            with scope(""), KeyedFunctions(part.repeat):
                return step.target(*args, **kwargs)


def original_names(layers: nn.Module) -> dict[str, str]:
    """Name of each parameter and buffer among layers cut along a graph → its path in the model as it was built.

    Weights saved under the latter can be loaded into the model itself.
    """
    found = {}
    for name, layer in layers.named_children():
        if not isinstance(layer, Segment):
            continue
        for inner in layer.state_dict(keep_vars=True):
            first, _, rest = inner.partition(".")
            found[f"{name}.{inner}"] = layer.origins[first] + (f".{rest}" if rest else "")
    return found
