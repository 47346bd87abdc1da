"""Models of transformers and timm as they are: cut, measured, planned and trained as pipelines, same gradients."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from library_models import MODELS, library_job  # noqa: E402  # after the skip
from torch import Tensor, nn  # noqa: E402

from ignite_scheduler import zoo  # noqa: E402
from ignite_scheduler.cost.communication import cut_bytes  # noqa: E402
from ignite_scheduler.engine.chain import StageModule, build_chain  # noqa: E402
from ignite_scheduler.engine.doctor import Arrangement, GradientReport, even_splits, gradients  # noqa: E402
from ignite_scheduler.engine.pool import RankPool  # noqa: E402
from ignite_scheduler.engine.transport import Layout, Spec  # noqa: E402
from ignite_scheduler.errors import InputError  # noqa: E402
from ignite_scheduler.model import Profile, Reference  # noqa: E402
from ignite_scheduler.profiler.assembly import timeless_layers  # noqa: E402
from ignite_scheduler.profiler.passes import Bench  # noqa: E402
from ignite_scheduler.profiler.sizes import layer_sizes  # noqa: E402
from ignite_scheduler.zoo.batches import take  # noqa: E402
from ignite_scheduler.zoo.chain import Layers, layers, tied_layers  # noqa: E402
from ignite_scheduler.zoo.rehearsal import output_of  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("default"),  # of libraries, while they are imported
    pytest.mark.skipif(
        find_spec("transformers") is None or find_spec("timm") is None,
        reason="needs transformers and timm: pip install 'ignite-scheduler[hf,timm]'",
    ),
]

NAMES = {
    "gpt2": [
        "transformer.wte",
        "transformer.wpe",
        *(f"transformer.h.{i}" for i in range(3)),
        "transformer.ln_f",
        "lm_head",
    ],
    "llama": ["model.embed_tokens", "model.layers.0", "model.layers.1", "model.norm", "lm_head"],
    "bert": ["bert.embeddings", "bert.encoder.layer.0", "bert.encoder.layer.1", "cls"],
    "bert-classifier": ["bert.embeddings", "bert.encoder.layer.0", "bert.encoder.layer.1", "bert.pooler", "classifier"],
    "vit": ["patch_embed", "blocks.0", "blocks.1", "norm", "head"],
    "resnet": [
        "conv1.0",
        "conv1.1",
        "conv1.3",
        "conv1.4",
        "conv1.6",
        "bn1",
        *(f"layer{i}.0" for i in (1, 2, 3, 4)),
        "fc",
    ],
    "forked": ["down", "deeper", "middle", "up", "out"],
}


@pytest.fixture(scope="module")
def pool() -> Iterator[RankPool]:
    with RankPool(4) as ranks:
        yield ranks


def worst(report: GradientReport) -> tuple[float, float]:
    return max(case.gradient_error for case in report.cases), max(case.loss_error for case in report.cases)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_equal_those_of_one_process(name: str, pool: RankPool) -> None:
    report = gradients(library_job(name), dtype="fp64", pool=pool)
    assert len(report.cases) == (6 if report.same_microbatches else 10), "replicas of two stages last"
    assert {case.microbatches for case in report.cases} == {(3, 3, 2)}
    assert max(worst(report)) <= 1e-12
    assert report.bit_equal


def test_gradients_in_single_precision(pool: RankPool) -> None:
    report = gradients(
        library_job("gpt2"), arrangements=[Arrangement(split=(3, 3, 1))], schedules=["1f1b"], dtype="fp32", pool=pool
    )
    assert max(worst(report)) <= 1e-5


@pytest.mark.parametrize("name", MODELS)
def test_the_cut_model_returns_what_the_whole_one_does(name: str) -> None:
    model, data = MODELS[name]
    chain = zoo.build(model, seed=0, data=data).eval()
    assert [layer for layer, _ in layers(chain)] == NAMES[name]
    whole = _whole(model)
    inputs, _ = take(zoo.dataset(data), range(5))
    parts = (inputs,) if isinstance(inputs, Tensor) else inputs
    expected, found = output_of(whole(*parts), name), chain(inputs)
    assert isinstance(found, Tensor)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    targets = take(zoo.dataset(data), range(5))[1]
    measure = zoo.loss("cross_entropy")
    assert float(measure(found, targets).detach()) == pytest.approx(
        float(measure(expected, targets).detach()), rel=1e-6
    )


def _whole(model: Reference) -> nn.Module:
    from ignite_scheduler.zoo.resolve import original

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        whole: nn.Module = original(model)
    return whole.eval()


def test_tied_embeddings_are_found() -> None:
    for name, tied in {
        "gpt2": ("transformer.wte", "lm_head"),
        "bert": ("bert.embeddings", "cls"),
        "llama": None,
    }.items():
        model, data = MODELS[name]
        found = tied_layers(zoo.build(model, seed=0, data=data))
        assert found == ((tied,) if tied else ()), name


@pytest.mark.parametrize("name", ["gpt2", "bert-classifier", "forked"])
def test_planned_bytes_over_a_cut_are_what_the_engine_sends(name: str) -> None:
    job = library_job(name)
    assert job.data is not None
    chain = build_chain(job.model, seed=0, data=job.data)
    count = 4
    inputs, targets = take(zoo.dataset(job.data), range(count))
    parts = (inputs,) if isinstance(inputs, Tensor) else inputs
    stages = tuple(
        StageModule(index=index, layers=Layers([(layer, module)]))
        for index, (layer, module) in enumerate(layers(chain))
    )
    profile = _profile(chain, stages, parts, targets)
    number = len(stages)
    planned = cut_bytes(profile, (1,) * number)
    values, samples, contiguous = parts, torch.arange(count), []
    for index, stage in enumerate(stages[:-1]):
        values = stage(values, seed=0, step=0, samples=samples)
        assert Layout.of([Spec.of(value) for value in values]).payload == planned[index] * count
        contiguous += [value.is_contiguous() for value in values]
    assert all(contiguous) == (name != "forked"), "boundaries of all kinds are tried"
    for split in even_splits(number)[1:]:
        ends = [sum(split[: index + 1]) - 1 for index in range(len(split) - 1)]
        assert cut_bytes(profile, split) == tuple(planned[end] for end in ends)


def _profile(chain: nn.Module, stages: tuple[StageModule, ...], inputs: tuple[Tensor, ...], targets: Tensor) -> Profile:
    bench = Bench(
        stages=stages,
        whole=StageModule(index=0, layers=chain),  # type: ignore[arg-type]
        loss=zoo.loss("cross_entropy"),
        batches={len(targets): (inputs, targets)},
        device=torch.device("cpu"),
        seed=0,
    )
    found = timeless_layers([name for name, _ in layers(chain)], layer_sizes(bench))  # type: ignore[arg-type]
    return Profile(name="p", precision="fp32", reference=None, layers=found)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (Reference(zoo="huggingface", args={"model": "GPT2LMHeadModell"}), "did you mean GPT2LMHeadModel"),
        (Reference(zoo="huggingface", args={"config": {"n_layers": 2}}), "no option 'n_layers'; did you mean n_layer"),
        (Reference(zoo="huggingface", args={"model": "AutoModelForCausalLM"}), "needs a 'model_type'"),
        (Reference(zoo="timm", args={"model": "resnet81"}), "did you mean resnet"),
        (Reference(zoo="timm", args={"options": {"num_clases": 2}}), "does not take these options: .*num_clases"),
        (Reference(zoo="timm", args={"options": {"pretrained": True}}), "nothing is downloaded"),
        (Reference(zoo="timm", args={"option": {}}), "no argument 'option'; did you mean options"),
    ],
)
def test_a_wrong_name_or_option_is_one_clear_error(reference: Reference, message: str) -> None:
    with pytest.raises(InputError, match=message):
        zoo.build(reference)


def test_a_users_own_function_may_return_one() -> None:
    """In a fresh process, in which nobody has imported transformers yet."""
    code = (
        "import library_models as m; from ignite_scheduler import zoo; from ignite_scheduler.model import Reference\n"
        "chain = zoo.build(Reference(module='own_library_model:build', args={'layers': 2}), data=m.MODELS['gpt2'][1])\n"
        "print([name for name, _ in chain.named_children()])"
    )
    here = Path(__file__).parent
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=here)
    assert done.returncode == 0, done.stderr
    assert "'transformer.h.0', 'transformer.h.1'" in done.stdout


def test_an_auto_class_builds_from_its_model_type() -> None:
    config = {"model_type": "gpt_neox", "num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2}
    config |= {"intermediate_size": 8, "vocab_size": 40}
    reference = Reference(zoo="huggingface", args={"model": "AutoModelForCausalLM", "config": config})
    chain = zoo.build(reference, seed=0, data=MODELS["gpt2"][1])
    assert [name for name, _ in layers(chain)][1:3] == ["gpt_neox.layers.0", "gpt_neox.final_layer_norm"]


_LOADS = """
from ignite_scheduler import zoo
from ignite_scheduler.engine.memory import own_bytes
from ignite_scheduler.model import Reference

small = {"n_layer": 1, "n_embd": 8, "n_head": 1, "vocab_size": 8}
model = Reference(zoo="huggingface", args={"model": "GPT2LMHeadModel", "config": small})
zoo.load_code(model)
idle = own_bytes()
zoo.build(model, seed=0, data=Reference(zoo="synthetic_tokens", args={"vocabulary": 8}))
print(own_bytes() - idle)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells what a process holds")
def test_the_code_of_a_library_is_not_counted_as_memory_of_a_stage() -> None:
    told = subprocess.run([sys.executable, "-c", _LOADS], capture_output=True, text=True, check=True)
    assert int(told.stdout) < 20e6  # transformers alone, with the code of the model, takes twice that
