"""Who has which samples, what goes from whom to whom, and which plans the engine refuses."""

from dataclasses import replace

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from ignite_scheduler.engine.abilities import ABILITIES, abilities_of, check_able
from ignite_scheduler.engine.chain import StageModule
from ignite_scheduler.engine.crew import Crew
from ignite_scheduler.engine.data import Reading
from ignite_scheduler.engine.doctor import Arrangement, bare_plan, replicated
from ignite_scheduler.engine.rehearsal import per_sample
from ignite_scheduler.errors import InputError
from ignite_scheduler.model import Batch, Job, Plan, Reference

pytestmark = pytest.mark.torch

SHARES = st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4), min_size=1, max_size=4)


def crew_of(shares: list[list[int]]) -> Crew:
    numbers = iter(range(100))
    return Crew(
        ranks=tuple(tuple(next(numbers) for _ in own) for own in shares), samples=tuple(tuple(own) for own in shares)
    )


def plan(**arranged: object) -> Plan:
    job = Job(name="j", model=Reference(zoo="mlp"), batch=Batch(total=8))
    return bare_plan(job, ["a", "b"], Arrangement(split=(1, 1), **arranged), (3, 3, 2), "1f1b")  # type: ignore[arg-type]


# -- samples --------------------------------------------------------------------------------------------------------


@given(own=st.lists(st.integers(1, 5), min_size=1, max_size=5), data=st.data())
def test_replicas_hold_each_place_of_the_batch_once(own: list[int], data: st.DataObject) -> None:
    sizes = [sum(own)] * data.draw(st.integers(0, 3)) + [data.draw(st.integers(1, sum(own)))]
    crew = crew_of([own])
    by_rank = [crew.runs(0, rank, sizes) for rank in crew.ranks[0]]
    start = 0
    for k, size in enumerate(sizes):
        assert [place for runs in by_rank for place in runs[k]] == list(range(start, start + size))
        start += size


@given(left=st.lists(st.integers(1, 5), min_size=1, max_size=4), data=st.data())
def test_pieces_bring_each_sample_to_its_place(left: list[int], data: st.DataObject) -> None:
    total = sum(left)
    cuts = sorted(data.draw(st.sets(st.integers(1, total - 1), max_size=3))) if total > 1 else []
    right = [b - a for a, b in zip([0, *cuts], [*cuts, total], strict=True)]
    crew, size = crew_of([left, right]), data.draw(st.integers(1, total))
    sent = {rank: range(*crew.run(0, rank, size)) for rank in crew.ranks[0]}
    found = {rank: [-1] * len(range(*crew.run(1, rank, size))) for rank in crew.ranks[1]}
    for piece in crew.pieces(0, 1, size):
        for i in range(piece.size):
            assert found[piece.receiver][piece.put + i] == -1
            found[piece.receiver][piece.put + i] = sent[piece.sender][piece.taken + i]
    assert [sample for rank in crew.ranks[1] for sample in found[rank]] == list(range(size))


def test_a_replica_reads_its_own_samples_and_skips_what_is_not_its_own() -> None:
    class Items:
        def __init__(self) -> None:
            self.read: list[tuple[int, str]] = []

        def item(self, index: int, key: str) -> tuple[int, int]:
            self.read.append((index, key))
            return index, -index

        def stack(self, items: list[int]) -> tuple[Tensor]:
            return (torch.tensor(items),)

        def stack_targets(self, items: list[int]) -> Tensor:
            return torch.tensor(items)

    items = Items()
    crew = crew_of([[3, 1]])
    places = crew.runs(0, 1, (4, 1, 4))
    assert places == (range(3, 4), range(5, 5), range(8, 9)), "of a single sample it has none"
    reading = Reading(items, torch.arange(10, 19), "7/0", places, inputs=True, targets=True)  # type: ignore[arg-type]
    assert reading.targets(2).tolist() == [-18]
    assert reading.inputs(0)[0].tolist() == [13]
    assert reading.inputs(2)[0].tolist() == [18]
    assert reading.complete
    assert items.read == [(13, "7/0/3"), (18, "7/0/8")], "random numbers start from the place in the whole batch"


