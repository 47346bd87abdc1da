"""Small models of other libraries, jobs over them, and data that suits them."""

from typing import Any

import torch
from torch import Tensor, nn

from ignite_scheduler.model import Batch, Job, Optimizer, Reference

LENGTH, WORDS = 12, 40


def _huggingface(model: str, **config: Any) -> Reference:
    return Reference(zoo="huggingface", args={"model": model, "config": config})


def _timm(model: str, **options: Any) -> Reference:
    return Reference(zoo="timm", args={"model": model, "options": {"num_classes": 5, **options}})


_TOKENS = Reference(zoo="synthetic_tokens", args={"block": LENGTH, "vocabulary": WORDS, "length": 40})
_SENTENCES = Reference(module="library_models:sentences")
_IMAGES = Reference(zoo="synthetic_images", args={"size": 32, "classes": 5, "length": 40})
_SMALL = {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2, "vocab_size": WORDS}
_DROPS = {"proj_drop_rate": 0.1, "attn_drop_rate": 0.1}

MODELS: dict[str, tuple[Reference, Reference]] = {
    "gpt2": (_huggingface("GPT2LMHeadModel", n_layer=3, n_embd=16, n_head=2, vocab_size=WORDS), _TOKENS),
    "llama": (
        _huggingface("LlamaForCausalLM", num_hidden_layers=2, num_key_value_heads=1, attention_dropout=0.2, **_SMALL),
        _TOKENS,
    ),
    "bert": (_huggingface("BertForMaskedLM", num_hidden_layers=2, **_SMALL), _TOKENS),
    "bert-classifier": (
        _huggingface(
            "BertForSequenceClassification", num_hidden_layers=2, attn_implementation="eager", num_labels=3, **_SMALL
        ),
        _SENTENCES,
    ),
    "vit": (
        _timm(
            "vit_tiny_patch16_224",
            img_size=32,
            depth=2,
            embed_dim=24,
            num_heads=2,
            drop_path_rate=0.3,
            proj_drop_rate=0.1,
        ),
        _IMAGES,
    ),
    "resnet": (_timm("resnet10t", channels=(8, 8, 16, 16), stem_width=8), _IMAGES),
}
"""Model and data by a short name."""


def library_job(name: str, **more: Any) -> Job:
    """A small job over one of :data:`MODELS`."""
    model, data = MODELS[name]
    return Job(
        name=name,
        model=model,
        data=data,
        batch=Batch(total=8),
        steps=6,
        optimizer=Optimizer(name="momentum", lr=1e-2),
        **more,
    )


def sentences(rows: int = 40) -> list[tuple[tuple[Tensor, Tensor], Tensor]]:
    """((tokens, which of them count), class): sentences of unlike length, filled up to one length."""
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(1, WORDS, (rows, LENGTH), generator=generator)
    counts = torch.randint(3, LENGTH + 1, (rows,), generator=generator)
    there = (torch.arange(LENGTH) < counts[:, None]).long()
    return [((tokens[i] * there[i], there[i]), counts[i] % 3) for i in range(rows)]


class Forked(nn.Module):
    """A network with a skip over its middle, a sum in place, and dropout as a function."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 4, 3, padding=1)
        self.deeper = nn.Conv2d(4, 8, 3, padding=1, stride=2)
        self.middle = nn.Conv2d(8, 8, 3, padding=1)
        self.up = nn.ConvTranspose2d(8, 4, 2, 2)
        self.out = nn.Linear(8, 5)
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, image: Tensor) -> Tensor:
        """Logits of five classes."""
        high = torch.relu(self.down(image))
        low = torch.relu(self.deeper(high))
        low = self.middle(low)
        low += 1.0
        joined = torch.cat([self.up(low.transpose(2, 3)), high], dim=1).transpose(1, 3)
        dropped = nn.functional.dropout(joined, 0.2, self.training)
        return self.out(dropped.mean((1, 2)) * self.scale)


MODELS["forked"] = (Reference(module="library_models:Forked"), _IMAGES)
