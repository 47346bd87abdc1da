"""Models that are no chain, cut along the graph of their forward."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

import graph_samples as samples  # noqa: E402  # after the skip
from torch import Tensor, nn  # noqa: E402
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict  # noqa: E402

from ignite_scheduler import zoo  # noqa: E402
from ignite_scheduler.errors import InputError  # noqa: E402
from ignite_scheduler.model import Reference  # noqa: E402
from ignite_scheduler.zoo.chain import Layers, fingerprint, layers, tied_layers  # noqa: E402
from ignite_scheduler.zoo.dropout import drawing  # noqa: E402
from ignite_scheduler.zoo.graph import graph_chain  # noqa: E402
from ignite_scheduler.zoo.segment import original_names  # noqa: E402

pytestmark = pytest.mark.torch


def numbers(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, samples.WIDTH, generator=torch.Generator().manual_seed(seed))


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[..., Tensor]]] = {
    "skip": (samples.Skip, numbers),
    "decoder": (samples.Decoder, samples.tokens),
    "last": (samples.Last, samples.tokens),
    "looped": (samples.Looped, numbers),
    "looped-norm": (lambda: samples.Looped(norm=True), numbers),
    "staged": (samples.Staged, numbers),
    "in-place": (samples.InPlace, numbers),
    "stochastic": (samples.Stochastic, numbers),
    "fixed": (samples.Fixed, numbers),
    "single": (samples.Single, numbers),
}


def built(name: str) -> tuple[nn.Module, Layers, Callable[..., Tensor]]:
    make, inputs = MODELS[name]
    torch.manual_seed(0)
    model = make()
    return model, graph_chain(model, (inputs(3),), name), inputs


def crossing(chain: Layers, inputs: Tensor) -> list[tuple[tuple[int, ...], ...]]:
    """Shapes of what leaves each layer."""
    values, found = inputs, []
    for _, layer in layers(chain):
        values = layer(values)
        parts = values if isinstance(values, tuple) else (values,)
        found.append(tuple(tuple(part.shape) for part in parts))
    return found


def whole(model: nn.Module, inputs: Tensor) -> Tensor:
    result = model(inputs)
    return result["logits"] if isinstance(result, dict) else result


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("count", [1, 2, 7])
def test_layers_compute_what_the_model_does_and_have_its_gradients(name: str, count: int) -> None:
    model, chain, inputs = built(name)
    given = inputs(count, seed=5)
    model.eval()
    chain.eval()
    expected, found = whole(model, given), chain(given)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    wanted, got = (
        torch.autograd.grad(output.square().sum(), parameters, materialize_grads=True) for output in (expected, found)
    )
    for a, b in zip(wanted, got, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["decoder", "last", "looped", "stochastic"])
def test_what_is_dropped_does_not_depend_on_how_the_batch_is_cut(name: str) -> None:
    _, chain, inputs = built(name)
    given = inputs(5)
    chain.train()
    with drawing(3, 1, torch.arange(5)):
        together = chain(given)
    apart = []
    for part in (slice(0, 2), slice(2, 5)):
        with drawing(3, 1, torch.arange(5)[part]):
            apart.append(chain(given[part]))
    torch.testing.assert_close(torch.cat(apart), together, rtol=1e-5, atol=1e-6)
    with drawing(3, 2, torch.arange(5)):
        assert not torch.equal(chain(given), together), "another step drops others"
    assert not torch.equal(chain.eval()(given), together)


def test_layers_are_named_by_their_blocks_and_carry_what_is_read_later() -> None:
    _, chain, _ = built("skip")
    assert [name for name, _ in layers(chain)] == ["first", "middle", "last"]
    assert crossing(chain, numbers(4)) == [((4, 6),), ((4, 6),), ((4, 6),)]
    _, chain, _ = built("decoder")
    assert [name for name, _ in layers(chain)] == ["embed", "blocks.0", "blocks.1", "blocks.2", "head"]
    # Each block makes the mask of 12 x 12 booleans anew from the 12 tokens of 8 bytes, which are less to send.
    assert crossing(chain, samples.tokens(4))[:3] == [((4, 12), (4, 12, 6))] * 3
    assert crossing(chain, samples.tokens(4))[3:] == [((4, 12, 6),), ((4, 12, 9),)]
    # The place of the last word is less to send to the head than the tokens, from which it is found.
    _, chain, _ = built("last")
    assert crossing(chain, samples.tokens(4))[3] == ((4, 12, 6), (4,))


def test_a_stage_of_blocks_is_cut_within_where_no_more_crosses_than_at_its_ends() -> None:
    _, chain, _ = built("staged")
    assert [name for name, _ in layers(chain)] == ["stages.0.parts.0", "stages.0.parts.1", "stages.1", "head"]


def test_a_block_that_runs_again_shares_its_weights_and_draws_anew() -> None:
    _, chain, _ = built("looped")
    names = [name for name, _ in layers(chain)]
    assert names == ["block", "block~2", "block~3", "head"]
    assert tied_layers(chain) == (("block", "block~2", "block~3"),)
    ones = torch.ones(4, samples.WIDTH)
    with drawing(0, 0, torch.arange(4)):
        first, second = (chain.train()[index](ones) == 0 for index in (0, 1))
    assert not torch.equal(first, second)


def test_frozen_weights_are_cut_like_others() -> None:
    _, chain, _ = built("fixed")
    assert [name for name, _ in layers(chain)] == ["first", "middle", "last"]
    assert not chain[1](chain[0](numbers(2)))[0].requires_grad


def test_what_cannot_be_shared_by_two_stages_stays_in_one() -> None:
    _, chain, _ = built("looped-norm")
    assert [name for name, _ in layers(chain)] == ["block", "head"]
    _, chain, _ = built("in-place")
    assert [name for name, _ in layers(chain)] == ["first", "last"]


def test_a_state_that_is_changed_between_blocks_is_changed() -> None:
    chain = graph_chain(samples.Counting(), (numbers(3),), "counting")
    for _ in range(2):
        chain(numbers(4))
    assert [float(tensor) for name, tensor in chain.named_buffers() if name.endswith(".runs")] == [2.0]


def test_tied_weights_stay_tied_and_the_models_own_names_are_known() -> None:
    model, chain, _ = built("decoder")
    assert tied_layers(chain) == (("embed", "head"),)
    originals = original_names(chain)
    assert set(originals) == set(chain.state_dict())
    state = {originals[name]: tensor for name, tensor in chain.state_dict().items()}
    assert set(model.state_dict()) <= set(state)
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())


def test_a_layer_holds_its_own_weights_only() -> None:
    model, chain, _ = built("skip")
    others = weakref.ref(model.first.weight), weakref.ref(model)
    kept = chain[2]
    del model, chain
    gc.collect()
    assert [each() for each in others] == [None, None]
    assert kept(numbers(2)).shape == (2, 6)


def test_names_with_dots_are_found_by_whoever_looks_up_parameters() -> None:
    _, chain, _ = built("decoder")
    state = get_model_state_dict(chain)
    assert set(state) == set(chain.state_dict())
    other = copy.deepcopy(chain).double()
    set_model_state_dict(other, state)
    assert chain.blocks.__class__.__name__ == "_Path"
    with pytest.raises(AttributeError, match=r"'blocks\.7'"):
        getattr(chain.blocks, "7")
    with pytest.raises(AttributeError):
        chain.nothing  # noqa: B018


def test_the_outline_has_no_weights_and_the_same_layers() -> None:
    reference, data = Reference(module="graph_samples:Skip"), Reference(module="graph_samples:rows")
    outline, chain = zoo.outline(reference, data=data), zoo.build(reference, seed=1, data=data)
    assert all(parameter.is_meta for parameter in outline.parameters())
    assert fingerprint(outline) == fingerprint(chain)


def test_layers_compute_in_the_jobs_elements() -> None:
    torch.manual_seed(0)
    chain = graph_chain(samples.Decoder(drop=0.0), (samples.tokens(3),), "model", torch.float64).double()
    assert chain(samples.tokens(2)).dtype == torch.float64


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (samples.Looks, r"looks at the values of the samples at .*graph_samples\.py:\d+: .*torch\.where"),
        (samples.Routes, r"decide at .*graph_samples\.py:\d+ how many rows there are \(aten\.nonzero.*torch\.where"),
        (samples.Picks, r"decide at .*graph_samples\.py:\d+ how many rows there are \(aten\.index"),
        (samples.Casts, r"calls 'first' under autocast at .*graph_samples\.py:\d+: .*precision"),
        (samples.Averages, r"with another number of samples the forward uses 3 where it used 2.*graph_samples\.py:\d+"),
        (samples.Squares, r"with another number of samples the forward uses 9 where it used 4"),
        (samples.Chance, r"draws random numbers \(aten\.randn.*graph_samples\.py:\d+.*nn\.Dropout"),
        (samples.Fails, r"layer 'middle' with an input of \(2, 6\) fails: RuntimeError"),
        (samples.Boxed, r"a Box with tensors in it passes between blocks at .*graph_samples\.py:\d+"),
        (samples.NoTensor, "returns a str without a tensor in it"),
    ],
)
def test_what_cannot_be_cut_is_one_clear_error(model: type[nn.Module], message: str) -> None:
    with pytest.raises(InputError, match=message):
        graph_chain(model(), (numbers(3),), "my model")


def test_a_wrong_number_of_inputs_is_told() -> None:
    with pytest.raises(InputError, match=r"my model: the forward with an input of .* fails: TypeError"):
        graph_chain(samples.Skip(), (numbers(3), numbers(3)), "my model")