# -- which outputs run over samples ---------------------------------------------------------------------------------


class Several(nn.Module):
    """Several kinds of outputs, all of which look alike for 4 samples."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return x, torch.ones(4, 4), x.new_zeros(len(x), 2), torch.arange(4)


@pytest.mark.parametrize("samples", [1, 2, 4])
def test_outputs_that_change_with_the_samples_run_over_them(samples: int) -> None:
    stage, inputs = StageModule(index=0, layers=nn.Sequential(Several())), (torch.zeros(samples, 4),)
    outputs = stage(inputs, seed=0, step=0, samples=torch.arange(samples))
    assert per_sample(stage, inputs, (True,), outputs, samples=samples) == (True, False, True, False)
    assert stage.layers.training


def test_samples_along_another_dimension_are_refused_by_name() -> None:
    class Turned(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.T

    stage, inputs = StageModule(index=3, layers=nn.Sequential(Turned())), (torch.zeros(2, 5),)
    with pytest.raises(InputError, match=r"stage 3: its output is float32\[5, 2\] for 2 samples and float32\[5, 1\]"):
        per_sample(stage, inputs, (True,), (inputs[0].T,), samples=2)


def test_rehearsing_leaves_statistics_and_random_numbers_alone() -> None:
    norm = nn.BatchNorm1d(3)
    stage, inputs = StageModule(index=0, layers=nn.Sequential(norm)), (torch.randn(4, 3),)
    before = {name: tensor.clone() for name, tensor in norm.state_dict().items()}
    state = torch.get_rng_state()
    per_sample(stage, inputs, (True,), inputs, samples=4)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(tensor, before[name]) for name, tensor in norm.state_dict().items())


# -- what is refused ------------------------------------------------------------------------------------------------


def test_what_the_engine_is_able_to_do_it_accepts() -> None:
    assert frozenset({"replicas", "recompute", "shard", "offload"}) == ABILITIES
    check_able(plan(shares=((2, 1), (1, 2)), actions=("recompute", "shard", "offload")))
    check_able(replace(plan(), stages=tuple(replace(s, inputs=() if s.index == 0 else (0,)) for s in plan().stages)))


def test_models_with_batch_statistics_are_planned_without_replicas() -> None:
    def job(**args: object) -> Job:
        return Job(name="j", model=Reference(zoo="vgg11", args={"width": 0.1, **args}), batch=Batch(total=8))

    assert abilities_of(job()) == ABILITIES
    assert abilities_of(job(batch_norm=True)) == ABILITIES - {"replicas"}
    assert abilities_of(job(width="wide")) == ABILITIES, "what is wrong with it is told by those who build it"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"inputs": ()}, "stage 1 .* is fed by stages \\[\\]: this engine runs chains of stages only"),
        ({"optimizer_shards": 2}, "stage 1 .* over all of its 1 devices, found 2 shards"),
        ({"devices": plan().stages[0].devices}, "several stages on one device"),
        ({"devices": plan(shares=((2, 2), (2, 2))).stages[1].devices}, "a microbatch of 3, found \\[2, 2\\]"),
    ],
)
def test_other_plans_are_refused_with_the_reason(change: dict[str, object], words: str) -> None:
    first, second = plan().stages
    with pytest.raises(InputError, match=words):
        check_able(replace(plan(), stages=(first, replace(second, **change))))  # type: ignore[arg-type]


def test_the_doctor_tries_unequal_shares_wherever_there_are_samples_to_share() -> None:
    assert replicated(1, 8) == []
    assert replicated(5, 1) == []
    bare, acting = replicated(5, 6)
    assert (bare.split, bare.shares, bare.num_ranks) == ((3, 2), ((4, 2), (2, 4)), 4)
    assert acting == replace(bare, actions=("recompute", "shard", "offload"))
