"""Messages between stages: tensors packed into one buffer behind a header, sent by ``isend`` and ``irecv`` with tags.

Theory of operation
-------------------
*What a message looks like* is agreed once: before the first message of its kind the sender writes types, shapes and
"needs a gradient" of the tensors into the store, where the receiver reads them; both derive the same layout. Every
message then carries a digest of that layout in its header, so a stage whose output changes type or shape is an error
that names what was expected and what was found, never stale or reinterpreted bytes (gloo accepts short messages and
wrong types silently).

*Packing* makes boundary tensors contiguous in both directions and sends a tuple as one message.

*Receives are posted ahead*: while a stage computes, its next messages are already on their way. Activations are taken
ahead as far as the schedule lets the stage hold them, and one microbatch more; of gradients one. What waits for its
receiver lies with the sender.

*Gradients* flow back only for tensors that need one.
"""

from __future__ import annotations

import json
import struct
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from ignite_scheduler.engine.chain import Tensors, describe
from ignite_scheduler.engine.deliveries import Deliveries, Delivery
from ignite_scheduler.engine.links import Wire
from ignite_scheduler.errors import ExternalError, InputError, InvariantError
from ignite_scheduler.model import Link
from ignite_scheduler.pipeline import Transfer

_HEADER: Final = struct.Struct("<ddqqI")
_ALIGNMENT: Final = 64
_AHEAD: Final = 1
"""Messages received ahead of what a stage holds: one is under way while another is being computed on."""


class PeerLostError(ExternalError):
    """A message did not come, or could not be sent: the other side is dead or silent."""

    def __init__(self, message: str, *, rank: int) -> None:
        super().__init__(message, retryable=True)
        self.rank = rank


class Message(NamedTuple):
    """Which tensors: activations (``F``) or gradients (``B``) of one microbatch, from stage to neighbouring stage.

    ``samples`` are those that go from the rank ``sender`` to the rank ``receiver``.
    """

    source: int
    target: int
    kind: str
    microbatch_index: int
    samples: int
    sender: int
    receiver: int

    def __str__(self) -> str:
        noun = "activations" if self.kind == "F" else "gradients"
        return f"{noun} of microbatch {self.microbatch_index} from stage {self.source} to stage {self.target}"


class Spec(NamedTuple):
    """One tensor at a boundary; ``per_sample``: whether its dimension 0 runs over the samples."""

    dtype: str
    shape: tuple[int, ...]
    needs_gradient: bool
    per_sample: bool = True

    @classmethod
    def of(cls, tensor: Tensor, per_sample: bool = True) -> Spec:
        """The tensor's type, shape and whether a gradient must come back for it."""
        return cls(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), tensor.requires_grad, per_sample)

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where each tensor lies in a message's buffer."""

    specs: tuple[Spec, ...]
    offsets: tuple[int, ...]
    num_bytes: int
    payload: int
    digest: int

    @classmethod
    def of(cls, specs: Sequence[Spec]) -> Layout:
        """The layout of tensors of these types and shapes, each at an aligned place."""
        offsets, end, payload = [], _ALIGNMENT, 0
        for spec in specs:
            size = torch.Size(spec.shape).numel() * _dtype(spec).itemsize
            offsets.append(end)
            payload += size
            end += -(-size // _ALIGNMENT) * _ALIGNMENT
        digest = zlib.crc32(repr([(spec.dtype, spec.shape) for spec in specs]).encode())
        return cls(specs=tuple(specs), offsets=tuple(offsets), num_bytes=end, payload=payload, digest=digest)

    def view(self, buffer: Tensor, index: int) -> Tensor:
        """Tensor ``index`` within ``buffer``."""
        spec, offset = self.specs[index], self.offsets[index]
        dtype = _dtype(spec)
        size = torch.Size(spec.shape).numel() * dtype.itemsize
        return buffer[offset : offset + size].view(dtype).view(spec.shape)

    def gradients(self) -> Layout:
        """The layout of the message that comes back."""
        return Layout.of([s._replace(needs_gradient=False) for s in self.specs if s.needs_gradient])


def _dtype(spec: Spec) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, spec.dtype)
    return dtype


@dataclass(slots=True, kw_only=True)
class _Posted:
    work: Any
    buffer: Tensor
    layout: Layout


