"""A model of transformers, as a user builds it."""

from transformers import GPT2Config, GPT2LMHeadModel


def build(layers: int = 1) -> GPT2LMHeadModel:
    """A small GPT-2."""
    return GPT2LMHeadModel(GPT2Config(n_layer=layers, n_embd=8, n_head=2, vocab_size=40))
