"""Chains: models as an ordered list of named layers, which is what a pipeline cuts.

A chain is an ``nn.Sequential``; each child is one layer, its name is the layer's name. Names may have dots in them, as
paths of modules have (:class:`Layers`).
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable
from itertools import zip_longest
from typing import Any

from torch import Tensor, nn

from ignite_scheduler.errors import InputError, InvariantError
from ignite_scheduler.model import Profile
from ignite_scheduler.zoo.dropout import key_dropouts

_UNKEYED_DROPOUTS = (nn.AlphaDropout, nn.FeatureAlphaDropout, nn.MultiheadAttention, nn.RNNBase)
"""Modules that draw random masks inside, where they cannot be keyed by sample."""


class Layers(nn.Sequential):
    """A sequence of layers whose names may be paths, such as ``encoder.layer.0``.

    Attributes are found along paths too, as whoever looks up a parameter by its whole name expects.
    """

    def __init__(self, named: Iterable[tuple[str, nn.Module]]) -> None:
        super().__init__()
        self._modules.update(named)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if not _begins_a_path(self, name):
                raise
            return _Path(self, name)

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, metadata: Any, strict: bool, missing: Any, unexpected: Any, errors: Any
    ) -> None:
        """Take the state of no parameter of its own; ``nn.Module`` would look for names without dots."""
        beginnings = tuple(f"{prefix}{name}." for name in self._modules)
        if strict:
            unexpected += [key for key in state_dict if key.startswith(prefix) and not key.startswith(beginnings)]


class _Path:
    """The beginning of the path of a layer."""

    def __init__(self, chain: Layers, path: str) -> None:
        self._chain, self._path = chain, path

    def __getattr__(self, name: str) -> Any:
        path = f"{self._path}.{name}"
        if path in self._chain._modules:
            return self._chain._modules[path]
        if _begins_a_path(self._chain, path):
            return _Path(self._chain, path)
        raise AttributeError(f"no layer's name begins with {path!r}")


def _begins_a_path(chain: Layers, name: str) -> bool:
    return any(layer.startswith(f"{name}.") for layer in chain.__dict__.get("_modules", ()))


def is_chain(module: nn.Module) -> bool:
    """Whether it is a list of layers by its type: nothing but its children, one after the other."""
    return type(module).forward is nn.Sequential.forward or isinstance(module, nn.ModuleList)


def layers(chain: nn.Sequential) -> tuple[tuple[str, nn.Module], ...]:
    """(name, module) of each layer, in order. Unlike ``named_children`` it keeps a module that stands twice."""
    return tuple((name, module) for name, module in chain._modules.items() if module is not None)


def as_chain(module: object, source: str) -> nn.Sequential:
    """The module as a chain of its children; dropout is replaced by the keyed one.

    Parameters
    ----------
    module
        An ``nn.Sequential`` or ``nn.ModuleList``, or a module whose forward runs its children one after the other.
    source
        Where it came from, for messages.

    Raises
    ------
    InputError
        It is no module, has no children, keeps parameters outside of them, uses one layer with parameters twice, or
        draws random masks that cannot be keyed by sample.
    """
    if not isinstance(module, nn.Module):
        raise InputError(
            f"{source} must return an nn.Sequential (its children are the layers), found {type(module).__name__}"
        )
    children = [(name, child) for name, child in module._modules.items() if child is not None]
    if not children:
        raise InputError(f"{source} returned a {type(module).__name__} without children: there is no layer to place")
    own = [name for name, _ in module.named_parameters(recurse=False)]
    own += [name for name, _ in module.named_buffers(recurse=False)]
    if own:
        raise InputError(
            f"{source}: {type(module).__name__} keeps {', '.join(own)} outside of its layers; "
            "move them into a child module, so that each belongs to one stage"
        )
    chain = Layers(_distinct(children, source))
    make_ready(chain, source)
    return chain


def make_ready(model: nn.Module, source: str) -> None:
    """Let the modules of a model suit stages: dropout keyed by sample, nothing computed in place of its input.

    What a stage receives is a leaf, which autograd lets nobody overwrite.

    Raises
    ------
    InputError
        A module draws random masks that cannot be keyed by sample.
    """
    _check_masks(model, source)
    key_dropouts(model)
    for module in model.modules():
        if getattr(module, "inplace", False):
            module.inplace = False  # type: ignore[assignment]


def _distinct(children: list[tuple[str, nn.Module]], source: str) -> list[tuple[str, nn.Module]]:
    """Children where each is an object of its own: stateless ones that stand twice are copied."""
    seen: dict[int, str] = {}
    result = []
    for name, child in children:
        first = seen.setdefault(id(child), name)
        if first != name:
            if any(True for _ in child.parameters()) or any(True for _ in child.buffers()):
                raise InputError(
                    f"{source}: layers {first!r} and {name!r} are one module; give each weights of its own"
                )
            child = copy.deepcopy(child)  # noqa: PLW2901  # the copy stands in for the second use
        result.append((name, child))
    return result


def _check_masks(model: nn.Module, source: str) -> None:
    """Refuse modules that would draw random masks which depend on how the batch is cut."""
    for path, module in model.named_modules():
        if isinstance(module, _UNKEYED_DROPOUTS) and float(getattr(module, "dropout", getattr(module, "p", 0.0))) > 0:
            raise InputError(
                f"{source}: {type(module).__name__} at {path!r} draws masks that would depend on how the batch is cut; "
                "set its dropout to 0 and put an nn.Dropout after it"
            )


def tied_layers(chain: nn.Sequential) -> tuple[tuple[str, ...], ...]:
    """Groups of layers that share a parameter, each with two names or more, in order of the chain."""
    holders: dict[int, list[str]] = {}
    for name, module in layers(chain):
        for parameter in module.parameters():
            holders.setdefault(id(parameter), []).append(name)
    return tuple(dict.fromkeys(tuple(names) for names in holders.values() if len(names) > 1))


def fingerprint(chain: nn.Sequential) -> str:
    """Text that is the same for models of the same structure: names, kinds and options of modules, shapes of weights.

    Weights' values, the type of their elements and the device do not enter, so a model on the meta device will do.
    """
    lines = [f"{name}: {module!r}" for name, module in layers(chain)]
    lines += [f"{name}: {tuple(parameter.shape)}" for name, parameter in chain.named_parameters()]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def first_difference(chain: nn.Sequential, profile: Profile) -> str | None:
    """Where the profile's layers first differ from the chain's, by name; None where they are the same in order."""
    names, profiled = [name for name, _ in layers(chain)], [layer.name for layer in profile.layers]
    for index, (name, other) in enumerate(zip_longest(names, profiled)):
        if name != other:
            of_model, of_profile = ("none" if each is None else repr(each) for each in (name, other))
            return f"layer {index} is {of_model} in the model, {of_profile} in the profile"
    return None


def is_stale(chain: nn.Sequential, profile: Profile) -> bool:
    """Whether the profile tells that it was measured on a model of other sizes or options than this chain.

    A profile without a ``structure`` in its provenance (one that was not measured here) does not tell.
    """
    structure = profile.provenance.get("structure")
    return structure is not None and structure != fingerprint(chain)


Values = Tensor | tuple[Tensor, ...]
"""What passes from layer to layer: a tensor, or several (a layer is called with the tuple as its one argument)."""


def apply_layer(name: str, module: nn.Module, inputs: Values) -> Values:
    """Output of one layer.

    Raises
    ------
    InputError
        The layer fails, or returns other than tensors; the message names it and the shape of its input.
    """
    try:
        output = module(inputs)
    except (InputError, InvariantError):
        raise
    except Exception as error:  # whatever a user's layer raises is told with the place
        reason = str(error).strip().splitlines()
        told = f"{type(error).__name__}: {reason[0] if reason else ''}"
        raise InputError(f"layer {name!r} with an input of {shapes(inputs)} fails: {told}") from error
    if isinstance(output, Tensor) or (isinstance(output, tuple) and all(isinstance(part, Tensor) for part in output)):
        return output
    raise InputError(f"layer {name!r} returns a {type(output).__name__}; expected a tensor or a tuple of tensors")


def shapes(values: Values) -> str:
    """Shapes and types as text, such as ``(8, 3, 32, 32) float32``."""
    parts = (values,) if isinstance(values, Tensor) else values
    return ", ".join(f"{tuple(part.shape)} {str(part.dtype).removeprefix('torch.')}" for part in parts)
