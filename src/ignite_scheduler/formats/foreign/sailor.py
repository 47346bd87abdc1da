"""Sailor's profiles → our :class:`Profile`: ``compute/MODEL/GPU.json`` with ``memory/MODEL.json``.

Times are by microbatch size, degree of tensor parallelism and layer: [forward, backward, optimizer update] in seconds.
Bytes are by degree and layer, for one sample. A folder ``compute/MODEL``, or the memory file, brings every kind of GPU
at once; one compute file brings its own kind. One degree is taken:
the one asked for, or the least of those that the most kinds have. With a degree N above 1 each device of a plan stands
for a group of N GPUs, bytes are those of one of them, and kinds are called ``GPU-tpN``.

Files whose update times are exactly 0 were not filled in by the same measurement: they are modelled, and the profile
says so. A file with other layers than the model's memory file belongs to another model (the origin's GPT-Neo-2.7 on
GH-96 is a copy of OPT-350's) and is refused.

References
----------
F. Strati et al., "Sailor: Automating distributed training over dynamic, heterogeneous, and geo-distributed clusters",
SOSP 2025 (the profiler).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from ignite_scheduler.errors import DocumentError, InputError
from ignite_scheduler.formats.foreign.common import Choices, ForeignFormat, Found, Imported, Notes, imported, json_files
from ignite_scheduler.formats.foreign.shapes import Sailor, SailorMemory, SailorSizes
from ignite_scheduler.formats.shapes.check import checked
from ignite_scheduler.formats.source import Source, read_source
from ignite_scheduler.model import MODEL_INPUT

TITLE: Final = "Sailor's profiles"
OPTIMIZERS: Final = ("adam", "adamw")
"""Sailor trains with Adam; AdamW's update does the same work."""

_COMPUTE: Final[TypeAdapter[Sailor]] = TypeAdapter(Sailor)
_MEMORY: Final[TypeAdapter[SailorMemory]] = TypeAdapter(SailorMemory)

Rows = Mapping[int, Sequence[Sequence[float]]]
"""Samples of a microbatch → layer by layer [forward, backward, update]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """One GPU's times at the degree that was asked for; ``modelled``: with update times of exactly 0."""

    name: str
    rows: Rows
    modelled: bool


def is_compute(data: Any) -> bool:
    """Whether a JSON value looks like ``compute/MODEL/GPU.json``: whole numbers, thrice, then three numbers."""
    for _ in range(3):
        if not isinstance(data, dict) or not data or not all(key.isdigit() for key in data):
            return False
        data = next(iter(data.values()))
    return isinstance(data, list)


def is_memory(data: Any) -> bool:
    """Whether a JSON value looks like ``memory/MODEL.json``: whole numbers, twice, then sizes by name."""
    for _ in range(2):
        if not isinstance(data, dict) or not data or not all(key.isdigit() for key in data):
            return False
        data = next(iter(data.values()))
    return isinstance(data, dict) and "params_bytes" in data


def _recognises(found: Found) -> bool:
    if found.path.is_dir():
        return any(is_compute(read_source(path).data) for path in json_files(found.path)[:3])
    return is_compute(found.data) or is_memory(found.data)


def _read(found: Found, choices: Choices) -> Imported:
    notes = Notes()
    files, memory_path = _paths(found)
    memory_source = read_source(memory_path)
    memory = checked(_MEMORY.validate_python, memory_source)
    sources = [read_source(path) for path in files]
    tables = [checked(_COMPUTE.validate_python, source) for source in sources]
    degree = _degree(choices, tables, memory)
    if degree not in memory:
        known = ", ".join(str(one) for one in sorted(memory))
        raise memory_source.error((), f"no sizes for the tensor-parallel degree {degree}; there are {known}")
    sizes = _in_order(memory_source, (str(degree),), memory[degree])
    kinds = _kinds(sources, tables, degree, len(sizes), notes)
    if choices.kind is not None and len(kinds) > 1:
        raise InputError(
            f"--kind names one kind of device, but {len(kinds)} are imported: "
            f"{', '.join(kind.name for kind in kinds)}; leave it out, or import one file"
        )
    called = {kind.name: (choices.kind or kind.name) + (f"-tp{degree}" if degree > 1 else "") for kind in kinds}
    reference = next((kind for kind in kinds if not kind.modelled), kinds[0])
    _say(notes, kinds, degree, reference, memory_path)
    return imported(
        found,
        notes,
        form="sailor",
        title=TITLE,
        name=memory_path.stem,
        reference=called[reference.name],
        layers=[_layer(index, sizes, kinds, called, reference) for index in range(len(sizes))],
        provenance={
            "tensor_parallel": degree,
            "files": [f"{kind.name}.json" for kind in kinds],
            "modelled_kinds": [called[kind.name] for kind in kinds if kind.modelled],
        },
    )


FORMAT: Final = ForeignFormat(
    name="sailor",
    title="Sailor (compute/MODEL/GPU.json with memory/MODEL.json)",
    recognises=_recognises,
    read=_read,
    choices=frozenset({"kind", "tensor_parallel"}),
)


