"""Sequences of tokens: source text that every Python has, and synthetic ones."""

from __future__ import annotations

import sysconfig
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from ignite_scheduler.errors import ExternalError, InputError
from ignite_scheduler.zoo.datasets import GeneratedSamples, Sample, generator_of, part

IGNORED = -100
"""A target that PyTorch's cross-entropy passes over."""


@cache
def _corpus(limit: int) -> Tensor:
    """The first ``limit`` bytes of the standard library's own top-level modules, in order of their names."""
    folder = Path(sysconfig.get_path("stdlib"))
    pieces, total = [], 0
    for path in sorted(folder.glob("*.py")):
        if total >= limit:
            break
        pieces.append(path.read_bytes())
        total += len(pieces[-1])
    if not pieces:
        raise ExternalError(f"no source text of the standard library in {folder}")
    return torch.frombuffer(bytearray(b"".join(pieces)[:limit]), dtype=torch.uint8)


def stdlib(
    block: int = 64, limit: int = 2_000_000, split: str = "train", held_out: float = 0.2, seed: int = 0
) -> GeneratedSamples:
    """Bytes as int64 ``[block]``, target the bytes one further on, ``[block]``; blocks don't overlap.

    The text is that of the running Python, so another version of Python gives other samples.
    """
    if block < 1 or limit <= block:
        raise InputError(f"stdlib: block must be at least 1 and below limit, found block={block}, limit={limit}")
    corpus = _corpus(limit)
    starts = part((len(corpus) - 1) // block, split=split, held_out=held_out, seed=seed) * block

    def make(index: int) -> Sample:
        start = int(starts[index])
        piece = corpus[start : start + block + 1].long()
        return piece[:-1], piece[1:]

    return GeneratedSamples(len(starts), make)


def synthetic_tokens(block: int = 64, vocabulary: int = 256, length: int = 1024, seed: int = 0) -> GeneratedSamples:
    """Int64 ``[block]`` that counts up (modulo ``vocabulary``) from a random start, target one further on."""
    if min(block, vocabulary, length) < 1:
        raise InputError("synthetic_tokens: block, vocabulary and length must be at least 1")
    starts = torch.randint(vocabulary, (length,), generator=torch.Generator().manual_seed(seed))

    def make(index: int) -> Sample:
        piece = (starts[index] + torch.arange(block + 1)) % vocabulary
        return piece[:-1], piece[1:]

    return GeneratedSamples(length, make)


def synthetic_masked_tokens(
    block: int = 64, vocabulary: int = 256, share: float = 0.15, length: int = 1024, seed: int = 0
) -> GeneratedSamples:
    """Int64 ``[block]`` that counts up as in :func:`synthetic_tokens`, some of it hidden; target what was hidden.

    Each token is hidden with probability ``share`` behind the last token of the vocabulary, which stands for nothing
    else. The target, ``[block]``, is the token where it is hidden and elsewhere −100, which cross-entropy passes over.
    """
    if min(block, vocabulary - 1, length) < 1 or not 0 < share <= 1:
        raise InputError(
            "synthetic_masked_tokens: block and length must be at least 1, vocabulary at least 2 and share above 0 and "
            f"at most 1, found block={block}, length={length}, vocabulary={vocabulary}, share={share}"
        )
    starts = torch.randint(vocabulary - 1, (length,), generator=torch.Generator().manual_seed(seed))

    def make(index: int) -> Sample:
        tokens = (starts[index] + torch.arange(block)) % (vocabulary - 1)
        hidden = torch.rand(block, generator=generator_of(seed, index)) < share
        return tokens.masked_fill(hidden, vocabulary - 1), tokens.masked_fill(~hidden, IGNORED)

    return GeneratedSamples(length, make)
