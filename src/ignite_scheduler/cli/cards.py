"""GPUs that are really here, and the catalogue's names for them.

PyTorch says which devices this process may use (CUDA, or ROCm, which PyTorch shows through the same functions);
``nvidia-smi`` says how full they are. Where it is missing the runtime is asked, which makes a context on the device:
the few hundred MB that it takes are then counted as others'.
"""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ignite_scheduler.formats.catalogue import Kind

_SMI_TIMEOUT: Final = 10.0
_SMI_FIELDS: Final = "uuid,name,memory.total,memory.free,compute_cap"
_MAKERS: Final = re.compile(r"\b(nvidia|tesla|geforce|amd|instinct|radeon|graphics|gpu)\b", re.IGNORECASE)
_OTHER_CHIPS: Final = re.compile(r"laptop|mobile|max-?q", re.IGNORECASE)
"""A desktop card's name with one of these is another, slower chip."""
_ALIKE: Final = 0.9
_SAME_MEMORY: Final = 0.15
"""How far the memory of a card may be from the catalogue's (drivers report less than the sheet, in GiB)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaCard:
    """A GPU: bytes it has and bytes that others hold now.

    ``dtypes`` are those that it computes natively (None = not asked), ``num_processes`` those that compute on it now
    (None = not known), ``runtime`` what drives it.
    """

    name: str
    uuid: str
    memory: int
    used_by_others: int
    dtypes: tuple[str, ...] | None = None
    num_processes: int | None = None
    runtime: str = "CUDA"

    @property
    def kind(self) -> str:
        """The catalogue's name for it, or one of its own."""
        return catalogue_kind(self.name, self.memory)


def cuda_cards() -> tuple[CudaCard, ...]:
    """The GPUs that this process may use, in its runtime's order; none where there is neither driver nor runtime."""
    listed = smi_cards(_smi("--query-gpu=" + _SMI_FIELDS), _smi("--query-compute-apps=gpu_uuid,pid"))
    if find_spec("torch") is None:
        return tuple(listed.values())
    import torch

    return torch_cards(torch, listed) if torch.cuda.is_available() else tuple(listed.values())


