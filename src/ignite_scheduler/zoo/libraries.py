"""Models of other libraries, built from plain options and never downloaded: Hugging Face transformers and timm."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Final

from torch import nn

from ignite_scheduler.errors import ExternalError, InputError
from ignite_scheduler.zoo.entries import did_you_mean

_TORCHVISION_OPERATORS: Final = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
"""Operators of torchvision's own binary that its Python part names while it is imported."""

_OF_EVERY_CONFIG: Final = frozenset({"attn_implementation"})
"""Options that every configuration of transformers takes, beside its attributes."""

_declared: list[Any] = []


def huggingface(model: str, config: Mapping[str, Any]) -> nn.Module:
    """A freshly initialised model of the ``transformers`` library.

    Parameters
    ----------
    model
        A model class, such as ``GPT2LMHeadModel``; or an ``AutoModel…`` class, where ``config`` names a ``model_type``.
    config
        Options of its configuration; what is left out has the library's default.

    Raises
    ------
    InputError
        No such class or option.
    ExternalError
        transformers is not installed.
    """
    library = _library("transformers", "hf")
    library.logging.set_verbosity_error()
    found = getattr(library, model, None) if model.isidentifier() else None
    if hasattr(found, "from_config"):
        kind = config.get("model_type", "")
        if kind not in library.CONFIG_MAPPING:
            near = did_you_mean(str(kind), library.CONFIG_MAPPING)
            raise InputError(f"{model} needs a 'model_type' in its config, such as llama; found {kind!r}{near}")
        made = _configured(library.CONFIG_MAPPING[kind], {k: v for k, v in config.items() if k != "model_type"})
        return found.from_config(made)  # type: ignore[union-attr, no-any-return]
    if not (isinstance(found, type) and issubclass(found, nn.Module)) or getattr(found, "config_class", None) is None:
        raise InputError(f"transformers has no model class {model!r}{did_you_mean(model, dir(library))}")
    return found(_configured(found.config_class, config))  # type: ignore[attr-defined]


def _configured(kind: Any, options: Mapping[str, Any]) -> Any:
    """The configuration; an option that it does not know, and would keep without a word, is refused."""
    default = kind()
    known = {*default.to_dict(), *kind.attribute_map, *_OF_EVERY_CONFIG}
    for name in options:
        if name not in known and not hasattr(default, name):
            raise InputError(f"{kind.__name__} has no option {name!r}{did_you_mean(name, known)}")
    return kind(**options)


def timm(model: str, options: Mapping[str, Any]) -> nn.Module:
    """A freshly initialised model of the ``timm`` library.

    Parameters
    ----------
    model
        Its name there, such as ``vit_tiny_patch16_224``.
    options
        Further arguments of ``timm.create_model``, such as ``num_classes``.

    Raises
    ------
    InputError
        No such model, or it does not take an option.
    ExternalError
        timm is not installed.
    """
    library = _library("timm", "timm")
    if not library.is_model(model):
        raise InputError(f"timm has no model {model!r}{did_you_mean(model, library.list_models())}")
    if options.get("pretrained"):
        raise InputError("timm models are built without pretrained weights: nothing is downloaded; drop 'pretrained'")
    try:
        return library.create_model(model, **options)  # type: ignore[no-any-return]
    except TypeError as error:
        raise InputError(f"timm model {model!r} does not take these options: {error}") from error


def _library(name: str, extra: str) -> Any:
    if find_spec(name) is None:
        raise ExternalError(f"this needs {name}, which is not installed: pip install 'ignite-scheduler[{extra}]'")
    mend_torchvision()
    return importlib.import_module(name)


def mend_torchvision() -> None:
    """Let torchvision's Python part be imported where its binary does not suit the torch that is installed.

    Registries carry one build of torchvision for each release, made for one build of torch; beside another build of the
    same torch (for CPUs only, say) its operators cannot be loaded, and importing it fails, and with it timm and
    transformers. Models need none of its operators, so they are declared without being there.
    """
    if find_spec("torchvision") is None or _declared:
        return
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
        from torch import library

        operators = library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for operator in _TORCHVISION_OPERATORS:
            operators.define(operator)  # type: ignore[no-untyped-call]
        _declared.append(operators)  # it lives as long as the process: dropped, it would take the operators with it
        importlib.import_module("torchvision")