def _paths(found: Found) -> tuple[list[Path], Path]:
    """The files with times, and the one with sizes."""
    if is_memory(found.data):
        folder = found.path.absolute().parent.parent / "compute" / found.path.stem
        files = json_files(folder)
        if not files:
            raise DocumentError(
                f"this file has sizes only; expected the times beside it in {folder}, found none", file=found.file
            )
        return files, found.path
    files = json_files(found.path) if found.path.is_dir() else [found.path]
    folder = files[0].absolute().parent
    memory = folder.parent.parent / "memory" / f"{folder.name}.json"
    if not memory.is_file():
        raise DocumentError(
            f"this file has times only; expected the sizes of {folder.name!r} in {memory}, found none", file=found.file
        )
    return files, memory


def _degree(choices: Choices, tables: Sequence[Sailor], memory: SailorMemory) -> int:
    """The degree asked for, or the one that the most kinds have, the least of these."""
    if choices.tensor_parallel is not None:
        return choices.tensor_parallel
    degrees = Counter(
        degree for table in tables for degree in {one for by_degree in table.values() for one in by_degree}
    )
    return min(memory.keys() & degrees.keys(), key=lambda degree: (-degrees[degree], degree), default=1)


def _in_order(source: Source, place: tuple[str, ...], layers: Mapping[int, Any]) -> list[Any]:
    missing = [index for index in range(len(layers)) if index not in layers]
    if missing:
        raise source.error(place, f"expected the layers 0 to {len(layers) - 1}, the layer {missing[0]} is missing")
    return [layers[index] for index in range(len(layers))]


def _kinds(
    sources: Sequence[Source], tables: Sequence[Sailor], degree: int, num_layers: int, notes: Notes
) -> list[_Kind]:
    """The kinds that have the degree and the model's layers; of several files those that have not are left out."""
    kinds, alone = [], len(sources) == 1
    for source, table in zip(sources, tables, strict=True):
        name = Path(source.file or "").stem
        rows = {
            samples: _in_order(source, (str(samples), str(degree)), by_degree[degree])
            for samples, by_degree in sorted(table.items())
            if degree in by_degree
        }
        problem = _problem(source, table, rows, degree, num_layers)
        if problem is None:
            zero = any(row[2] == 0 for layers in rows.values() for row in layers)
            kinds.append(_Kind(name=name, rows=rows, modelled=zero))
        elif alone:
            raise problem
        else:
            notes.warn(f"left out: {problem}")
    if not kinds:
        folder = Path(sources[0].file or "").parent
        raise DocumentError(f"no file has times that can be used: {'; '.join(notes.warnings)}", file=str(folder))
    return kinds


def _problem(source: Source, table: Sailor, rows: Rows, degree: int, num_layers: int) -> DocumentError | None:
    """Why a file's times are of no use."""
    if not rows:
        known = ", ".join(str(one) for one in sorted({one for by_degree in table.values() for one in by_degree}))
        return source.error((), f"no times for the tensor-parallel degree {degree}; there are {known or 'none'}")
    for samples, layers in rows.items():
        if len(layers) != num_layers:
            return source.error(
                (str(samples), str(degree)),
                f"{len(layers)} layers, but the model has {num_layers}: these are another model's times "
                "(the origin's GPT-Neo-2.7 on GH-96 is a copy of OPT-350's)",
            )
    return None


def _layer(
    index: int, sizes: Sequence[SailorSizes], kinds: Sequence[_Kind], called: Mapping[str, str], reference: _Kind
) -> dict[str, Any]:
    own = sizes[index]
    entry: dict[str, Any] = {
        "name": layer_name(index, len(sizes)),
        "parameter_bytes": own.parameters,
        "output_bytes": own.output,
        "activation_bytes": own.kept,
        "times": {
            called[kind.name]: {str(samples): list(rows[index][:2]) for samples, rows in kind.rows.items()}
            for kind in kinds
        },
        "inputs": [layer_name(index - 1, len(sizes)) if index else MODEL_INPUT],
    }
    if not reference.modelled:
        update = reference.rows[min(reference.rows)][index][2]
        entry["update_s"] = dict.fromkeys(OPTIMIZERS, update)
    return entry


def layer_name(index: int, count: int) -> str:
    """What a layer is called: Sailor numbers them, the first is the embedding and the last the head."""
    if index == 0:
        return "embedding"
    return "head" if index == count - 1 else f"layer {index}"


def _say(notes: Notes, kinds: Sequence[_Kind], degree: int, reference: _Kind, memory_path: Path) -> None:
    notes.assume(
        f"tensor-parallel degree {degree} (--tensor-parallel); a chain of layers, the first the embedding, the last "
        f"the head, none tied; bytes for one sample from {memory_path.name}"
    )
    notes.assume("act_mem_bytes is what a layer keeps for its backward pass, its input included; precision fp32")
    if degree > 1:
        notes.assume(f"each device of the plan stands for a group of {degree} GPUs, with the memory of one of them")
    if not reference.modelled:
        notes.assume(
            f"update times are those of {reference.name} at its least microbatch, for {' and '.join(OPTIMIZERS)}"
        )
    modelled = [kind.name for kind in kinds if kind.modelled]
    if modelled:
        notes.warn(
            f"{', '.join(modelled)}: update times of exactly 0, so these files were not filled in by the same "
            "measurement as the others: modelled, not measured"
        )
