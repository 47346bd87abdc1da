"""The transformers of the zoo: of each family a small one to train here, and the published ones by their shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ignite_scheduler.zoo.entries import HERE, Entry, Published, SuitableData, index

_TOKENS: Final = SuitableData(name="synthetic_tokens", args={"block": "block", "vocabulary": "vocabulary"})
_MASKED: Final = SuitableData(name="synthetic_masked_tokens", args=_TOKENS.args)

_SMALL: Final = {"vocabulary": 256, "block": 64, "dim": 128, "heads": 4, "depth": 4}

_GPT: Final = Entry(
    name="gpt",
    description="small decoder-only transformer: embedding, blocks, norm and head; sequences of tokens",
    target=f"{HERE}.transformer:gpt",
    args=_SMALL | {"dropout": 0.1, "tied": False},
    data=_TOKENS,
)
_LLAMA: Final = Entry(
    name="llama",
    description="small decoder of the LLaMA kind: rotary positions, RMS norms, gated perceptrons; sequences of tokens",
    target=f"{HERE}.llama:llama",
    args=_SMALL | {"hidden": 344},
    data=_TOKENS,
)
_FALCON: Final = Entry(
    name="falcon",
    description="small decoder of the Falcon kind: parallel attention, shared keys, rotary positions; tokens",
    target=f"{HERE}.falcon:falcon",
    args=_SMALL | {"key_heads": 2, "norms": 2, "tied": True},
    data=_TOKENS,
)
_BLOOM: Final = Entry(
    name="bloom",
    description="small decoder of the BLOOM kind: positions by ALiBi; sequences of tokens",
    target=f"{HERE}.bloom:bloom",
    args=_SMALL | {"tied": True},
    data=_TOKENS,
)
_BERT: Final = Entry(
    name="bert",
    description="small encoder of the BERT kind with its masked-language-model head; sequences of tokens",
    target=f"{HERE}.bert:bert",
    args=_SMALL | {"dropout": 0.1, "tied": True},
    data=_MASKED,
)


def _of(family: Entry, name: str, title: str, published: Published, **args: Any) -> Entry:
    """The family's model at a published size."""
    return Entry(
        name=name,
        description=f"{title}; {_size(published.parameters)} parameters",
        target=family.target,
        args=dict(family.args) | args,
        data=family.data,
        published=published,
    )


def _size(parameters: int) -> str:
    return f"{parameters / 1e9:.3g} billion" if parameters >= 1e9 else f"{parameters / 1e6:.3g} million"


def _gpt2(name: str, title: str, parameters: int, *, dim: int, heads: int, depth: int) -> Entry:
    published = Published(
        parameters=parameters, source="Keras Hub, gpt2_presets.py; shapes: Radford et al. (2019), table 2"
    )
    shape = {"vocabulary": 50257, "block": 1024, "dim": dim, "heads": heads, "depth": depth, "tied": True}
    return _of(_GPT, name, title, published, **shape)


def _gpt3(name: str, parameters: int, *, dim: int, heads: int, depth: int) -> Entry:
    published = Published(parameters=parameters, source="Brown et al. (2020), table 2.1", exact=False)
    shape = {"vocabulary": 50257, "block": 2048, "dim": dim, "heads": heads, "depth": depth}
    title = f"GPT-3's shape of {_size(parameters)}, with dense attention"
    return _of(_GPT, name, title, published, **shape, dropout=0.0, tied=True)


def _llama(size: str, parameters: int, source: str, *, dim: int, heads: int, hidden: int, depth: int) -> Entry:
    shape = {"vocabulary": 32000, "block": 2048, "dim": dim, "heads": heads, "hidden": hidden, "depth": depth}
    source += "; shapes: Touvron et al. (2023), table 2"
    published = Published(parameters=parameters, source=source)
    return _of(_LLAMA, f"llama-{size.lower()}", f"LLaMA-{size}", published, **shape)


