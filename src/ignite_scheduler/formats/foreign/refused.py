"""Public files that lie beside profiles and are none: what each is, and what it is good for.

A file is known by its content, never by its name alone, so that a renamed one gets the same answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ignite_scheduler.formats.foreign.common import Found


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """A kind of file that is no profile: how to know it, what it is, what to use it for."""

    recognises: Callable[[Found], bool]
    what: str
    use: str


def _keys(found: Found) -> set[str]:
    return set(found.data) if isinstance(found.data, dict) else set()


def _has(*names: str) -> Callable[[Found], bool]:
    return lambda found: set(names) <= _keys(found)


def _all_keys(pattern: str) -> Callable[[Found], bool]:
    form = re.compile(pattern)
    return lambda found: bool(_keys(found)) and all(form.fullmatch(key) for key in _keys(found))


def _memory_tables(found: Found) -> bool:
    return any(
        isinstance(table, dict) and any(str(key).startswith("layernum[") for key in table) for table in _values(found)
    )


def _gpus(found: Found) -> bool:
    return any(isinstance(value, dict) and "mem_per_gpu" in value for value in _values(found))


def _values(found: Found) -> list[Any]:
    return list(found.data.values()) if isinstance(found.data, dict) else []


def _first_leaf(value: Any, most: int = 10) -> Any:
    """What stands innermost at the first keys of nested mappings."""
    for _ in range(most):
        if not isinstance(value, dict) or not value:
            return value
        value = next(iter(value.values()))
    return None


def _link_fit(found: Found) -> bool:
    leaf = _first_leaf(found.data)
    return isinstance(leaf, list) and len(leaf) == 2 and isinstance(leaf[0], list) and len(leaf[0]) == 3


def _prices(found: Found) -> bool:
    rows = _values(found)
    zones = _keys(found)
    if not rows or not all(isinstance(row, dict) and row and set(row) <= zones for row in rows):
        return False
    return all(isinstance(price, int | float) for row in rows for price in row.values())


def is_routes(found: Found) -> bool:
    """Whether the file is DT-FM's list of links between regions."""
    data = found.data
    return isinstance(data, list) and bool(data) and all(isinstance(row, dict) and "delay_ms" in row for row in data)


def _text(*words: str) -> Callable[[Found], bool]:
    def recognises(found: Found) -> bool:
        return found.source is None and found.text is not None and any(word in found.text for word in words)

    return recognises


OTHERS: Final = (
    Other(
        recognises=lambda found: str(found.data.get("schema", "")).startswith("ignite/") if _keys(found) else False,
        what="a document of ours already",
        use="use it as it is",
    ),
    Other(
        recognises=_has("cpus", "fpgas"),
        what="a hand-made split of dnn-partitioning (human-experts): lists of node ids per device",
        use="it says where nodes go, not how long they take; import the graph that it splits, compare plans with it",
    ),
    Other(
        recognises=_has("pipeline_list"),
        what="a measured plan of Sailor: layers per stage with the seconds and bytes of the whole plan",
        use="compare a prediction with its 'real' (seconds per step); import the layers from compute/MODEL",
    ),
    Other(
        recognises=_gpus,
        what="Sailor's description of a cluster: GPUs a node and bytes a GPU",
        use="write its figures into a cluster file",
    ),
    Other(
        recognises=_has("num_layers", "hidden_size"),
        what="Sailor's training configuration: model shape and global batch",
        use="write its batch and optimizer into a job file",
    ),
    Other(
        recognises=_has("overlap_coe"),
        what="Galvatron's overlap coefficient: slowdown of compute while communicating",
        use="it belongs to a calibration, not to layers",
    ),
    Other(
        recognises=_all_keys(r"allreduce_size_\d+_consec_[01]"),
        what="Galvatron's all-reduce bandwidths by group size, in GB/s",
        use="write them into the links of a cluster file",
    ),
    Other(
        recognises=_all_keys(r"pp_size_\d+"),
        what="Galvatron's bandwidths of sends between stages by group size, in GB/s",
        use="write them into the links of a cluster file",
    ),
    Other(
        recognises=_all_keys(r"\w+_size_\d+_\d+MB_time"),
        what="Galvatron's times of collectives by group and message size, in ms",
        use="fit latency and bandwidth of a cluster's links to them",
    ),
    Other(
        recognises=_all_keys(r"(layernum\[\d+\]|layertype_\w+?)_bsz\d+_seq\d+"),
        what="Galvatron's computation times: whole models by number of layers and batch, in ms",
        use="they are times by kind of layer or of a few together, without bytes; compare predictions with them",
    ),
    Other(
        recognises=_memory_tables,
        what="Galvatron's measured memory: whole models by parallel degrees, number of layers and batch, in MB",
        use="it has no times and no layer of its own; compare predictions of memory with it",
    ),
    Other(
        recognises=is_routes,
        what="DT-FM's delays (ms) and bandwidths (Gbit/s) between cloud regions",
        use="ignite import links reads it",
    ),
    Other(
        recognises=_link_fit,
        what="Sailor's link model: bandwidth in GB/s as a quadratic in log2 of the message's MB, and its maximum",
        use="read off the bandwidth at your message sizes (within the fit's range) and write it into a cluster file",
    ),
    Other(
        recognises=_prices,
        what="Sailor's communication cost: money per GB between zones",
        use="it describes a cluster's prices, not layers",
    ),
    Other(
        recognises=_text("Permission is hereby granted", "Redistribution and use", "Apache License"),
        what="the licence text of the data's origin",
        use="keep it beside the data",
    ),
    Other(
        recognises=_text("# ", "| --- |"),
        what="a page of documentation",
        use="read it: it says what the other files are, and their units",
    ),
)
"""In the order in which they are tried; a profile of a format that is imported is recognised before all of these."""
