"""Interrupted measurements: passes that are done are kept in a file beside the profile's, and not run again.

The file is data of ours for ourselves: it goes as soon as the profile is written. It says what it was measured of, and
one of anything else is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ignite_scheduler.errors import InputError
from ignite_scheduler.formats.files import write_json
from ignite_scheduler.profiler.machine import cpu_model
from ignite_scheduler.profiler.request import OtherMeasurementError, Pairs, Partial, Request

if TYPE_CHECKING:
    from ignite_scheduler.profiler.passes import Bench, Clock, Timed

SCHEMA: Final = "ignite/partial-profile/v1"
_VERSIONS: Final = ("torch", "ignite-scheduler")


def partial_path(out: Path, device: str) -> Path:
    """Where a measurement for the profile ``out`` keeps what is done."""
    return out.with_name(f".{out.name}.{device.replace(':', '-')}.partial")


class PartialFile:
    """The file of one measurement.

    Raises
    ------
    InputError
        There is one already, of another model, version or machine, or it is damaged.
    """

    def __init__(self, path: Path, request: Request) -> None:
        self._path, self._key = path, _key(request)
        self.found = self._read()

    def _read(self) -> Partial | None:
        try:
            document = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise InputError(f"{self._path} is damaged: {error}; delete it to measure from the beginning") from error
        if not isinstance(document, dict) or document.get("schema") != SCHEMA or document.get("key") != self._key:
            raise self.of_another()
        try:
            return _partial(document)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{self._path} is damaged: {error}; delete it to measure from the beginning") from error

    def of_another(self) -> OtherMeasurementError:
        """The error that the file is not of this measurement."""
        return OtherMeasurementError(
            f"{self._path} holds an interrupted measurement of another model, version or machine: delete it to measure "
            "from the beginning, or write the profile elsewhere (--out)"
        )

    def write(self, partial: Partial) -> None:
        """Keep what is done by now."""
        passes = {
            str(size): {"layers": partial.layers[size], "begun": partial.begun[size], "whole": partial.whole[size]}
            for size in partial.layers
        }
        facts = {"structure": partial.structure, "own_s": partial.own, "wall_s": partial.wall}
        write_json(self._path, {"schema": SCHEMA, "key": self._key, **facts, "passes_s": passes})

    def remove(self) -> None:
        """The profile is written."""
        with suppress(OSError):
            self._path.unlink()


def _key(request: Request) -> str:
    """What must be the same for passes of two runs to belong together."""
    plain = replace(request, repeats=0, time_limit=0.0, partial=None)
    facts = [repr(plain), cpu_model(), *(_version(name) for name in _VERSIONS)]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


def _partial(document: Mapping[str, Any]) -> Partial:
    passes = {int(size): entry for size, entry in document["passes_s"].items()}
    return Partial(
        structure=str(document["structure"]),
        layers={size: tuple(_pairs(row) for row in entry["layers"]) for size, entry in passes.items()},
        begun={size: _pairs(entry["begun"]) for size, entry in passes.items()},
        whole={size: _pairs(entry["whole"]) for size, entry in passes.items()},
        own=float(document["own_s"]),
        wall=float(document["wall_s"]),
    )


def _pairs(rows: Sequence[Sequence[float]]) -> Pairs:
    return tuple((float(forward), float(backward)) for forward, backward in rows)


def kept(timed: Timed, structure: str) -> Partial:
    """What is done by now, as plain data."""
    return Partial(
        structure=structure,
        layers={size: tuple(tuple(row) for row in rows) for size, rows in timed.layers.items()},
        begun={size: tuple(rows) for size, rows in timed.begun.items()},
        whole={size: tuple(rows) for size, rows in timed.whole.items()},
        own=timed.watch.own,
        wall=timed.watch.wall,
    )


def timed(partial: Partial | None, bench: Bench, clock: Clock) -> Timed:
    """Where the passes go on from."""
    from ignite_scheduler.profiler.passes import untimed

    result = untimed(bench, clock)
    if partial is not None:
        for size in bench.batches:
            result.layers[size].extend(list(row) for row in partial.layers[size])
            result.begun[size].extend(partial.begun[size])
            result.whole[size].extend(partial.whole[size])
        result.watch.own, result.watch.wall = partial.own, partial.wall
    return result
