"""References of a zoo's and of a user's own: resolved, or refused with one clear message."""

from __future__ import annotations

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from zoo_samples import chain as own_chain  # noqa: E402  # after the skip

from ignite_scheduler import zoo  # noqa: E402
from ignite_scheduler.errors import InputError  # noqa: E402
from ignite_scheduler.model import Layer, LayerInput, Profile, Reference  # noqa: E402
from ignite_scheduler.zoo.batches import take  # noqa: E402
from ignite_scheduler.zoo.chain import as_chain, fingerprint, first_difference, is_stale, layers  # noqa: E402
from ignite_scheduler.zoo.check import check  # noqa: E402

pytestmark = pytest.mark.torch

ROWS = Reference(module="zoo_samples:rows")


def test_names_can_be_listed_without_torch() -> None:
    code = "import sys; from ignite_scheduler import zoo; print(len(zoo.MODELS), 'torch' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.split() == [str(len(zoo.MODELS)), "False"]


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (Reference(zoo="alexnett"), "did you mean alexnet"),
        (Reference(zoo="alexnet", args={"widht": 1}), "did you mean width"),
        (Reference(zoo="alexnet", args={"size": "large"}), "size must be of type int"),
        (Reference(zoo="alexnet", args={"size": True}), "size must be of type int"),
        (Reference(zoo="gpt", args={"tied": 1}), "tied must be of type bool"),
        (Reference(zoo="mlp", args={"hidden": 3}), "hidden must be a list of whole numbers"),
        (Reference(), "is built from a name of the zoo or from a module"),
        (Reference(zoo="mlp", module="a:b"), "is built from a name of the zoo or from a module"),
        (Reference(module="../secret:x"), "is written 'pkg.mod:name'"),
        (Reference(module="os.system"), "is written 'pkg.mod:name'"),
        (Reference(module="zoo_samples:chain; rm"), "is written 'pkg.mod:name'"),
        (Reference(module="no_such_module:build"), "cannot be imported"),
        (Reference(module="zoo_samples:chian"), "did you mean chain"),
        (Reference(module="zoo_samples:NOT_CALLABLE"), "must be callable"),
        (Reference(module="zoo_samples:chain", args={"wide": 3}), "unexpected keyword argument 'wide'"),
        (Reference(module="zoo_samples:failing"), "KeyError: 'no weights here'"),
        (Reference(module="zoo_samples:no_module"), "must return an nn.Sequential"),
        (Reference(module="torch.nn:ReLU"), "without children"),
        (Reference(module="zoo_samples:WithOwnWeight"), "keeps scale outside of its layers"),
        (Reference(module="zoo_samples:reused"), "layers '0' and '2' are one module"),
        (Reference(module="zoo_samples:attention"), "MultiheadAttention at '0.self_attn'"),
    ],
)
def test_a_wrong_model_is_one_clear_error(reference: Reference, message: str) -> None:
    with pytest.raises(InputError) as caught:
        zoo.build(reference)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [("cross_entropi", "did you mean cross_entropy"), ("zoo_samples:los", "has no 'los'"), ("a b:c", "is written")],
)
def test_a_wrong_loss_is_one_clear_error(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        zoo.loss(name)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (Reference(zoo="digit"), "did you mean digits"),
        (Reference(module="zoo_samples:rows", args={"length": 0}), "without samples"),
        (Reference(module="builtins:int"), "map-style data set"),
    ],
)
def test_a_wrong_data_set_is_one_clear_error(reference: Reference, message: str) -> None:
    with pytest.raises(InputError, match=message):
        zoo.dataset(reference)


def test_what_has_a_length_and_items_is_still_no_data_set() -> None:
    with pytest.raises(InputError, match=r"must be \(input, target\)"):
        take(zoo.dataset(Reference(module="zoo_samples:chain")), range(2))


@pytest.mark.parametrize("name", ["chain", "InOrder", "tuples"])
def test_a_users_own_model_is_a_chain(name: str) -> None:
    check(Reference(module=f"zoo_samples:{name}"), ROWS, "cross_entropy")
    check(Reference(module=f"zoo_samples:{name}"), ROWS, "zoo_samples:sum_loss")