class Transport:
    """The messages of one rank.

    Parameters
    ----------
    rank
        Messages from it to itself are handed over within the process, at once.
    store
        Where layouts are agreed on (a ``torch.distributed.Store``); None where all stages are here.
    wires
        By target rank, what to emulate; absent = real.
    wire
        Where messages lie while they travel: the device itself, or the CPU where the backend moves nothing else.
    directions
        Process groups for ``F`` and ``B`` messages; missing = the default group.
    scope
        Tells this pipeline's agreements in the store from others'.
    in_flight
        Most microbatches that the stages here hold at once: so far activations are received ahead.
    """

    def __init__(
        self,
        *,
        rank: int,
        store: Any,
        wires: Mapping[int, tuple[Link, Wire]],
        device: torch.device,
        wire: torch.device,
        timeout: float,
        scope: str = "",
        directions: Mapping[str, dist.ProcessGroup] | None = None,
        in_flight: int = 1,
    ) -> None:
        self._rank, self._store, self._wires = rank, store, dict(wires)
        self._device, self._wire, self._timeout, self._scope = device, wire, timedelta(seconds=timeout), scope
        self._directions = dict(directions or {})
        self._layouts: dict[tuple[Any, ...], Layout] = {}
        self._gradients: dict[tuple[Any, ...], Layout] = {}
        self._local: dict[Message, Tensors] = {}
        self._deliveries = Deliveries(threads=wire.type == "cpu")
        self._in_flight = in_flight
        self._expected: list[Message] = []
        self._posted: dict[Message, _Posted] = {}
        self._next = 0
        self._mode, self._step = "train", 0
        self.transfers: list[Transfer] = []
        self.arrival = 0.0
        """When the message that was received last was there; 0 for one that never left this rank."""

    # -- one pass over the schedule -------------------------------------------------------------------------------

    def begin(self, expected: Sequence[Message], *, mode: str, step: int) -> None:
        """Start a pass in which messages from other ranks are received in this order."""
        self._flush()
        self._expected = [m for m in expected if m.sender != self._rank]
        self._next, self._mode, self._step = 0, mode, step
        self.transfers = []
        self.look_ahead()

    def _flush(self) -> None:
        self._deliveries.flush()
        if self._posted or self._local:
            raise InvariantError(f"messages left over: {[*map(str, self._posted), *map(str, self._local)]}")

    def close(self) -> None:
        """Wait until the last messages are with their receivers."""
        self._flush()
        self._deliveries.close()

    # -- sending --------------------------------------------------------------------------------------------------

    def send(
        self, message: Message, tensors: Tensors, *, producer: str, ready: float, per_sample: Sequence[bool] = ()
    ) -> None:
        """Hand tensors to the neighbouring stage without waiting.

        ``producer`` names the layer they come from. ``ready`` is the time at which the device has them, which lies
        ahead on one that is played: no receiver sees them before. ``per_sample`` says of each activation whether its
        dimension 0 runs over the samples; empty = all do.
        """
        if message.kind == "F":
            layout = self._announce(message, tensors, per_sample or (True,) * len(tensors), producer)
        else:
            layout = self.layout(message)
        if not layout.specs:
            return
        if message.receiver == self._rank:
            self._local[message] = tuple(t.detach() for t in tensors)
            return
        buffer = torch.empty(layout.num_bytes, dtype=torch.uint8, device=self._wire)
        for index, tensor in enumerate(tensors):
            layout.view(buffer, index).copy_(tensor.detach())
        start, end = self._book(message, layout, ready)
        if self._wire.type == "cpu":
            _HEADER.pack_into(buffer.numpy().data, 0, start, end, self._step, message.microbatch_index, layout.digest)
        try:
            work = dist.isend(buffer, message.receiver, self._directions.get(message.kind), self._tag(message))
        except RuntimeError as error:
            raise self._lost(message, message.receiver, error) from error
        self._deliveries.add(Delivery(partial(self._wait, work, message, message.receiver), buffer), message.receiver)

    def _book(self, message: Message, layout: Layout, ready: float) -> tuple[float, float]:
        entry = self._wires.get(message.receiver)
        if entry is None:
            return ready, ready
        link, wire = entry
        return wire.book(ready, link.seconds(layout.payload))

    def _announce(self, message: Message, tensors: Tensors, per_sample: Sequence[bool], producer: str) -> Layout:
        specs = tuple(Spec.of(tensor, along) for tensor, along in zip(tensors, per_sample, strict=True))
        key = self._layout_key(message)
        known = self._layouts.get(key)
        if known is None:
            known = self._layouts[key] = Layout.of(specs)
            if self._store is not None and message.receiver != self._rank:
                self._store.set(self._store_key(key), json.dumps([producer, specs]))
        elif known.specs != specs:
            raise InputError(
                f"stage {message.source}, layer {producer!r}: the {message} must keep types and shapes from step to "
                f"step; expected {', '.join(map(str, known.specs))}, found {describe(tensors)}"
            )
        return known

    # -- receiving ------------------------------------------------------------------------------------------------

    def receive(self, message: Message) -> Tensors:
        """The tensors of ``message``, waiting for them; leaves that need a gradient say so."""
        layout = self.layout(message)
        if not layout.specs:
            if message in self._expected:
                self._next += 1
            return ()
        tensors = self._local.pop(message) if message.sender == self._rank else self._receive_remote(message, layout)
        if message.kind == "F" and self._mode == "train":
            for tensor, spec in zip(tensors, layout.specs, strict=True):
                if spec.needs_gradient:
                    tensor.requires_grad_(True)
        return tensors

    def _receive_remote(self, message: Message, layout: Layout) -> Tensors:
        if self._expected[self._next] != message:
            raise InvariantError(f"expected the {self._expected[self._next]} next, was asked for the {message}")
        self._next += 1
        if message not in self._posted:
            self._post(message, layout)
        posted = self._posted.pop(message)
        self._wait(posted.work, message, message.sender)
        self._check_and_delay(message, posted)
        return tuple(layout.view(posted.buffer, index).to(self._device) for index in range(len(layout.specs)))

    def _check_and_delay(self, message: Message, posted: _Posted) -> None:
        if self._wire.type != "cpu":  # reading the header would stall the stream; layouts were agreed on
            return
        start, end, step, microbatch_index, digest = _HEADER.unpack_from(posted.buffer.numpy().data, 0)
        found = (step, microbatch_index, digest)
        if found != (self._step, message.microbatch_index, posted.layout.digest):
            raise InputError(
                f"stage {message.target} expected the {message} of step {self._step} as "
                f"{', '.join(map(str, posted.layout.specs))}; found a message of step {step}, microbatch "
                f"{microbatch_index}, with {'the same' if digest == posted.layout.digest else 'another'} layout"
            )
        wait = end - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        arrival = self.arrival = max(end, time.monotonic()) if end == start else end
        wire = message.sender, message.receiver
        self.transfers.append(
            Transfer(message.source, message.target, message.kind, microbatch_index, start, arrival, wire)
        )

    def look_ahead(self, held: int = 0) -> None:
        """Post the next receives, so that messages travel while this rank computes; it has ``held`` in flight."""
        room = {"F": self._in_flight + _AHEAD - held, "B": _AHEAD}
        for passed, messages in groupby(self._expected[self._next :], key=itemgetter(slice(0, 4))):
            if max(room.values()) <= 0:
                return
            if room[passed[2]] > 0:
                room[passed[2]] -= 1
                self._post_agreed(messages)

    def _post_agreed(self, messages: Iterable[Message]) -> None:
        """Post those whose layout is known already."""
        for message in messages:
            if message not in self._posted and self._layout_key(message) in self._layouts:
                layout = self.layout(message)
                if layout.specs:
                    self._post(message, layout)

    def _post(self, message: Message, layout: Layout) -> None:
        buffer = torch.empty(layout.num_bytes, dtype=torch.uint8, device=self._wire)
        try:
            work = dist.irecv(buffer, message.sender, self._directions.get(message.kind), self._tag(message))
        except RuntimeError as error:
            raise self._lost(message, message.sender, error) from error
        self._posted[message] = _Posted(work=work, buffer=buffer, layout=layout)

    # -- agreements -----------------------------------------------------------------------------------------------

    def _layout_key(self, message: Message) -> tuple[Any, ...]:
        ends = (message.sender, message.receiver) if message.kind == "F" else (message.receiver, message.sender)
        return self._mode, min(message.source, message.target), *ends, message.samples

    def _store_key(self, key: tuple[Any, ...]) -> str:
        return f"{self._scope}boundary/" + "/".join(map(str, key))

    def layout(self, message: Message) -> Layout:
        """The agreed layout; the first time the receiver of activations waits for the sender to announce it."""
        key = self._layout_key(message)
        if key not in self._layouts:
            if self._store is None or message.kind == "B":
                raise InvariantError(f"nothing was agreed on for the {message}")
            try:
                self._store.wait([self._store_key(key)], self._timeout)
                _, specs = json.loads(self._store.get(self._store_key(key)))
            except RuntimeError as error:
                raise self._lost(message, message.sender, error) from error
            self._layouts[key] = Layout.of([Spec(dtype, tuple(shape), *flags) for dtype, shape, *flags in specs])
        if message.kind == "F":
            return self._layouts[key]
        if key not in self._gradients:
            self._gradients[key] = self._layouts[key].gradients()
        return self._gradients[key]

    def _tag(self, message: Message) -> int:
        boundary = min(message.source, message.target)
        return (boundary * 2 + (message.kind == "B")) << 16 | message.microbatch_index

    def _wait(self, work: Any, message: Message, peer: int) -> None:
        try:
            work.wait(self._timeout)
        except RuntimeError as error:
            raise self._lost(message, peer, error) from error

    def _lost(self, message: Message, peer: int, error: Exception) -> PeerLostError:
        first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
        return PeerLostError(f"the {message} did not pass: lost contact with rank {peer} ({first_line})", rank=peer)
