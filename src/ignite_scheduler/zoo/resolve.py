"""From references in documents to models, data sets and losses. torch is imported only when something is built."""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from ignite_scheduler.errors import ExternalError, IgniteError, InputError
from ignite_scheduler.model import Job, Reference
from ignite_scheduler.zoo.catalogue import DATASETS, LIBRARIES, LOSSES, MODELS
from ignite_scheduler.zoo.entries import Entry, did_you_mean

if TYPE_CHECKING:
    from torch import Tensor, dtype, nn

    Loss = Callable[[Tensor, Tensor], Tensor]


class Samples(Protocol):
    """A map-style data set: item i is (input, target)."""

    def __len__(self) -> int:
        """Number of samples."""

    def __getitem__(self, index: int, /) -> Any:
        """Input and target of one sample."""


_BUILDERS: Final = {**MODELS, **LIBRARIES}
_DOTTED: Final = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_MODULE_ATTRIBUTE: Final = re.compile(rf"({_DOTTED}):({_DOTTED})", re.ASCII)


def build(
    reference: Reference, *, seed: int | None = None, data: Reference | None = None, dtype: dtype | None = None
) -> nn.Sequential:
    """The model as a chain, freshly initialised; its dropout is keyed by sample.

    Parameters
    ----------
    reference
        ``zoo`` (a name of :data:`MODELS`) or ``module`` (``pkg.mod:build``), with ``args``.
    seed
        Seed of the fresh weights: with the same one every process builds the same model, and torch's own random state
        is left as it was. None = draw from that state.
    data
        Whose samples show what the model's forward takes. A model that is no ``nn.Sequential`` is cut along the graph
        of its forward with them; without them its children are taken for a chain.
    dtype
        Type of the elements that the chain will compute with; weights are not converted. None = float32.

    Raises
    ------
    InputError
        Unknown name or argument, a module that cannot be imported or called, or a result that is no chain and cannot
        be made one.
    ExternalError
        torch is not installed.
    """
    torch = _torch()
    if seed is None:
        return chain_of(original(reference), reference, data, dtype)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return chain_of(original(reference), reference, data, dtype)


def chain_of(module: Any, reference: Reference, data: Reference | None, dtype: dtype | None = None) -> nn.Sequential:
    """The chain that :func:`build` makes of what the reference's function returned; it has the module's own weights."""
    import torch

    from ignite_scheduler.zoo.batches import example_inputs
    from ignite_scheduler.zoo.chain import as_chain, is_chain
    from ignite_scheduler.zoo.graph import SAMPLES, graph_chain

    if data is None or not isinstance(module, torch.nn.Module) or is_chain(module):
        return as_chain(module, describe(reference))
    with torch.device("cpu"):  # whatever the model is built on
        inputs = example_inputs(dataset(data), SAMPLES)
    return graph_chain(module, inputs, describe(reference), dtype or torch.float32)


def outline(reference: Reference, *, data: Reference | None = None, dtype: dtype | None = None) -> nn.Sequential:
    """The model as a chain without its weights, where its builder lets it be made so: cheap, and enough to compare.

    Raises
    ------
    InputError, ExternalError
        As :func:`build`.
    """
    torch = _torch()
    try:
        with torch.device("meta"):
            return build(reference, seed=0, data=data, dtype=dtype)
    except InputError:  # the builder looks at the weights, which the meta device does not have; or it really fails
        return build(reference, seed=0, data=data, dtype=dtype)


def check_trainable(job: Job) -> Reference:
    """The data of a job that has all that training takes; one that can only be planned is refused.

    Raises
    ------
    InputError
        It names no model that can be built, or no data; the message says what to add.
    """
    missing, data = [], job.data
    if job.model.zoo is None and job.model.module is None:
        missing.append("its model's code (model: {zoo: NAME} or {module: 'pkg.mod:build'}, beside the profile)")
    if data is None:
        missing.append("its data (data: {dataset: 'pkg.mod:dataset'})")
    if missing or data is None:
        raise InputError(f"job {job.name!r} can be planned but not run: add {' and '.join(missing)}")
    return data


def original(reference: Reference) -> Any:
    """What the reference's function returns, before it is made a chain; InputError where memory has no room for it."""

    def make() -> Any:
        return _called(reference, _BUILDERS, "model")

    if reference.zoo is not None and reference.zoo in MODELS:
        from ignite_scheduler.zoo.room import check_room

        check_room(MODELS[reference.zoo], make)
    return make()


def load_code(reference: Reference) -> None:
    """Import what building the model will import, which is no memory of its layers; what fails, building will tell."""
    torch = _torch()
    with suppress(InputError):
        if reference.module is not None:
            _imported(reference.module, "model")
        elif reference.zoo in LIBRARIES:  # they import a model's code when it is first asked for
            with torch.device("meta"):
                original(reference)


def dataset(reference: Reference) -> Samples:
    """The map-style data set: ``len()`` samples, item i is (input, target).

    Raises
    ------
    InputError
        Unknown name or argument, or a result that has no length or no items.
    """
    _torch()
    result = _called(reference, DATASETS, "data set")
    if not hasattr(result, "__len__") or not hasattr(result, "__getitem__"):
        raise InputError(
            f"{describe(reference)} must return a map-style data set (with __len__ and __getitem__), "
            f"found {type(result).__name__}"
        )
    if len(result) < 1:
        raise InputError(f"{describe(reference)} returned a data set without samples")
    return result  # type: ignore[no-any-return]


