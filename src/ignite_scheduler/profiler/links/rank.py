"""What each rank does, from meeting the others to its last message. All ranks follow one script, by the store.

The script holds no surprises that only one rank knows: which pair comes next follows from the seat, and how much is
streamed from figures that everybody has read from the store. What ranks tell each other there is JSON, never code.
"""

from __future__ import annotations

import json
import os
import platform
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from ignite_scheduler.errors import ExternalError
from ignite_scheduler.profiler.links.analysis import Streams, Trips, conclude, fits, node_groups
from ignite_scheduler.profiler.links.exchange import Exchange, Load
from ignite_scheduler.profiler.links.fit import LineFit
from ignite_scheduler.profiler.links.nouns import LinksMeasured, Options, Pair, Seat
from ignite_scheduler.profiler.machine import describe_machine
from ignite_scheduler.profiler.summary import typical

_STREAM_SECONDS: Final = 0.15
"""How long a stream alone is meant to take."""
_MESSAGE_SECONDS: Final = 0.03
_STREAM_SIZES: Final = (2**16, 2**22)
_STREAM_COUNTS: Final = (4, 64)

Progress = Callable[[int, int], None]
"""Told (steps done, steps in all)."""


class Rank:
    """One rank of a measurement; ``store`` is a ``torch.distributed`` store that all of them share."""

    def __init__(self, seat: Seat, options: Options, store: Any, progress: Progress | None = None) -> None:
        self._seat, self._options, self._store = seat, options, store
        self._progress = progress or (lambda done, total: None)
        self._done, self._num_barriers = 0, 0
        self._groups = node_groups(seat.endpoints, seat.pairs)
        self._num_streams = len(seat.pairs) + sum(len(members) > 1 for members in self._groups.values()) + 1
        self._total = options.rounds * (len(seat.pairs) + self._num_streams)
        self._exchange = Exchange(seat, options)

    def run(self) -> LinksMeasured:
        """Measure together with the others; every rank returns the same."""
        machines = self._share("machine", _facts())
        one_clock = len({facts["clock"] for facts in machines}) == 1 and self._options.backend == "gloo"
        trips = self._measure_trips()
        streams = self._measure_streams(fits(trips, one_clock=one_clock))
        return conclude(
            self._seat.endpoints,
            trips,
            streams,
            self._seat.links,
            self._options,
            one_clock=one_clock,
            provenance={"machines": [{k: v for k, v in facts.items() if k != "clock"} for facts in machines]},
        )

    def _measure_trips(self) -> dict[Pair, Trips]:
        own: dict[Pair, Trips] = {}
        for _ in range(self._options.rounds):
            for source, target in self._seat.pairs:
                self._barrier()
                if source == self._seat.rank:
                    own.setdefault((source, target), Trips()).merge(self._exchange.send_sizes(target))
                elif target == self._seat.rank:
                    self._exchange.answer_sizes(source)
                self._step()
        told = {f"{s},{t}": [found.one_way, found.round_trip] for (s, t), found in own.items()}
        return {
            pair: Trips(*({int(size): list(values) for size, values in part.items()} for part in parts))
            for notes in self._share("trips", told)
            for pair, parts in ((_pair(key), value) for key, value in notes.items())
        }

    def _measure_streams(self, lines: Mapping[Pair, LineFit]) -> Streams:
        loads = {pair: _load(line) for pair, line in lines.items()}
        alone: dict[Pair, list[float]] = {}
        groups: dict[str, list[float]] = {}
        every: dict[Pair, list[float]] = {}
        for _ in range(self._options.rounds):
            for pair in self._seat.pairs:
                _note(alone, self._stream([pair], loads))
            for (source, target), members in self._groups.items():
                if len(members) > 1:
                    seconds = self._stream(members, loads)
                    groups.setdefault(f"{source}\n{target}", []).append(max(seconds.values(), default=0.0))
            _note(every, self._stream(self._seat.pairs, loads))
        shared = self._share("streams", {"alone": _named(alone), "groups": groups, "every": _named(every)})
        together = {
            (source, target): [
                max(values) for values in zip(*(part["groups"][f"{source}\n{target}"] for part in shared), strict=True)
            ]
            for (source, target), members in self._groups.items()
            if len(members) > 1
        }
        single = _typical(part["alone"] for part in shared)
        return Streams(
            alone=single,
            num_bytes={pair: float(load.messages * load.size) for pair, load in loads.items()},
            one_by_one={pair: load.messages * lines[pair].seconds(load.size) for pair, load in loads.items()},
            groups={
                nodes: typical(together[nodes]) if nodes in together else single[members[0]]
                for nodes, members in self._groups.items()
            },
            every=_typical(part["every"] for part in shared),
        )

    def _stream(self, pairs: Sequence[Pair], loads: Mapping[Pair, Load]) -> dict[Pair, float]:
        self._barrier()
        seconds = self._exchange.stream([(pair, loads[pair]) for pair in pairs])
        self._step()
        return seconds

    # -- the store ----------------------------------------------------------------------------------------------------

    def _barrier(self) -> None:
        """Wait until all ranks are here."""
        self._num_barriers += 1
        key = f"barrier/{self._num_barriers}"
        if self._store.add(key, 1) == self._seat.world:
            self._store.set(f"{key}/go", "1")
        self._wait_for(f"{key}/go")

    def _share(self, name: str, value: Any) -> list[Any]:
        """What every rank says under ``name``, by rank."""
        self._store.set(f"{name}/{self._seat.rank}", json.dumps(value))
        found = []
        for rank in range(self._seat.world):
            self._wait_for(f"{name}/{rank}")
            found.append(json.loads(self._store.get(f"{name}/{rank}")))
        return found

    def _wait_for(self, key: str) -> None:
        try:
            self._store.wait([key], timedelta(seconds=self._options.timeout))
        except RuntimeError as error:
            raise ExternalError(
                f"rank {self._seat.rank} waited {self._options.timeout:g} s for the others: is one of them gone?",
                retryable=True,
            ) from error

    def _step(self) -> None:
        self._done += 1
        self._progress(self._done, self._total)


def _load(line: LineFit) -> Load:
    """A stream that takes about as long as is meant, of messages that are long against their latency."""
    least, most = _STREAM_SIZES
    size = int(min(max(line.bandwidth * _MESSAGE_SECONDS, least), most))
    fewest, greatest = _STREAM_COUNTS
    return Load(messages=min(max(round(_STREAM_SECONDS / line.seconds(size)), fewest), greatest), size=size)


def _facts() -> dict[str, Any]:
    """What this rank runs on; processes that read one clock have the same ``clock``."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    namespace = Path("/proc/self/ns/time")
    clock = [boot.read_text().strip() if boot.exists() else f"{platform.node()}/{os.getppid()}"]
    if namespace.exists():
        clock.append(os.readlink(namespace))
    return {"host": socket.gethostname(), "clock": " ".join(clock)} | describe_machine()


def _note(kept: dict[Pair, list[float]], seconds: Mapping[Pair, float]) -> None:
    for pair, value in seconds.items():
        kept.setdefault(pair, []).append(value)


def _named(values: Mapping[Pair, Any]) -> dict[str, Any]:
    return {f"{source},{target}": value for (source, target), value in values.items()}


def _pair(key: str) -> Pair:
    source, target = key.split(",")
    return int(source), int(target)


def _typical(parts: Iterable[Mapping[str, Sequence[float]]]) -> dict[Pair, float]:
    return {_pair(key): typical(values) for part in parts for key, values in part.items()}
