"""What is found on machines that are not this one: their files and drivers are played."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ignite_scheduler.cli import cards, discovery
from ignite_scheduler.cli.cards import CudaCard, catalogue_kind
from ignite_scheduler.cli.discovery import Machine, System, cluster_document
from ignite_scheduler.formats import load_cluster, parse_cluster, write_yaml

GIB = 2**30


def machine(**facts: Any) -> Machine:
    return Machine(**{"host": "h", "processor": "p", "cores": 2.0, "memory": 8 * GIB, "cards": ()} | facts)


def card(**facts: Any) -> CudaCard:
    known = {"name": "NVIDIA H200", "uuid": "GPU-1234", "memory": 140 * GIB, "used_by_others": 0}
    return CudaCard(**known | facts)


# --- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "gib", "kind"),
    [
        ("NVIDIA A100-SXM4-40GB", 40, "A100-SXM4-40GB"),
        ("NVIDIA A100 80GB PCIe", 80, "A100-PCIE-80GB"),
        ("A100-SXM-80GB", 80, "A100-SXM4-80GB"),
        ("Tesla V100-SXM2-32GB", 32, "V100-SXM2-32GB"),
        ("Tesla P100-PCIE-16GB", 16, "P100-16GB"),
        ("Tesla K80", 11.2, "K80"),
        ("NVIDIA H100 80GB HBM3", 80, "H100-SXM5-80GB"),
        ("NVIDIA H200", 140.4, "H200"),
        ("NVIDIA GeForce RTX 4090", 24, "RTX-4090"),
        ("GeForce RTX 2080 Ti", 10.8, "RTX-2080-Ti"),
        ("NVIDIA GeForce RTX 4060 Ti", 8, "RTX-4060-Ti"),
        ("NVIDIA GeForce RTX 4060 Ti", 16, "RTX-4060-Ti-16GB"),
        ("NVIDIA RTX A6000", 48, "RTX-A6000"),
        ("Quadro RTX 8000", 45, "Quadro-RTX-8000"),
        ("NVIDIA TITAN RTX", 24, "TITAN-RTX"),
        ("AMD Instinct MI300X", 192, "MI300X"),
        ("AMD Instinct MI250X", 64, "MI250X"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16, "RTX-4090-Laptop-GPU"),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", 16, "RTX-4070-Ti-Super"),
        ("AMD Radeon RX 7900 XTX", 24, "AMD-Radeon-RX-7900-XTX"),
        ("NVIDIA Whatever 9000: a+b/c", 24, "Whatever-9000-a-b-c"),
    ],
)
def test_a_card_has_the_name_of_the_catalogue(name: str, gib: float, kind: str) -> None:
    assert catalogue_kind(name, gib * GIB) == kind


@given(st.text(max_size=30))
def test_any_name_makes_a_kind_that_a_file_may_hold(name: str) -> None:
    parse_cluster(cluster_document(machine(cards=(card(name=name),))))


@pytest.mark.parametrize(
    ("architecture", "dtypes"),
    [
        ("3.7", {"fp32"}), ("6.0", {"fp32", "fp16"}), ("6.1", {"fp32"}), ("7.0", {"fp32", "fp16"}),
        ("8.0", {"fp32", "fp16", "bf16"}), ("8.9", {"fp32", "fp16", "bf16", "fp8"}),
        ("12.0", {"fp32", "fp16", "bf16", "fp8"}), ("gfx906:sramecc+", {"fp32", "fp16"}),
        ("gfx908", {"fp32", "fp16", "bf16"}), ("gfx90a", {"fp32", "fp16", "bf16"}),
        ("gfx942", {"fp32", "fp16", "bf16", "fp8"}), ("gfx803", {"fp32"}), ("gfx1100", {"fp32", "fp16", "bf16"}),
        ("", {"fp32"}), ("[N/A]", {"fp32"}),
    ],
)  # fmt: skip
def test_an_architecture_tells_the_dtypes(architecture: str, dtypes: set[str]) -> None:
    assert set(cards.dtypes_of(architecture)) == dtypes


# --- cards ----------------------------------------------------------------------------------------------------------

GPUS = """\
GPU-aaaa, NVIDIA A100-SXM4-40GB, 40960, 30720, 8.0
GPU-bbbb, NVIDIA Thing, Max, 16384, 16384, 8.9
GPU-cccc, Tesla T4, 15360, 15100, 7.5
"""
PROCESSES = "GPU-aaaa, 4711\nGPU-aaaa, 4712\nGPU-cccc, 99\n"


def test_the_drivers_own_tool_tells_how_full_cards_are() -> None:
    found = cards.smi_cards(GPUS, PROCESSES)

    assert set(found) == {"GPU-aaaa", "GPU-cccc"}  # a line that cannot be told apart is left out
    a100 = found["GPU-aaaa"]
    assert (a100.memory, a100.used_by_others, a100.num_processes) == (40 * GIB, 10 * GIB, 2)
    assert a100.kind == "A100-SXM4-40GB"


@pytest.mark.parametrize("text", ["", "No devices were found\n", "NVIDIA-SMI has failed, because, it, did, so\n"])
def test_a_driver_that_fails_shows_no_card(text: str) -> None:
    assert cards.smi_cards(text, text) == {}


@dataclass
class PlayedTorch:
    """The part of torch that discovery asks."""

    devices: list[Any]
    hip: str | None = None
    asked: list[int] = field(default_factory=list)

    @property
    def version(self) -> Any:
        return SimpleNamespace(hip=self.hip)

    @property
    def cuda(self) -> Any:
        def free_and_total(index: int) -> tuple[int, int]:
            self.asked.append(index)
            return 6 * GIB, 8 * GIB

        return SimpleNamespace(
            device_count=lambda: len(self.devices),
            get_device_properties=lambda index: self.devices[index],
            mem_get_info=free_and_total,
        )


def test_cards_that_the_process_may_use_in_its_order_with_the_drivers_figures() -> None:
    t4 = SimpleNamespace(name="Tesla T4", uuid="cccc", major=7, minor=5)
    other = SimpleNamespace(name="NVIDIA Thing", uuid="dddd", major=8, minor=9)
    torch = PlayedTorch([t4, other])

    seen = cards.torch_cards(torch, cards.smi_cards(GPUS, PROCESSES))

    assert [c.uuid for c in seen] == ["GPU-cccc", "GPU-dddd"]  # the A100 is hidden from this process
    assert seen[0].used_by_others == 260 * 2**20
    assert (seen[1].memory, seen[1].used_by_others) == (8 * GIB, 2 * GIB)
    assert torch.asked == [1]  # asking the runtime makes a context: only where nobody else tells


def test_rocm_is_found_through_the_same_functions() -> None:
    mi250x = SimpleNamespace(name="AMD Instinct MI250X", uuid="x", major=9, minor=0, gcnArchName="gfx90a:sramecc+")

    (found,) = cards.torch_cards(PlayedTorch([mi250x], hip="6.2"), {})

    assert (found.runtime, found.kind, found.dtypes) == ("ROCm", "MI250X", ("fp32", "fp16", "bf16"))


# --- processor and memory -------------------------------------------------------------------------------------------


def played(folder: Path, files: dict[str, str]) -> System:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return System(proc=folder / "proc", cgroup=folder / "cgroup", board=folder / "board")


MEMINFO = {"proc/meminfo": "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:   12582912 kB\n"}


def test_version_2_groups_bound_cores_and_memory(tmp_path: Path) -> None:
    system = played(
        tmp_path,
        MEMINFO
        | {
            "proc/self/cgroup": "0::/app/job\n",
            "cgroup/cgroup.controllers": "cpu memory\n",
            "cgroup/app/cpu.max": "150000 100000\n",
            "cgroup/app/job/cpu.max": "max 100000\n",
            "cgroup/app/memory.max": f"{4 * GIB}\n",
            "cgroup/app/memory.current": f"{3 * GIB}\n",
            "cgroup/app/memory.stat": f"anon 5\ninactive_file {GIB}\n",
            "cgroup/app/job/memory.max": "max\n",
        },
    )

    assert discovery.cpu_quota(system) == 1.5
    assert discovery.memory_limit(system) == discovery.usable_memory(system) == 4 * GIB
    assert discovery.used_memory(system) == 2 * GIB  # a file's pages that lie idle are given back at once


def test_version_1_groups_bound_cores_and_memory(tmp_path: Path) -> None:
    system = played(
        tmp_path,
        MEMINFO
        | {
            "proc/self/cgroup": "4:memory:/docker/x\n1:cpu,cpuacct:/\n",
            "cgroup/cpu/cpu.cfs_quota_us": "50000\n",
            "cgroup/cpu/cpu.cfs_period_us": "100000\n",
            "cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "cgroup/memory/memory.usage_in_bytes": f"{9 * GIB}\n",
        },
    )

    assert discovery.cpu_quota(system) == 0.5
    assert discovery.memory_limit(system) is None
    assert discovery.usable_memory(system) == 16 * GIB
    assert discovery.used_memory(system) == 4 * GIB


def test_a_system_that_tells_nothing_is_no_error(tmp_path: Path) -> None:
    system = played(tmp_path, {})

    assert discovery.cpu_quota(system) is None
    assert discovery.usable_memory(system) is None
    assert discovery.used_memory(system) == 0
    assert discovery.processor_name(system)


def test_boards_and_processors_have_kinds(tmp_path: Path) -> None:
    pi = played(tmp_path, {"board": "Raspberry Pi 5 Model B Rev 1.0\0"})

    assert discovery.processor_kind(discovery.processor_name(pi)) == "Raspberry-Pi-5"
    assert discovery.processor_kind("AMD EPYC 7763 64-Core Processor") == "EPYC-7763"
    assert discovery.processor_kind("AMD EPYC") is None


# --- the file -------------------------------------------------------------------------------------------------------


def test_what_is_found_reads_back_as_a_cluster(tmp_path: Path) -> None:
    found = machine(
        used_by_others=2 * GIB,
        cards=(card(used_by_others=GIB), card(name="NVIDIA Thing", uuid="GPU-5", dtypes=("fp32", "fp8"))),
    )
    write_yaml(tmp_path / "cluster.yaml", cluster_document(found))

    cluster = load_cluster(tmp_path / "cluster.yaml")

    assert [device.id for device in cluster.devices] == ["h/cpu-0", "h/cpu-1", "h/GPU-1234", "h/GPU-5"]
    assert [device.memory / GIB for device in cluster.devices] == [3, 3, 139, 140]
    assert cluster.device("h/GPU-1234").kind == "H200"
    assert cluster.device("h/GPU-5").dtypes == {"fp32", "fp8"}


def test_a_card_that_others_fill_is_still_a_device() -> None:
    full = card(memory=GIB, used_by_others=GIB)
    assert parse_cluster(cluster_document(machine(cards=(full,)))).devices[-1].memory == GIB