def test_a_stateless_layer_may_stand_twice() -> None:
    built = zoo.build(Reference(module="zoo_samples:chain"))
    assert [name for name, _ in layers(built)] == ["0", "1", "2", "3", "4"]
    assert [name for name, _ in built.named_children()] == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("model", "data", "loss", "message"),
    [
        ("WithOwnGradient", "rows", "cross_entropy", "gives other gradients than whole"),
        ("mixing", "rows", "cross_entropy", "dimension 0 must run over the samples"),
        ("open_ended", "rows", "cross_entropy", "the last layer must return one tensor"),
        ("chain", "rows", "zoo_samples:mean_loss", "does it take the mean"),
        ("chain", "rows", "zoo_samples:each_loss", "must return one number"),
        ("chain", "rows", "zoo_samples:detached_loss", "nothing to train"),
        ("chain", "rows", "mse", "elements of the output"),
        ("chain", "ragged", "cross_entropy", "differ in shape"),
        ("chain", "triples", "cross_entropy", r"must be \(input, target\)"),
        ("chain", "mappings", "cross_entropy", "found a mapping of text, label; several inputs make a tuple"),
        ("chain", "named_inputs", "cross_entropy", "is a mapping of tokens: give inputs by position"),
        ("chain", "words", "cross_entropy", "not made of tensors or numbers"),
    ],
)
def test_what_does_not_fit_together_is_told(model: str, data: str, loss: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check(Reference(module=f"zoo_samples:{model}"), Reference(module=f"zoo_samples:{data}"), loss)


@pytest.mark.parametrize(
    ("model", "mixes"), [("chain", False), ("InOrder", False), ("with_batch_norm", True), ("centred", True)]
)
def test_a_model_whose_samples_depend_on_each_other_is_told(model: str, mixes: bool) -> None:
    warnings = check(Reference(module=f"zoo_samples:{model}"), ROWS, "cross_entropy")
    assert ["depends on the other samples" in warning for warning in warnings] == [True] * mixes


def test_a_failing_layer_is_named_with_the_shape_of_its_input() -> None:
    with pytest.raises(InputError, match=r"layer 'linear0' with an input of \(2, 3\) float32 fails"):
        check(Reference(zoo="mlp", args={"features": 4}), ROWS, "cross_entropy")


def test_a_class_that_the_model_has_not_is_told() -> None:
    with pytest.raises(InputError, match="loss 'cross_entropy' with an output of shape"):
        check(Reference(zoo="mlp", args={"features": 3, "outputs": 1}), ROWS, "cross_entropy")


def test_only_a_zoo_model_has_default_data() -> None:
    with pytest.raises(InputError, match="name a data set"):
        zoo.default_data(Reference(module="zoo_samples:chain"))


def profile_of(names: list[str], structure: str | None) -> Profile:
    return Profile(
        name="p",
        precision="fp32",
        reference="cpu",
        layers=tuple(
            Layer(
                name=name,
                parameter_bytes=0.0,
                output_bytes=0.0,
                activation_bytes=0.0,
                times={},
                inputs=(LayerInput(source="input"),),
            )
            for name in names
        ),
        provenance={} if structure is None else {"structure": structure},
    )


def test_a_stale_profile_is_recognised() -> None:
    small, again, large = (as_chain(own_chain(width), "test") for width in (4, 4, 5))
    names = [name for name, _ in layers(small)]
    assert fingerprint(small) == fingerprint(again) != fingerprint(large)
    assert not is_stale(small, profile_of(names, fingerprint(again)))
    assert not is_stale(small, profile_of(names, None))
    assert is_stale(small, profile_of(names, fingerprint(large)))


def test_the_first_layer_that_differs_is_named() -> None:
    chain = as_chain(own_chain(4), "test")
    names = [name for name, _ in layers(chain)]
    assert first_difference(chain, profile_of(names, None)) is None
    assert first_difference(chain, profile_of([*names[:2], "x", *names[3:]], None)) == (
        f"layer 2 is {names[2]!r} in the model, 'x' in the profile"
    )
    told = first_difference(chain, profile_of([*names, "x"], None))
    assert told == f"layer {len(names)} is none in the model, 'x' in the profile"
    assert first_difference(chain, profile_of(names[::-1], None)) is not None


FITS_HERE = [name for name in zoo.MODELS if zoo.MODELS[name].published is None] + ["alexnet", "squeezenet", "mnasnet"]


@pytest.mark.parametrize("name", FITS_HERE)
def test_an_outline_has_the_structure_of_the_model_without_its_weights(name: str) -> None:
    reference = Reference(zoo=name)
    outline = zoo.outline(reference)
    assert fingerprint(outline) == fingerprint(zoo.build(reference, seed=1))
    assert all(parameter.is_meta for parameter in outline.parameters())


def test_a_builder_that_looks_at_its_weights_has_an_outline_too() -> None:
    reference = Reference(module="zoo_samples:looks_at_its_weights")
    assert fingerprint(zoo.outline(reference)) == fingerprint(zoo.build(reference, seed=1))