def _smi(query: str) -> str:
    """What ``nvidia-smi`` answers; nothing where it is missing, fails or hangs."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    try:
        done = subprocess.run(
            [program, query, "--format=csv,noheader,nounits"],
            capture_output=True, text=True, check=True, timeout=_SMI_TIMEOUT,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def smi_cards(gpus: str, processes: str) -> dict[str, CudaCard]:
    """Cards by UUID from two answers of ``nvidia-smi``; a line that is no card (an error's text) is left out."""
    computing = Counter(row[0] for row in csv.reader(processes.splitlines(), skipinitialspace=True) if row)
    cards = {}
    for row in csv.reader(gpus.splitlines(), skipinitialspace=True):
        if len(row) != 5 or not (row[2].isdigit() and row[3].isdigit()):
            continue
        uuid, name, total, free, capability = row
        cards[uuid] = CudaCard(
            name=name,
            uuid=uuid,
            memory=int(total) * 2**20,
            used_by_others=(int(total) - int(free)) * 2**20,
            dtypes=dtypes_of(capability),
            num_processes=computing[uuid],
        )
    return cards


def torch_cards(torch: Any, listed: Mapping[str, CudaCard]) -> tuple[CudaCard, ...]:
    """Cards that PyTorch sees, with the memory that ``listed`` gives for them, or that the runtime itself tells."""
    runtime = "ROCm" if getattr(torch.version, "hip", None) else "CUDA"
    cards = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        uuid = f"GPU-{getattr(properties, 'uuid', index)}".replace("GPU-GPU-", "GPU-")
        if uuid in listed:
            cards.append(replace(listed[uuid], name=properties.name))
            continue
        free, total = torch.cuda.mem_get_info(index)
        capability = f"{properties.major}.{properties.minor}"
        cards.append(
            CudaCard(
                name=properties.name,
                uuid=uuid,
                memory=total,
                used_by_others=total - free,
                dtypes=dtypes_of(getattr(properties, "gcnArchName", "") if runtime == "ROCm" else capability),
                runtime=runtime,
            )
        )
    return tuple(cards)


def dtypes_of(architecture: str) -> tuple[str, ...]:
    """Dtypes that a GPU computes natively: of a compute capability (``8.6``) or of AMD's name (``gfx90a:sramecc+``).

    fp16 does not count where it is slower than fp32 (capability 6.1).

    >>> dtypes_of("8.6"), dtypes_of("6.1"), dtypes_of("gfx942:sramecc+:xnack-")
    (('fp32', 'fp16', 'bf16'), ('fp32',), ('fp32', 'fp16', 'bf16', 'fp8'))
    """
    if amd := re.match(r"gfx([0-9a-f]+)", architecture):
        chip = amd.group(1)
        bf16 = chip in {"908", "90a"} or chip.startswith(("94", "95", "11", "12"))
        fp8 = chip.startswith(("94", "95", "12"))
        found = {"fp16": chip >= "906" or len(chip) > 3, "bf16": bf16, "fp8": fp8}
    else:
        numbers = re.match(r"(\d+)\.(\d+)", architecture)
        version = (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
        fp16 = version >= (5, 3) and version != (6, 1)
        found = {"fp16": fp16, "bf16": version >= (8, 0), "fp8": version >= (8, 9)}
    return ("fp32", *(dtype for dtype, has in found.items() if has))


def catalogue_kind(name: str, memory: float | None = None) -> str:
    """The catalogue's name for a card, or the card's own name without maker and spaces.

    ``memory`` in bytes tells cards of one name apart and keeps a name that is only alike from being taken for another.

    >>> catalogue_kind("NVIDIA H200"), catalogue_kind("Tesla V100-SXM2-32GB")
    ('H200', 'V100-SXM2-32GB')
    """
    from ignite_scheduler.formats.catalogue import catalogue

    kinds = catalogue().values()
    wanted = _plain(name)
    same = [kind for kind in kinds if wanted in _names(kind)]
    if same:
        larger = [kind for kind in kinds if re.fullmatch(re.escape(same[0].name) + r"-\d+GB", kind.name)]
        return min(same + larger, key=lambda kind: _distance(kind, memory)).name
    alike = [kind for kind in kinds if _distance(kind, memory) <= _SAME_MEMORY and _is_like(name, kind)]
    if alike and not _OTHER_CHIPS.search(name):
        return max(alike, key=lambda kind: _likeness(wanted, kind)).name
    own = re.sub(r"^(NVIDIA|Tesla|GeForce)\s+", "", re.sub(r"^NVIDIA\s+", "", name.strip()))
    return re.sub(r"[^\w.()-]+", "-", own).strip("-") or "gpu"


def _plain(name: str) -> str:
    return "".join(char for char in _MAKERS.sub("", name).lower() if char.isalnum())


def _names(kind: Kind) -> Iterable[str]:
    return {_plain(kind.name), *map(_plain, kind.aliases)} - {""}


def _distance(kind: Kind, memory: float | None) -> float:
    return 0.0 if memory is None or kind.memory is None else abs(memory - kind.memory) / kind.memory


def _is_like(name: str, kind: Kind) -> bool:
    """Whether the names are nearly the same, model numbers exactly."""
    wanted = _plain(name)
    numbers = re.findall(r"\d{3,}", wanted)
    return _likeness(wanted, kind) >= _ALIKE and all(any(n in own for own in _names(kind)) for n in numbers)


def _likeness(wanted: str, kind: Kind) -> float:
    from difflib import SequenceMatcher

    return max(SequenceMatcher(None, wanted, own).ratio() for own in _names(kind))
