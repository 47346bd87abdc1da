"""With the same weights, the zoo's models are the same functions as those of transformers and torchvision."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from torch import Tensor, nn  # noqa: E402  # after the skips

from ignite_scheduler import zoo  # noqa: E402
from ignite_scheduler.model import Reference  # noqa: E402
from ignite_scheduler.zoo.libraries import huggingface, mend_torchvision  # noqa: E402

pytestmark = pytest.mark.torch

VOCABULARY, BLOCK, DIM, HEADS, DEPTH, HIDDEN = 61, 12, 48, 6, 2, 80
SHAPE = {"vocabulary": VOCABULARY, "block": BLOCK, "dim": DIM, "heads": HEADS, "depth": DEPTH}


def weights(source: nn.Module, *names: str) -> list[Tensor]:
    return [source.get_parameter(name).detach() for name in names]


def packed(source: nn.Module, *names: str) -> dict[str, Tensor]:
    """Weight and bias of several linear maps, one below the other."""
    return {kind: torch.cat(weights(source, *(f"{name}.{kind}" for name in names))) for kind in ("weight", "bias")}


def linear(source: nn.Module, name: str) -> dict[str, Tensor]:
    return dict(source.get_submodule(name).state_dict())


def gpt(block: nn.Module) -> dict[str, dict[str, Tensor]]:
    turned = {"attention": "attn.c_attn", "projection": "attn.c_proj", "expand": "mlp.c_fc", "contract": "mlp.c_proj"}
    found = {own: linear(block, name) for own, name in turned.items()}
    for tensors in found.values():
        tensors["weight"] = tensors["weight"].T  # transformers keeps these maps the other way round
    return found | {"norm1": linear(block, "ln_1"), "norm2": linear(block, "ln_2")}


def llama(block: nn.Module) -> dict[str, dict[str, Tensor]]:
    names = {
        "norm1": "input_layernorm",
        "norm2": "post_attention_layernorm",
        "attention.query": "self_attn.q_proj",
        "attention.key": "self_attn.k_proj",
        "attention.value": "self_attn.v_proj",
        "attention.projection": "self_attn.o_proj",
        "gate": "mlp.gate_proj",
        "expand": "mlp.up_proj",
        "contract": "mlp.down_proj",
    }
    return {own: linear(block, name) for own, name in names.items()}


def falcon(block: nn.Module) -> dict[str, dict[str, Tensor]]:
    (mixed,) = weights(block, "self_attention.query_key_value.weight")
    size, groups = DIM // HEADS, 2 if hasattr(block, "ln_mlp") else 1
    parts = mixed.view(groups, HEADS // groups + 2, size, DIM)  # each group's queries, then its key and its value
    query, key, value = parts[:, :-2].reshape(-1, DIM), parts[:, -2].reshape(-1, DIM), parts[:, -1].reshape(-1, DIM)
    norms = {"norm1": "ln_attn", "norm2": "ln_mlp"} if groups == 2 else {"norm1": "input_layernorm"}
    names = {"expand": "mlp.dense_h_to_4h", "contract": "mlp.dense_4h_to_h"} | norms
    names["attention.projection"] = "self_attention.dense"
    own = {"attention.query": {"weight": query}, "attention.key": {"weight": key}, "attention.value": {"weight": value}}
    return own | {own_name: linear(block, name) for own_name, name in names.items()}


def bloom(block: nn.Module) -> dict[str, dict[str, Tensor]]:
    mixed = linear(block, "self_attention.query_key_value")  # head by head, of each its query, key and value
    parts = {kind: tensor.view(HEADS, 3, DIM // HEADS, -1) for kind, tensor in mixed.items()}
    own = {kind: tensor.transpose(0, 1).reshape(mixed[kind].shape) for kind, tensor in parts.items()}
    names = {
        "norm1": "input_layernorm",
        "norm2": "post_attention_layernorm",
        "attention.projection": "self_attention.dense",
        "expand": "mlp.dense_h_to_4h",
        "contract": "mlp.dense_4h_to_h",
    }
    return {"attention.packed": own} | {own_name: linear(block, name) for own_name, name in names.items()}


def bert(block: nn.Module) -> dict[str, dict[str, Tensor]]:
    names = {
        "projection": "attention.output.dense",
        "norm1": "attention.output.LayerNorm",
        "expand": "intermediate.dense",
        "contract": "output.dense",
        "norm2": "output.LayerNorm",
    }
    attention = packed(block.get_submodule("attention.self"), "query", "key", "value")
    return {"attention": attention} | {own: linear(block, name) for own, name in names.items()}


Blocks = Callable[[nn.Module], dict[str, dict[str, Tensor]]]
"""Our names of one block's parts → their parameters as the original has them."""
_HF = {"vocab_size": VOCABULARY, "bos_token_id": 1, "eos_token_id": 2}
_WIDE = _HF | {"hidden_size": DIM, "num_hidden_layers": DEPTH, "num_attention_heads": HEADS}
_FALCON = _WIDE | {"parallel_attn": True, "bias": False, "alibi": False}

