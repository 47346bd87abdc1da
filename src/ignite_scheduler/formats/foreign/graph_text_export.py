"""Our :class:`Profile` → the text form of PipeDream and DAPPLE."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Final

from ignite_scheduler.formats.foreign.common import exact
from ignite_scheduler.formats.foreign.exporting import Exported, losses, measured
from ignite_scheduler.formats.foreign.graph_text import NOISE
from ignite_scheduler.model import MODEL_INPUT, Profile

_EXACT: Final = Context(prec=2_200)
"""Enough digits for any product of a float and a count."""

_MILLISECONDS: Final = 3


def export(profile: Profile, *, kind: str | None = None, samples: int | None = None) -> Exported:
    """The graph, in milliseconds and bytes of one microbatch.

    Numbers are written so that they read back exactly. A layer's name becomes the node's id and description where that
    reads back as the name (its first word is the id); otherwise all nodes get new ids and the names are descriptions.

    Raises
    ------
    InputError
        There are no such times (see :func:`measured`).
    """
    chosen = measured(profile, kind, samples)
    nodes, renamed = _node_names(profile)
    sample = _free_id([own for own, _ in nodes])
    lines = [_line(sample, "Input", 0.0, 0.0, _bytes(_sample_bytes(profile), chosen.samples), "0")]
    for layer, (own, text), times in zip(profile.layers, nodes, chosen.times, strict=True):
        output, parameters = _bytes(layer.output_bytes, chosen.samples), _bytes(layer.parameter_bytes, 1)
        lines.append(_line(own, text, times.forward, times.backward, output, parameters))
    position = {layer.name: own for layer, (own, _) in zip(profile.layers, nodes, strict=True)} | {MODEL_INPUT: sample}
    for layer in profile.layers:
        lines += [f"\t{position[edge.source]} -- {position[layer.name]}" for edge in layer.inputs]
    lost = losses(profile, "sample") + (["names of layers (nodes get new ids)"] if renamed else [])
    note = (
        f"times of {chosen.kind} for {chosen.samples} samples; an import needs --samples {chosen.samples}, or a file "
        f"name with -pbs-{chosen.samples}"
    )
    return Exported(texts={"": "\n".join(lines) + "\n"}, lost=tuple(lost), notes=(note,))


def _line(own: str, text: str, forward: float, backward: float, output: str, parameters: str) -> str:
    return (
        f"{own} -- {text} -- forward_compute_time={_milliseconds(forward)}, "
        f"backward_compute_time={_milliseconds(backward)}, activation_size={output}, parameter_size={parameters}"
    )


def _milliseconds(seconds: float) -> str:
    return _plain(Decimal(repr(seconds)).scaleb(_MILLISECONDS))


def _bytes(value: float, samples: int) -> str:
    """Bytes of ``samples`` samples: short where that reads back as ``value``, otherwise every digit of the product."""
    short = _plain(Decimal(repr(value * samples)))
    if float(exact(short) / samples) == value:
        return short
    return _plain(_EXACT.multiply(Decimal(value), Decimal(samples)))


def _plain(number: Decimal) -> str:
    text = format(number, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _sample_bytes(profile: Profile) -> float:
    """Bytes of the sample: what the first layer that reads nothing else keeps."""
    alone = (layer for layer in profile.layers if [edge.source for edge in layer.inputs] == [MODEL_INPUT])
    return next((layer.activation_bytes for layer in alone), 0.0)


def _node_names(profile: Profile) -> tuple[list[tuple[str, str]], bool]:
    """(id, description) of each layer, and whether the names are lost that way."""
    names = [layer.name for layer in profile.layers]
    nodes = [(own, text or own) for own, _, text in (name.partition(" ") for name in names)]
    ids = {own for own, _ in nodes}
    read = {edge.source for layer in profile.layers for edge in layer.inputs}
    noise = any(text.startswith(NOISE) and name not in read for (_, text), name in zip(nodes, names, strict=True))
    if (
        len(ids) == len(nodes)
        and not noise
        and all(_reads_back(*node, name) for node, name in zip(nodes, names, strict=True))
    ):
        return nodes, False
    texts = [_description(name.replace(NOISE, "item")) for name in names]
    return [(f"node{index}", text) for index, text in enumerate(texts, start=1)], True


def _reads_back(own: str, text: str, name: str) -> bool:
    read = own if text == own else f"{own} {text}"
    return (
        read == name
        and text == text.strip() == _description(text)
        and own == own.strip() == own.replace("(", "")
        and bool(own.strip("-"))
    )


def _description(name: str) -> str:
    """A name as a description that is read back whole, as far as it can be."""
    cleaned = name.partition("(")[0].replace("--", "-").strip()
    return cleaned or "layer"


def _free_id(taken: Sequence[str]) -> str:
    free = "sample"
    while free in taken:
        free += "0"
    return free