def loss(name: str) -> Loss:
    """The loss called ``name``, or ``pkg.mod:loss``: (output, target) → sum over samples of each sample's loss."""
    _torch()
    target = name if ":" in name else _entry(name, LOSSES, "loss").target
    return _imported(target, "loss")  # type: ignore[no-any-return]


def default_data(reference: Reference) -> Reference:
    """A synthetic data set that suits a model of the zoo, for measuring it where no data is named.

    Raises
    ------
    InputError
        The model is not of the zoo, so the shape of its input is unknown.
    """
    entry = None if reference.zoo is None else _entry(reference.zoo, _BUILDERS, "model")
    if entry is None or entry.data is None:
        raise InputError(f"{describe(reference)}: name a data set too (job.yaml: data), its input is unknown otherwise")
    args = _checked(entry, reference.args)
    return Reference(zoo=entry.data.name, args={own: args[of_model] for own, of_model in entry.data.args.items()})


def default_loss(reference: Reference) -> str:
    """The loss by which a model is measured where none is named; cross-entropy for one that is not of the zoo."""
    return "cross_entropy" if reference.zoo is None else _entry(reference.zoo, _BUILDERS, "model").loss


def describe(reference: Reference) -> str:
    """The reference in a few words, for messages."""
    return f"zoo name {reference.zoo!r}" if reference.zoo is not None else f"{reference.module!r}"


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise ExternalError(
            "this needs PyTorch, which is not installed: pip install 'ignite-scheduler[torch]'"
        ) from error
    return torch


def _called(reference: Reference, entries: Mapping[str, Entry], noun: str) -> Any:
    if (reference.zoo is None) == (reference.module is None):
        found = "neither" if reference.zoo is None else "both"
        raise InputError(f"a {noun} is built from a name of the zoo or from a module 'pkg.mod:name', found {found}")
    source = describe(reference)
    if reference.zoo is not None:
        entry = _entry(reference.zoo, entries, noun)
        function, args = _imported(entry.target, noun), _checked(entry, reference.args)
    else:
        function, args = _imported(reference.module or "", noun), dict(reference.args)
    try:
        inspect.signature(function).bind(**args)
    except TypeError as error:
        raise InputError(f"{source} cannot be called with args {args}: {error}") from error
    except ValueError:  # a builtin without a signature: the call itself will tell
        pass
    try:
        return function(**args)
    except IgniteError:
        raise
    except Exception as error:  # whatever a user's function raises is told with the place
        raise InputError(f"{source}: the call raised {type(error).__name__}: {error}") from error


def _entry(name: str, entries: Mapping[str, Entry], noun: str) -> Entry:
    if name in entries:
        return entries[name]
    hint = did_you_mean(name, entries, 0.5)
    raise InputError(f"unknown {noun} {name!r}{hint} The zoo has {', '.join(entries)}; your own is 'pkg.mod:name'")


def _checked(entry: Entry, args: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments of the entry: those given, checked against the type of the default, and the defaults."""
    result = dict(entry.args)
    for name, value in args.items():
        if name not in entry.args:
            near = difflib.get_close_matches(name, entry.args, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]}? " if near else ""
            raise InputError(f"{entry.name} has no argument {name!r}; {hint}It takes {', '.join(entry.args) or 'none'}")
        result[name] = _typed(entry.name, name, value, entry.args[name])
    return result


def _typed(owner: str, name: str, value: Any, default: Any) -> Any:
    matches: bool
    if isinstance(default, bool) or isinstance(value, bool):
        matches = isinstance(default, bool) and isinstance(value, bool)
    elif isinstance(default, float):
        matches = isinstance(value, int | float)
    elif isinstance(default, tuple):
        matches = isinstance(value, list | tuple) and all(isinstance(v, int) for v in value)
        value = tuple(value) if matches else value
    else:
        matches = isinstance(value, type(default))
    if not matches:
        noun = "a list of whole numbers" if isinstance(default, tuple) else f"of type {type(default).__name__}"
        raise InputError(f"{owner}: {name} must be {noun} (default {default!r}), found {value!r}")
    return value


def _module(name: str) -> Any:
    """The module called ``name``; tried again where all that is in the way is a torchvision of another build."""
    try:
        return importlib.import_module(name)
    except Exception as error:
        causes: list[BaseException | None] = [error]
        while causes[-1] is not None:
            causes.append(causes[-1].__cause__ or causes[-1].__context__)
        if not any("torchvision::nms" in str(cause) for cause in causes):
            raise
    from ignite_scheduler.zoo.libraries import mend_torchvision

    mend_torchvision()
    return importlib.import_module(name)


def _imported(name: str, noun: str) -> Any:
    match = _MODULE_ATTRIBUTE.fullmatch(name)
    if match is None:
        raise InputError(f"a {noun} of your own is written 'pkg.mod:name', found {name!r}")
    module_name, attribute = match.groups()
    try:
        found: Any = _module(module_name)
    except Exception as error:  # importing runs a user's code, which may raise anything
        raise InputError(
            f"{noun} {name!r}: module {module_name!r} cannot be imported ({type(error).__name__}: {error}); "
            "is it installed, or its folder on PYTHONPATH?"
        ) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise InputError(f"{noun} {name!r}: {module_name!r} has no {part!r}{did_you_mean(part, dir(found))}")
        found = getattr(found, part)
    if not callable(found):
        raise InputError(f"{noun} {name!r} must be callable, found {type(found).__name__}")
    return found
