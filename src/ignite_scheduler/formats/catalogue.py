"""Kinds of device that a cluster file may name without saying more.

Every figure is the maker's, from the public data sheet or whitepaper named beside it; nothing is measured or guessed.
Rates are dense (without structured sparsity). What a sheet does not state (idle power as a rule) is None. Memory counts
a sheet's GB as 10⁹ bytes, which is never more than the card has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of device: bytes, FLOP/s in fp32 and in 16-bit formats, bytes/s of its memory, watts under load."""

    memory: float
    dtypes: frozenset[str]
    fp32_flops: float
    half_flops: float | None
    memory_bandwidth: float
    busy_power: float | None
    source: str


_VOLTA: Final = frozenset({"fp32", "fp16"})
_AMPERE: Final = frozenset({"fp32", "fp16", "bf16"})
_HOPPER: Final = frozenset({"fp32", "fp16", "bf16", "fp8"})


def _nvidia(  # figures in the sheets' own units: GB, TFLOP/s, GB/s, W
    memory: float,
    fp32: float,
    half: float | None,
    bandwidth: float,
    power: float | None,
    dtypes: frozenset[str],
    sheet: str,
) -> Kind:
    return Kind(
        memory=memory * 1e9,
        dtypes=dtypes,
        fp32_flops=fp32 * 1e12,
        half_flops=None if half is None else half * 1e12,
        memory_bandwidth=bandwidth * 1e9,
        busy_power=power,
        source=f"NVIDIA, {sheet}",
    )


_A100_40: Final = "A100 Tensor Core GPU data sheet (40 GB)"
_A100_80: Final = "A100 Tensor Core GPU data sheet (80 GB)"
_V100: Final = "V100 Tensor Core GPU data sheet"
_P100: Final = "Tesla P100 data sheet"
_H100: Final = "H100 Tensor Core GPU data sheet"
_H200: Final = "H200 Tensor Core GPU data sheet"

# A name without a form factor takes, of the forms on the sheet, the lower figure, and no power where the forms differ.
CATALOGUE: Final[Mapping[str, Kind]] = {
    "P100-16GB": _nvidia(16, 9.3, 18.7, 732, None, _VOLTA, _P100),
    "V100-16GB": _nvidia(16, 14, 112, 900, None, _VOLTA, _V100),
    "V100-32GB": _nvidia(32, 14, 112, 900, None, _VOLTA, _V100),
    "V100-SXM2-16GB": _nvidia(16, 15.7, 125, 900, 300, _VOLTA, _V100),
    "V100-SXM2-32GB": _nvidia(32, 15.7, 125, 900, 300, _VOLTA, _V100),
    "V100-PCIE-16GB": _nvidia(16, 14, 112, 900, 250, _VOLTA, _V100),
    "V100-PCIE-32GB": _nvidia(32, 14, 112, 900, 250, _VOLTA, _V100),
    "T4": _nvidia(16, 8.1, 65, 320, 70, _VOLTA, "T4 Tensor Core GPU data sheet"),
    "A100-40GB": _nvidia(40, 19.5, 312, 1555, None, _AMPERE, _A100_40),
    "A100-SXM4-40GB": _nvidia(40, 19.5, 312, 1555, 400, _AMPERE, _A100_40),
    "A100-PCIE-40GB": _nvidia(40, 19.5, 312, 1555, 250, _AMPERE, _A100_40),
    "A100-80GB": _nvidia(80, 19.5, 312, 1935, None, _AMPERE, _A100_80),
    "A100-SXM4-80GB": _nvidia(80, 19.5, 312, 2039, 400, _AMPERE, _A100_80),
    "A100-PCIE-80GB": _nvidia(80, 19.5, 312, 1935, 300, _AMPERE, _A100_80),
    "A10": _nvidia(24, 31.2, 125, 600, 150, _AMPERE, "A10 Tensor Core GPU data sheet"),
    "A30": _nvidia(24, 10.3, 165, 933, 165, _AMPERE, "A30 Tensor Core GPU data sheet"),
    "A40": _nvidia(48, 37.4, 149.7, 696, 300, _AMPERE, "A40 data sheet"),
    "RTX-A6000": _nvidia(48, 38.7, 154.8, 768, 300, _AMPERE, "RTX A6000 data sheet"),
    "RTX-3090": _nvidia(24, 35.6, 71, 936, 350, _AMPERE, "Ampere GA102 GPU architecture whitepaper, appendix A"),
    "RTX-4090": _nvidia(24, 82.6, 165.2, 1008, 450, _HOPPER, "Ada GPU architecture whitepaper, appendix A"),
    "L4": _nvidia(24, 30.3, 121, 300, 72, _HOPPER, "L4 Tensor Core GPU data sheet"),
    "L40S": _nvidia(48, 91.6, 362, 864, 350, _HOPPER, "L40S data sheet"),
    "H100-80GB": _nvidia(80, 51, 756, 2000, None, _HOPPER, _H100),
    "H100-SXM5-80GB": _nvidia(80, 67, 989, 3350, 700, _HOPPER, _H100),
    "H100-PCIE-80GB": _nvidia(80, 51, 756, 2000, 350, _HOPPER, _H100),
    "H200": _nvidia(141, 60, 835, 4800, None, _HOPPER, _H200),
    "H200-SXM": _nvidia(141, 67, 989, 4800, 700, _HOPPER, _H200),
    "H200-NVL": _nvidia(141, 60, 835, 4800, 600, _HOPPER, _H200),
}

RESERVE_SHARE: Final = 0.05
"""Share of a catalogue kind's memory left to driver, context and fragmentation."""
MIN_RESERVE: Final = 512 * 2.0**20
"""Least reserve on a GPU, in bytes."""


def default_reserve(kind: Kind) -> float:
    """Bytes kept free on a device whose memory the cluster file does not give."""
    return max(RESERVE_SHARE * kind.memory, MIN_RESERVE)
