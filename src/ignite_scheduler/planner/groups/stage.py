"""One stage on one group, compiled: its shares, its seconds, its bytes, and the cheapest memory actions that fit.

A stage's *code* says what it does to fit: bit 0 shards the optimizer's state, bit 1 offloads activations, and the rest
is what is recomputed, one of :data:`KEEP`, :data:`CHEAPEST`, :data:`WHOLE` and :data:`EACH`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ignite_scheduler.cost.memory import NOT_OFFLOADED
from ignite_scheduler.planner.compiled import compiled, inlined

SHARD: Final = 1
OFFLOAD: Final = 2
KEEP: Final = 0
"""Nothing is recomputed."""
CHEAPEST: Final = 4
"""Single layers are recomputed, each a segment of its own, as few as must be, cheapest first."""
WHOLE: Final = 8
"""The stage is one segment."""
EACH: Final = 12
"""Every layer is a segment of its own."""
NO_FIT: Final = -1


@compiled
def share_out(costs: Any, members: Any, size: int, limits: Any, least: int, out: Any) -> bool:
    """Write each replica's samples of a full microbatch; False where their limits do not hold them.

    As :func:`ignite_scheduler.cost.balanced_shares` by the seconds of the whole model: each sample goes where it would
    be done first. Every replica gets ``least`` samples before that.
    """
    left = costs.samples
    for r in range(size):
        if limits[r] < least:
            return False
        out[r] = least
        left -= least
    if left < 0:
        return False
    for _ in range(left):
        chosen = -1
        best = np.inf
        for r in range(size):
            if out[r] < limits[r] and costs.whole[members[r], out[r] + 1] < best:
                chosen, best = r, costs.whole[members[r], out[r] + 1]
        if chosen < 0:
            return False
        out[chosen] += 1
    return True


@inlined
def last_share(costs: Any, shares: Any, size: int, r: int) -> int:
    """Replica r's samples of the last microbatch: in proportion to its share, the rest by largest remainder."""
    if costs.last == costs.samples:
        return int(shares[r])
    whole = 0
    for p in range(size):
        whole += shares[p] * costs.last // costs.samples
    extra = costs.last - whole
    own = shares[r] * costs.last % costs.samples
    before = 0
    for p in range(size):
        other = shares[p] * costs.last % costs.samples
        if other > own or (other == own and p < r):
            before += 1
    return int(shares[r] * costs.last // costs.samples + (1 if before < extra else 0))


@compiled
def held_parameters(costs: Any, i: int, j: int) -> float:
    """Parameter bytes of the layers i … j − 1 in the profile's precision; tied ones within count once."""
    total = costs.parameters[j] - costs.parameters[i]
    for group in range(len(costs.tied)):
        inside = 0
        least = np.inf
        for index in costs.tied[group]:
            if i <= index < j:
                inside += 1
                least = min(least, costs.parameters[index + 1] - costs.parameters[index])
        if inside > 1:
            total -= (inside - 1) * least
    return float(total)


@inlined
def finish_seconds(costs: Any, members: Any, size: int, per_byte: float, latency: float, i: int, j: int) -> Any:
    """Seconds of the ring all-reduce of a stage's gradients, and of its optimizer's update on the slowest replica."""
    ring = 0.0
    if size > 1:
        rounds = 2 * (size - 1)
        ring = rounds / size * (held_parameters(costs, i, j) * costs.scale) * per_byte + rounds * latency
    update = 0.0
    for r in range(size):
        update = max(update, costs.update[members[r], j] - costs.update[members[r], i] + costs.closing[members[r]])
    return ring, update


@inlined
def _momentary(costs: Any, i: int, j: int) -> Any:
    """Peak a sample and workspace of the layers i … j − 1."""
    peak, space = 0.0, 0.0
    if len(costs.peak) > 1:
        peak = costs.peak[i, j]
    if len(costs.workspace) > 1:
        space = costs.workspace[i, j]
    return peak, space


@compiled
def bytes_needed(costs: Any, size: int, code: int, parameters: float, kept: float, extra: float, space: float,
                 held: int, share: int) -> float:  # fmt: skip
    """Bytes of one replica.

    Parameters
    ----------
    kept, extra
        Bytes a sample kept for each microbatch in flight, and on top of that for a moment.
    held
        Microbatches in flight.
    """
    state = costs.state / size if code & SHARD else costs.state
    resident = min(held, NOT_OFFLOADED) if code & OFFLOAD else held
    return float(
        (parameters * (costs.working + state) + costs.scale * (share * (resident * kept + extra) + space))
        * costs.factor
    )


@compiled
def _most_samples(costs: Any, size: int, code: int, parameters: float, kept: float, extra: float, space: float,
                  held: int, memory: float) -> int:  # fmt: skip
    """Samples of a full microbatch that a replica's memory holds."""
    fixed = bytes_needed(costs, size, code, parameters, kept, extra, space, held, 0)
    if fixed > memory:
        return -1
    each = bytes_needed(costs, size, code, parameters, kept, extra, space, held, 1) - fixed
    most = costs.samples
    if each > 0 and (memory - fixed) / each < most:
        most = int((memory - fixed) / each) + 1  # the quotient may be rounded
    while bytes_needed(costs, size, code, parameters, kept, extra, space, held, most) > memory:
        most -= 1
    return int(most)


@compiled
def kept_bytes(costs: Any, i: int, j: int, chosen: Any, recomputed: int) -> Any:
    """Bytes a sample that the layers i … j − 1 keep for each microbatch in flight, and for a moment on top.

    ``chosen`` [layer] marks what is recomputed, each layer a segment of its own, unless nothing or the whole run is.
    As :func:`ignite_scheduler.cost.memory.held_activations`.
    """
    if recomputed in (KEEP, WHOLE):
        kept = costs.activations[j] - costs.activations[i] + costs.carried[j]
        peak, _ = _momentary(costs, i, j)
        if recomputed == KEEP:
            return kept, peak
        return costs.entering[i, j], kept + peak
    kept, highest, inputs, most = 0.0, 0.0, 0.0, 0.0
    for index in range(i, j):
        own = costs.activations[index + 1] - costs.activations[index]
        carried = costs.carried[j] if index == j - 1 else 0.0
        if chosen[index]:
            inputs += costs.reads[index]
            most = max(most, own + max(carried, costs.momentary[index]))
        else:
            kept += own
            highest = max(highest, kept + costs.momentary[index])
            kept += carried
    return kept + inputs, max(most, highest - kept)


@compiled
def _fits(costs: Any, members: Any, size: int, shares: Any, code: int, parameters: float, kept: float, extra: float,
          space: float, held: int) -> bool:  # fmt: skip
    for r in range(size):
        need = bytes_needed(costs, size, code, parameters, kept, extra, space, held, shares[r])
        if need > costs.memory[members[r]]:
            return False
    return True


@compiled
def _acted_seconds(costs: Any, members: Any, size: int, shares: Any, code: int, kept: float, chosen: Any, i: int,
                   j: int, held: int, out: Any) -> None:  # fmt: skip
    """Write forward and backward of a full and of the last microbatch under the actions of ``code``."""
    for part in range(4):
        out[part] = 0.0
    for e in range(2):
        for r in range(size):
            c = members[r]
            s = shares[r] if e == 0 else last_share(costs, shares, size, r)
            if s == 0:
                continue
            f = costs.forward[c, s, j] - costs.forward[c, s, i] + costs.overhead[c]
            b = costs.backward[c, s, j] - costs.backward[c, s, i] + costs.overhead[c]
            if code & EACH == CHEAPEST:
                for index in range(i, j):
                    if chosen[index]:
                        b += costs.forward[c, s, index + 1] - costs.forward[c, s, index]
            elif code & EACH != KEEP:
                b += costs.forward[c, s, j] - costs.forward[c, s, i]
            if code & OFFLOAD and held > NOT_OFFLOADED:
                moved = s * kept * costs.scale / costs.host[c]
                f, b = max(f, moved), max(b, moved)
            out[2 * e] = max(out[2 * e], f)
            out[2 * e + 1] = max(out[2 * e + 1], b)


@compiled
def _mark(order: Any, costs: Any, i: int, j: int, most: int, chosen: Any) -> int:
    """Mark so many of the layers i … j − 1 that save bytes when they are recomputed, cheapest first; their number."""
    count = 0
    for index in range(i, j):
        chosen[index] = False
    for index in order:
        own = costs.activations[index + 1] - costs.activations[index]
        if count < most and i <= index < j and own > costs.reads[index]:
            chosen[index] = True
            count += 1
    return count


@compiled
def _try_code(costs: Any, members: Any, size: int, base: Any, order: Any, i: int, j: int, held: int, code: int,
              chosen: Any, shares: Any, limits: Any, out: Any) -> bool:  # fmt: skip
    """Write shares, recomputed layers and seconds of the stage under ``code``; False where it does not fit so."""
    parameters = held_parameters(costs, i, j)
    _, space = _momentary(costs, i, j)
    recomputed = code & EACH
    for index in range(i, j):
        chosen[index] = recomputed == EACH
    kept, extra = kept_bytes(costs, i, j, chosen, recomputed)
    for r in range(size):
        shares[r] = base[r]
    fits = _fits(costs, members, size, shares, code, parameters, kept, extra, space, held)
    if recomputed == CHEAPEST and not fits:
        low, high = 0, _mark(order, costs, i, j, costs.num_layers, chosen)
        kept, extra = kept_bytes(costs, i, j, chosen, recomputed)
        fits = _fits(costs, members, size, shares, code, parameters, kept, extra, space, held)
        while fits and high - low > 1:  # so few do not suffice, so many do
            middle = (low + high) // 2
            _mark(order, costs, i, j, middle, chosen)
            kept, extra = kept_bytes(costs, i, j, chosen, recomputed)
            if _fits(costs, members, size, shares, code, parameters, kept, extra, space, held):
                high = middle
            else:
                low = middle
        _mark(order, costs, i, j, high, chosen)
        kept, extra = kept_bytes(costs, i, j, chosen, recomputed)
    if not fits:
        for r in range(size):
            limits[r] = _most_samples(costs, size, code, parameters, kept, extra, space, held, costs.memory[members[r]])
        room = 0
        for r in range(size):
            room += limits[r]
        if room < costs.samples or not share_out(costs, members, size, limits, 1, shares):
            return False
    _acted_seconds(costs, members, size, shares, code, kept, chosen, i, j, held, out)
    return True


@compiled
def _permitted(costs: Any, members: Any, size: int, code: int, held: int) -> bool:
    """Whether a stage of so many replicas may do what ``code`` says, and has what it needs for it."""
    if code & OFFLOAD and held > NOT_OFFLOADED:
        for r in range(size):
            if costs.host[members[r]] == 0.0:
                return False
    # one replica alone has nobody to share with
    sharded = bool(costs.shard[1 if code & SHARD else 0]) if size > 1 else code & SHARD == 0
    recomputed = code & EACH
    if recomputed == EACH:  # with a choice it is the last of the cheapest
        again = costs.recompute[1] and not costs.recompute[0]
    elif recomputed == CHEAPEST:
        again = costs.recompute[1] and costs.recompute[0]
    else:
        again = costs.recompute[1 if recomputed == WHOLE else 0]
    return bool(sharded and again and costs.offload[1 if code & OFFLOAD else 0])


@inlined
def _same(a: Any, b: Any, size: int) -> bool:
    same = True
    for r in range(size):
        same = same and a[r] == b[r]
    return same


@compiled
def cheapest(costs: Any, members: Any, size: int, base: Any, order: Any, i: int, j: int, held: int, chosen: Any,
             shares: Any, out: Any) -> int:  # fmt: skip
    """The code of the cheapest actions with which the layers i … j − 1 fit the group, or NO_FIT.

    Of all permitted combinations, each with the base shares or, where they do not fit, with shares shifted off full
    replicas: least seconds of a full forward and backward; of equal ones the one with fewer actions. What fits with the
    base shares by sharding alone, which takes no time, does that.

    Parameters
    ----------
    members, base, order
        Rows of :class:`.costs.Groups`.
    held
        Microbatches in flight.
    chosen, shares, out
        Filled: [layer] what is recomputed by CHEAPEST and EACH, [replica] samples of a full microbatch, and the seconds
        of forward and backward of a full and of the last microbatch.
    """
    best = np.inf
    found = NO_FIT
    limits = np.zeros(size, np.int64)
    for r in range(size):
        if i < costs.barrier[members[r], j]:
            return NO_FIT
    parameters = held_parameters(costs, i, j)
    for r in range(size):  # nothing makes these smaller
        least = parameters * (costs.working + costs.state / (size if costs.shard[1] else 1)) * costs.factor
        if least > costs.memory[members[r]]:
            return NO_FIT
    for actions in range(4):
        for code in range(16):
            count = (code & SHARD > 0) + (code & OFFLOAD > 0) + (code & EACH > 0)
            if count != actions or not _permitted(costs, members, size, code, held):
                continue
            if not _try_code(costs, members, size, base, order, i, j, held, code, chosen, shares, limits, out):
                continue
            if code & ~SHARD == 0 and _same(shares, base, size):  # it takes no longer than without any action
                return code
            if out[0] + out[1] < best * (1 - 1e-12):
                best, found = out[0] + out[1], code
    if found != NO_FIT:
        _try_code(costs, members, size, base, order, i, j, held, found, chosen, shares, limits, out)
    return found
