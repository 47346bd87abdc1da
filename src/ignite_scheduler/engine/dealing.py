"""Samples dealt from the replicas of a stage to those of the next one, and their gradients dealt back.

Theory of operation
-------------------
Both stages hold the samples of a microbatch in one order, each replica a run of them. So a boundary is a list of
*pieces*, each from one rank to another, and each a message of its own over the link of the two. A receiver lays its
pieces together; a sender gets back the gradient of each piece and lays those together.

Some tensors at a boundary do not run over samples, such as a mask that all of them share, or a table of positions. They
go with every piece, whole. A receiver takes the first copy, and so the gradient of the others is zero: gradients of a
stage's replicas are added up at the end of the step, and each sample must count once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from ignite_scheduler.engine.chain import Tensors
from ignite_scheduler.engine.crew import Crew, Piece
from ignite_scheduler.engine.transport import Message, Spec, Transport


class Dealing:
    """What one rank has to do with the boundaries of its stages.

    Attributes
    ----------
    arrival
        When the last piece of what was received last was there; 0 for one that never left this rank.
    """

    def __init__(self, crew: Crew, rank: int, transport: Transport) -> None:
        self.crew, self._rank, self._transport = crew, rank, transport
        self._last = len(crew.ranks) - 1
        self._pieces = lru_cache(maxsize=None)(crew.pieces)
        self.arrival = 0.0

    def incoming(self, stage: int, kind: str, k: int, size: int) -> list[Message]:
        """What F or B of microbatch ``k``, which has ``size`` samples, waits for; empty at the ends of the pipeline."""
        if kind == "F":
            if stage == 0:
                return []
            found = [piece for piece in self._pieces(stage - 1, stage, size) if piece.receiver == self._rank]
            return [_forward(stage - 1, k, piece) for piece in found]
        if stage == self._last:
            return []
        return [_backward(stage, k, piece) for piece in self._sent(stage, size)]

    def _sent(self, stage: int, size: int) -> list[Piece]:
        return [piece for piece in self._pieces(stage, stage + 1, size) if piece.sender == self._rank]

    def receive(self, messages: Sequence[Message]) -> Tensors:
        """The tensors of all pieces together, waiting for them; leaves that need a gradient say so."""
        parts, self.arrival = [], 0.0
        for message in messages:
            parts.append(self._transport.receive(message))
            self.arrival = max(self.arrival, self._transport.arrival)
        if len(parts) == 1:
            return parts[0]
        specs = self._transport.layout(messages[0]).specs
        join = _activations if messages[0].kind == "F" else _gradients
        return tuple(join(spec, column) for spec, column in zip(specs, zip(*parts, strict=True), strict=True))

    def per_sample(self, message: Message) -> tuple[bool, ...]:
        """Of each activation that came with a message, whether it runs over the samples."""
        return tuple(spec.per_sample for spec in self._transport.layout(message).specs)

    def send_activations(
        self,
        stage: int,
        k: int,
        size: int,
        tensors: Tensors,
        *,
        per_sample: Sequence[bool],
        producer: str,
        ready: float,
    ) -> None:
        """Deal the outputs of a stage, ready at that time, to the replicas of the next one."""
        pieces = self._sent(stage, size)
        for piece in pieces:
            part = tensors
            if len(pieces) > 1:
                part = tuple(
                    tensor[piece.taken : piece.taken + piece.size] if along else tensor
                    for tensor, along in zip(tensors, per_sample, strict=True)
                )
            message = _forward(stage, k, piece)
            self._transport.send(message, part, producer=producer, ready=ready, per_sample=per_sample)

    def send_gradients(self, stage: int, k: int, size: int, tensors: Tensors, *, producer: str, ready: float) -> None:
        """Deal the gradients of a stage's inputs back to those that sent them."""
        pieces = [piece for piece in self._pieces(stage - 1, stage, size) if piece.receiver == self._rank]
        for number, piece in enumerate(pieces):
            message, part = _backward(stage - 1, k, piece), tensors
            if len(pieces) > 1:
                specs = self._transport.layout(message).specs
                part = tuple(
                    tensor[piece.put : piece.put + piece.size]
                    if spec.per_sample
                    else (torch.zeros_like(tensor) if number else tensor)
                    for tensor, spec in zip(tensors, specs, strict=True)
                )
            self._transport.send(message, part, producer=producer, ready=ready)


def _forward(source: int, k: int, piece: Piece) -> Message:
    return Message(source, source + 1, "F", k, piece.size, piece.sender, piece.receiver)


def _backward(target: int, k: int, piece: Piece) -> Message:
    """The gradient of a piece, back to the stage ``target`` that sent it."""
    return Message(target + 1, target, "B", k, piece.size, piece.receiver, piece.sender)


def _activations(spec: Spec, parts: Sequence[Tensor]) -> Tensor:
    if not spec.per_sample:
        return parts[0]
    return torch.cat([part.detach() for part in parts]).requires_grad_(parts[0].requires_grad)


def _gradients(spec: Spec, parts: Sequence[Tensor]) -> Tensor:
    return torch.cat(tuple(parts)) if spec.per_sample else torch.stack(tuple(parts)).sum(dim=0)
