"""Tiny models of Hugging Face's classes, with their inputs. Sizes are odd where they may be."""

from __future__ import annotations

from typing import Any, Callable

import torch
import transformers

ModelAndInputs = tuple[torch.nn.Module, dict[str, Any]]


def ids(batch: int = 2, length: int = 9, vocabulary: int = 61) -> torch.Tensor:
    return torch.randint(3, vocabulary, (batch, length), generator=torch.Generator().manual_seed(7))


def padding(batch: int = 2, length: int = 9) -> torch.Tensor:
    """A mask that hides the first positions of the first sequence."""
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[0, :3] = 0
    return mask


def trailing(batch: int = 2, length: int = 9) -> torch.Tensor:
    """A mask that hides the last positions of the last sequence."""
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[-1, length - 4 :] = 0
    return mask


def emptied(batch: int = 2, length: int = 9) -> torch.Tensor:
    """A mask that hides the first positions of the first sequence, and all of the last."""
    mask = padding(batch, length)
    mask[-1] = 0
    return mask


def gpt2(
    p: float = 0.0, attention_p: float = 0.0, length: int = 9, batch: int = 2, layers: int = 2, **options: Any
) -> ModelAndInputs:
    config = transformers.GPT2Config(
        n_layer=layers,
        n_head=4,
        n_embd=32,
        vocab_size=61,
        n_positions=32,
        resid_pdrop=p,
        embd_pdrop=p,
        attn_pdrop=attention_p,
        **options,
    )
    model = transformers.GPT2LMHeadModel(config)
    model.loss_type = "ForCausalLM"  # without it, transformers 4 warns inside of forward
    tokens = ids(batch, length)
    return model, {"input_ids": tokens, "labels": tokens, "use_cache": False}


def llama(
    mask_of: Callable[..., torch.Tensor] | None = padding, length: int = 9, layers: int = 2, **options: Any
) -> ModelAndInputs:
    config = transformers.LlamaConfig(
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        hidden_size=32,
        intermediate_size=48,
        vocab_size=61,
        max_position_embeddings=32,
        **options,
    )
    tokens = ids(2, length)
    inputs: dict[str, Any] = {"input_ids": tokens, "labels": tokens, "use_cache": False}
    if mask_of is not None:
        inputs["attention_mask"] = mask_of(2, length)
    return transformers.LlamaForCausalLM(config), inputs


def bert_config(p: float, attention_p: float, layers: int = 2, **options: Any) -> Any:
    """A tiny BERT. p, attention_p: of its dropouts."""
    return transformers.BertConfig(
        num_hidden_layers=layers,
        num_attention_heads=4,
        hidden_size=32,
        intermediate_size=48,
        vocab_size=61,
        max_position_embeddings=32,
        hidden_dropout_prob=p,
        attention_probs_dropout_prob=attention_p,
        pad_token_id=0,
        **options,
    )


def bert(
    p: float = 0.0,
    attention_p: float = 0.0,
    length: int = 11,
    mask_of: Callable[..., torch.Tensor] = trailing,
    **options: Any,
) -> ModelAndInputs:
    config = bert_config(p, attention_p, **options)
    tokens = ids(2, length)
    mask = mask_of(2, length)
    labels = torch.where(torch.arange(length)[None] % 3 == 1, tokens, -100)
    return transformers.BertForMaskedLM(config), {
        "input_ids": tokens * mask,
        "attention_mask": mask,
        "labels": labels,
        "token_type_ids": (torch.arange(length)[None] > 4).long().expand(2, -1).contiguous(),
    }


class SentenceEncoder(torch.nn.Module):
    """MiniLM as sentence-transformers uses it: the mean of the tokens that count, normalized."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.encoder = transformers.BertModel(config, add_pooling_layer=False)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        weight = attention_mask.unsqueeze(-1).expand(hidden.size()).float()
        mean = torch.sum(hidden * weight, 1) / torch.clamp(weight.sum(1), min=1e-9)
        return torch.nn.functional.normalize(mean, p=2, dim=1)


class Pairs(torch.nn.Module):
    """Contrastive training of sentence embeddings: the i-th question belongs to the i-th answer."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.sentences = SentenceEncoder(config)

    def forward(
        self,
        questions: torch.Tensor,
        answers: torch.Tensor,
        question_mask: torch.Tensor,
        answer_mask: torch.Tensor,
    ) -> torch.Tensor:
        a = self.sentences(questions, question_mask)
        b = self.sentences(answers, answer_mask)
        scores = a @ b.t() * 20
        target = torch.arange(a.size(0), device=a.device)
        return torch.nn.functional.cross_entropy(scores, target)


def minilm(length: int = 11, **options: Any) -> ModelAndInputs:
    config = bert_config(0.0, 0.0, **options)
    mask = trailing(3, length)
    other = ids(3, length).flip(1)
    return Pairs(config), {
        "questions": ids(3, length) * mask,
        "answers": other,
        "question_mask": mask,
        "answer_mask": torch.ones_like(mask),
    }


def vit(p: float = 0.0, **options: Any) -> ModelAndInputs:
    config = transformers.ViTConfig(
        num_hidden_layers=2,
        num_attention_heads=4,
        hidden_size=32,
        intermediate_size=48,
        image_size=12,
        patch_size=4,
        num_channels=3,
        num_labels=5,
        hidden_dropout_prob=p,
        attention_probs_dropout_prob=0.0,
        **options,
    )
    image = torch.randn(3, 3, 12, 12, generator=torch.Generator().manual_seed(5))
    return transformers.ViTForImageClassification(config), {
        "pixel_values": image,
        "labels": torch.tensor([0, 3, 4]),
    }


class MLP(torch.nn.Module):
    """A Sequential, so that names begin with digits, and a loss of its own."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(13, 24), torch.nn.GELU(), torch.nn.Dropout(p), torch.nn.Linear(24, 7)
        )

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self.layers(x), y)


def mlp(p: float = 0.0) -> ModelAndInputs:
    x = torch.randn(5, 13, generator=torch.Generator().manual_seed(3)).requires_grad_()
    return MLP(p), {"x": x, "y": torch.tensor([0, 3, 6, 1, 2])}


MODELS: dict[str, Callable[[], ModelAndInputs]] = {
    "mlp": mlp,
    "mlp, dropout": lambda: mlp(0.2),
    "gpt2": gpt2,
    "gpt2, dropout": lambda: gpt2(0.1, 0.1),
    "gpt2, dropout in eager attention": lambda: gpt2(0.1, 0.1, attn_implementation="eager"),
    "gpt2, eager attention": lambda: gpt2(attn_implementation="eager"),
    "gpt2, one odd sequence": lambda: gpt2(batch=1, length=7),
    "llama": lambda: llama(None),
    "llama, padding": llama,
    "llama, eager attention": lambda: llama(trailing, attn_implementation="eager"),
    "bert": bert,
    "bert, dropout": lambda: bert(0.1, 0.1),
    "minilm": minilm,
    "vit": vit,
    "vit, dropout": lambda: vit(0.1),
}


def make(name: str | Callable[[], ModelAndInputs], seed: int = 0) -> ModelAndInputs:
    """A model of `MODELS`, or of a function, in training mode, with weights from the seed."""
    torch.manual_seed(seed)
    model, inputs = (MODELS[name] if isinstance(name, str) else name)()
    return model.train(), inputs