def _falcon(size: str, parameters: int, stored: str, **shape: Any) -> Entry:
    source = f"transformers, FalconForCausalLM; the released files hold {stored}, the tied head's copy included"
    published = Published(parameters=parameters, source=source)
    return _of(_FALCON, f"falcon-{size.lower()}", f"Falcon-{size}", published, vocabulary=65024, block=2048, **shape)


def _bloom(name: str, title: str, parameters: int, **shape: Any) -> Entry:
    source = "model card (Hugging Face bigscience/" + {"bloom-176b": "bloom"}.get(name, name) + ")"
    published = Published(parameters=parameters, source=source)
    return _of(_BLOOM, name, title, published, vocabulary=250880, block=2048, **shape)


def _bert(name: str, title: str, parameters: int, *, dim: int, heads: int, depth: int) -> Entry:
    published = Published(
        parameters=parameters,
        source=f"Hugging Face BertForMaskedLM of {name}-uncased; shapes: Devlin et al. (2019), section 3",
    )
    shape = {"vocabulary": 30522, "block": 512, "dim": dim, "heads": heads, "depth": depth}
    return _of(_BERT, name, title, published, **shape)


LANGUAGE: Final[Mapping[str, Entry]] = index(
    _GPT,
    _LLAMA,
    _FALCON,
    _BLOOM,
    _BERT,
    _bert("bert-base", "BERT-base with its masked-language-model head", 109_514_298, dim=768, heads=12, depth=12),
    _bert("bert-large", "BERT-large with its masked-language-model head", 335_174_458, dim=1024, heads=16, depth=24),
    _gpt2("gpt2", "GPT-2 small", 124_439_808, dim=768, heads=12, depth=12),
    _gpt2("gpt2-medium", "GPT-2 medium", 354_823_168, dim=1024, heads=16, depth=24),
    _gpt2("gpt2-large", "GPT-2 large", 774_030_080, dim=1280, heads=20, depth=36),
    _gpt2("gpt2-xl", "GPT-2 XL", 1_557_611_200, dim=1600, heads=25, depth=48),
    _gpt3("gpt3-125m", 125_000_000, dim=768, heads=12, depth=12),
    _gpt3("gpt3-350m", 350_000_000, dim=1024, heads=16, depth=24),
    _gpt3("gpt3-760m", 760_000_000, dim=1536, heads=16, depth=24),
    # The table has 24 heads of 128 for 1.3B and dim 5140 for 13B, which do not go together: 16 heads, and dim 5120.
    _gpt3("gpt3-1.3b", 1_300_000_000, dim=2048, heads=16, depth=24),
    _gpt3("gpt3-2.7b", 2_700_000_000, dim=2560, heads=32, depth=32),
    _gpt3("gpt3-6.7b", 6_700_000_000, dim=4096, heads=32, depth=32),
    _gpt3("gpt3-13b", 13_000_000_000, dim=5120, heads=40, depth=40),
    _gpt3("gpt3-175b", 175_000_000_000, dim=12288, heads=96, depth=96),
    _llama("7B", 6_738_415_616, "Keras Hub, llama_presets.py", dim=4096, heads=32, hidden=11008, depth=32),
    _llama("13B", 13_015_864_320, "transformers, LlamaForCausalLM", dim=5120, heads=40, hidden=13824, depth=40),
    _llama("65B", 65_285_660_672, "pyllama, README", dim=8192, heads=64, hidden=22016, depth=80),
    _falcon("7B", 6_921_720_704, "7,217,189,760", dim=4544, heads=71, key_heads=1, norms=1, depth=32),
    _falcon("40B", 41_303_293_952, "41,835,970,560", dim=8192, heads=128, key_heads=8, norms=2, depth=60),
    _bloom("bloom-7b1", "BLOOM-7B1", 7_069_016_064, dim=4096, heads=32, depth=30),
    _bloom("bloom-176b", "BLOOM", 176_247_271_424, dim=14336, heads=112, depth=70),
)
"""Transformers by name."""
