"""How well a profile repeats: each model measured twice, in two fresh processes one after the other.

    python benchmarks/profile_repeat.py [--models NAME,…] [--times 2] [--write FILE]

For every layer, size of microbatch and direction the two figures are compared; a layer's difference is that of the time
of its forward and backward together, the median over sizes. Takes about a minute a model; the machine should have
nothing else to do.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any, Final

from ignite_scheduler import api
from ignite_scheduler.model import Profile, Reference
from tables import stamp, table

MODELS: Final[dict[str, dict[str, Any]]] = {
    "vgg11": {"width": 0.5, "size": 32, "classes": 10},
    "alexnet": {"width": 0.5, "size": 64, "classes": 10},
    "squeezenet": {"width": 0.5, "size": 64, "classes": 10},
    "gpt": {"dim": 128, "depth": 4},
    "mlp": {"features": 30, "hidden": [512, 512, 512]},
}
SAMPLES: Final = (4, 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One model; relative differences between two profiles, and the spread that the first one tells of itself."""

    model: str
    middle: float
    worst: float
    worst_layer: str
    whole: float
    spread: float
    busy: float


def seconds(profile: Profile, index: int, size: int) -> float:
    """Forward and backward of one layer."""
    times = profile.layers[index].times["cpu"][size]
    return times.forward + times.backward


def differences(first: Profile, second: Profile) -> list[float]:
    """|one ÷ other − 1| of each layer, the median over sizes."""
    return [
        median(abs(seconds(first, index, size) / max(seconds(second, index, size), 1e-12) - 1) for size in SAMPLES)
        for index in range(len(first.layers))
    ]


def compare(model: str, profiles: Sequence[Profile]) -> Row:
    """The worst pair of these profiles."""
    pairs = [(median(differences(a, b)), differences(a, b), a, b) for a, b in combinations(profiles, 2)]
    middle, found, first, second = max(pairs, key=lambda pair: pair[0])
    worst = max(range(len(found)), key=found.__getitem__)
    totals = [sum(seconds(p, i, SAMPLES[-1]) for i in range(len(p.layers))) for p in (first, second)]
    return Row(
        model=model,
        middle=middle,
        worst=found[worst],
        worst_layer=first.layers[worst].name,
        whole=abs(totals[0] / totals[1] - 1),
        spread=first.provenance["relative_spread_median"],
        busy=max(profile.provenance["wall_over_clock"] for profile in profiles),
    )


def comparison(rows: Sequence[Row], times: int) -> str:
    """The comparison as Markdown."""
    head = ["model", "median layer", "worst layer", "whole chain", "spread within one profile", "wall ÷ CPU time"]
    lines = [
        [
            row.model,
            f"{row.middle:.1%}",
            f"{row.worst:.1%} ({row.worst_layer})",
            f"{row.whole:.1%}",
            f"{row.spread:.1%}",
            f"{row.busy:.2f}",
        ]
        for row in rows
    ]
    note = f"{times} profiles of each model, the worst pair; microbatches of {' and '.join(map(str, SAMPLES))}."
    return "\n".join([table(head, lines), "", note, stamp()])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS), help="names, separated by commas")
    parser.add_argument("--times", type=int, default=2, help="profiles of each model")
    parser.add_argument("--write", type=Path, help="also write the table to this file")
    chosen = parser.parse_args()
    rows = []
    for name in chosen.models.split(","):
        model = Reference(zoo=name, args=MODELS[name])
        profiles = [api.profile(model, samples=SAMPLES) for _ in range(chosen.times)]
        rows.append(compare(name, profiles))
        print(f"{name}: median layer {rows[-1].middle:.1%}, worst {rows[-1].worst:.1%}", file=sys.stderr)
    text = comparison(rows, chosen.times)
    print(text)
    if chosen.write is not None:
        chosen.write.write_text(f"# The same profile twice\n\n{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