CASES: dict[str, tuple[str, dict[str, Any], str, dict[str, Any], str, Blocks, dict[str, str]]] = {
    "gpt": (
        "gpt",
        {"tied": True, "dropout": 0.0},
        "GPT2LMHeadModel",
        _HF | {"n_positions": BLOCK, "n_embd": DIM, "n_head": HEADS, "n_layer": DEPTH, "activation_function": "gelu"},
        "transformer.h",
        gpt,
        {
            "embedding.token": "transformer.wte",
            "embedding.position": "transformer.wpe",
            "head.norm": "transformer.ln_f",
        },
    ),
    "llama": (
        "llama",
        {"hidden": HIDDEN},
        "LlamaForCausalLM",
        _WIDE | {"intermediate_size": HIDDEN, "rms_norm_eps": 1e-6},
        "model.layers",
        llama,
        {"embedding.token": "model.embed_tokens", "head.norm": "model.norm", "head.logits": "lm_head"},
    ),
    "falcon-7b": (
        "falcon",
        {"key_heads": 1, "norms": 1},
        "FalconForCausalLM",
        _FALCON | {"new_decoder_architecture": False, "multi_query": True},
        "transformer.h",
        falcon,
        {"embedding.token": "transformer.word_embeddings", "head.norm": "transformer.ln_f"},
    ),
    "falcon-40b": (
        "falcon",
        {"key_heads": 2, "norms": 2},
        "FalconForCausalLM",
        _FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2},
        "transformer.h",
        falcon,
        {"embedding.token": "transformer.word_embeddings", "head.norm": "transformer.ln_f"},
    ),
    "bloom": (
        "bloom",
        {},
        "BloomForCausalLM",
        _HF | {"hidden_size": DIM, "n_layer": DEPTH, "n_head": HEADS, "attn_implementation": "eager"},
        "transformer.h",
        bloom,
        {
            "embedding.token": "transformer.word_embeddings",
            "embedding.norm": "transformer.word_embeddings_layernorm",
            "head.norm": "transformer.ln_f",
        },
    ),
    "bert": (
        "bert",
        {"dropout": 0.0},
        "BertForMaskedLM",
        _WIDE | {"intermediate_size": 4 * DIM, "max_position_embeddings": BLOCK},
        "bert.encoder.layer",
        bert,
        {
            "embedding.token": "bert.embeddings.word_embeddings",
            "embedding.position": "bert.embeddings.position_embeddings",
            "embedding.segment": "bert.embeddings.token_type_embeddings",
            "embedding.norm": "bert.embeddings.LayerNorm",
            "head.transform": "cls.predictions.transform.dense",
            "head.norm": "cls.predictions.transform.LayerNorm",
            "head.logits": "cls.predictions.decoder",
        },
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_transformers(case: str) -> None:
    name, args, model, config, place, of_block, around = CASES[case]
    torch.manual_seed(0)
    original = huggingface(model, config).double().eval()
    for parameter in original.parameters():
        nn.init.normal_(parameter, std=0.3)
    own = zoo.build(Reference(zoo=name, args=SHAPE | args), seed=0).double().eval()
    assert sum(p.numel() for p in own.parameters()) == sum(p.numel() for p in original.parameters())
    for target, source in around.items():
        own.get_submodule(target).load_state_dict(linear(original, source))
    for index, block in enumerate(original.get_submodule(place).children()):
        for target, tensors in of_block(block).items():
            own.get_submodule(f"block{index}.{target}").load_state_dict(tensors)
    tokens = torch.randint(VOCABULARY, (2, BLOCK))
    with torch.no_grad():
        # Tables of positions and of ALiBi are made in single precision there or here.
        torch.testing.assert_close(own(tokens), original(tokens).logits, rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("name", "args", "original"),
    [
        ("squeezenet", {}, "squeezenet1_0"),
        ("squeezenet", {"version": "1.1"}, "squeezenet1_1"),
        ("mnasnet", {}, "mnasnet1_0"),
        ("mnasnet", {"width": 0.5}, "mnasnet0_5"),
    ],
)
def test_classes_are_those_of_torchvision(name: str, args: dict[str, Any], original: str) -> None:
    if find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    mend_torchvision()
    from torchvision import models

    theirs = getattr(models, original)(weights=None).eval()
    own = zoo.build(Reference(zoo=name, args=args), seed=0).eval()
    own.load_state_dict(dict(zip(own.state_dict(), theirs.state_dict().values(), strict=True)))
    images = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(own(images), theirs(images), rtol=1e-5, atol=1e-6)
