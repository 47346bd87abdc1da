"""Checkpoints: every tensor under its layer's name, so that any split can read what any other split wrote.

A checkpoint is a folder ``step-000050`` of ``torch.distributed.checkpoint`` plus ``checkpoint.json``. It is written as
``.writing-step-000050`` and renamed when all ranks are done; ``latest`` is a small file that names the newest whole
one. So a crash at any moment leaves the last whole checkpoint in place. Nothing in a checkpoint is executed on
loading: tensors and plain values only.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import ReadItem

from ignite_scheduler.engine.rule import Rule
from ignite_scheduler.engine.saved import FACTS, LATEST, SCHEMA, saved_steps
from ignite_scheduler.engine.sharded_rule import ShardedRule
from ignite_scheduler.errors import ExternalError, InputError


def save(folder: Path, rule: Rule | ShardedRule, *, leads: bool, step: int, keep: int, facts: dict[str, Any]) -> Path:
    """Write a checkpoint after ``step`` steps together with all other ranks, and drop all but the newest ``keep``.

    Parameters
    ----------
    folder
        The run's ``checkpoints``.
    rule
        This rank's layers, under their own names, and their optimizer.
    leads
        Whether this rank writes its stage's tensors: of replicas, which have the same ones, the first does.
    facts
        What to write beside the tensors (same on all ranks).

    Returns
    -------
    Path
        The whole checkpoint; on return of rank 0 it is there, on others it may still be being renamed.
    """
    final = folder / f"step-{step:06d}"
    writing = folder / f".writing-{final.name}"
    first = dist.get_rank() == 0
    if first:
        shutil.rmtree(writing, ignore_errors=True)
        writing.mkdir(parents=True)
    dist.barrier()
    state = rule.saved()
    try:
        state_dict_saver.save(state if leads else {"model": {}}, checkpoint_id=writing)
    except CheckpointException as error:
        raise ExternalError(f"could not write {writing}: {_first_reason(error)}", retryable=True) from error
    if first:
        (writing / FACTS).write_text(json.dumps({"schema": SCHEMA, "step": step, **facts}, indent=1) + "\n")
        shutil.rmtree(final, ignore_errors=True)
        writing.rename(final)
        _point_to(folder, final)
        _prune(folder, step, keep)
    return final


def num_bytes(saved: Path) -> int:
    """Bytes of the files of the checkpoint ``saved``."""
    return sum(path.stat().st_size for path in saved.rglob("*") if path.is_file())


def _point_to(folder: Path, checkpoint: Path) -> None:
    writing = folder / f".{LATEST}"
    with writing.open("w") as file:
        file.write(checkpoint.name + "\n")
        file.flush()
        os.fsync(file.fileno())
    writing.replace(folder / LATEST)


def _prune(folder: Path, step: int, keep: int) -> None:
    """Drop later checkpoints, which a resumed run has left behind, and all but the newest ``keep``."""
    whole = {int(path.name.removeprefix("step-")): path for path in folder.glob("step-*") if path.is_dir()}
    kept = sorted(number for number in whole if number <= step)[-max(1, keep) :]
    for number, path in whole.items():
        if number not in kept:
            shutil.rmtree(path, ignore_errors=True)


def load(checkpoint: Path, rule: Rule | ShardedRule) -> int:
    """Fill this rank's layers and optimizer from a checkpoint of any split; the number of steps that it holds.

    All ranks call it together.
    """
    step = saved_steps(checkpoint)
    state = rule.blank()
    try:
        state_dict_loader.load(state, storage_reader=_SafeReader(checkpoint), planner=_SafePlanner())
    except (CheckpointException, pickle.UnpicklingError, OSError) as error:
        raise InputError(
            f"{checkpoint} does not suit this job's model and optimizer: {_first_reason(error)}"
        ) from error
    rule.load(state)
    return step


def _first_reason(error: BaseException) -> str:
    """What went wrong on the first rank that says so; torch's own text is a page of traces."""
    failures = error.failures.values() if isinstance(error, CheckpointException) else ()
    return next(
        (str(failure[0]).splitlines()[0] for failure in failures if str(failure[0])), str(error).splitlines()[0]
    )


class _SafePlanner(DefaultLoadPlanner):
    """Reads plain values without executing anything; torch's own planner unpickles them freely."""

    def load_bytes(self, read_item: ReadItem, value: BytesIO) -> None:
        checked = BytesIO()
        torch.save(torch.load(value, weights_only=True), checked)
        checked.seek(0)
        super().load_bytes(read_item, checked)


class _MetadataUnpickler(pickle.Unpickler):
    """Builds what a checkpoint's index consists of and nothing else."""

    _ALLOWED: Final = (
        ("torch.distributed.checkpoint.", ""),
        ("torch", "Size"),
        ("torch.serialization", "_get_layout"),
        ("collections", "OrderedDict"),
        ("pathlib", ""),
    )

    def find_class(self, module: str, name: str) -> Any:
        named = (module == "torch" and name in torch.__dict__ and isinstance(getattr(torch, name), torch.dtype)) or any(
            (module.startswith(m) if m.endswith(".") else module == m) and (not n or n == name)
            for m, n in self._ALLOWED
        )
        if not named:
            raise pickle.UnpicklingError(f"a checkpoint's index must not hold {module}.{name}")
        return super().find_class(module, name)


class _SafeReader(FileSystemReader):
    """Reads the index with :class:`_MetadataUnpickler`."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        with (Path(self.path) / ".metadata").open("rb") as file:
            metadata: Metadata = _MetadataUnpickler(file).load()
        if metadata.storage_meta is None:
            metadata.storage_meta = StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata
