"""Language models as small trainers write them, from scratch: all linears are compiled, and losses are
those of eager PyTorch.

    nanogpt   one qkv linear, fused attention, optional biases, a tied head, targets with -1
    mingpt    attention written out with a buffer for its mask, GELU written out
    rotary    Meta's Llama: rotary tables of complex numbers, RMSNorm written out, grouped heads
"""

from __future__ import annotations

import math
import unittest
from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import nn

import fp8c.torch
from support import BackendTest, twin

VOCABULARY, WIDTH, HEADS, LAYERS, LONGEST = 67, 32, 4, 2, 24
STEPS, BATCH, LENGTH = 30, 3, 19


class Norm(nn.Module):
    """LayerNorm whose bias may be absent."""

    def __init__(self, width: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class FusedAttention(nn.Module):
    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.c_attn = nn.Linear(WIDTH, 3 * WIDTH, bias=bias)
        self.c_proj = nn.Linear(WIDTH, WIDTH, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.size()
        q, k, v = (
            part.view(batch, length, HEADS, width // HEADS).transpose(1, 2)
            for part in self.c_attn(x).split(WIDTH, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(batch, length, width))


class FusedBlock(nn.Module):
    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.ln_1, self.attn = Norm(WIDTH, bias), FusedAttention(bias)
        self.ln_2 = Norm(WIDTH, bias)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH, bias=bias),
            nn.GELU(),
            nn.Linear(4 * WIDTH, WIDTH, bias=bias),
            nn.Dropout(0.0),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class NanoGPT(nn.Module):
    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(VOCABULARY, WIDTH),
                "wpe": nn.Embedding(LONGEST, WIDTH),
                "drop": nn.Dropout(0.0),
                "h": nn.ModuleList(FusedBlock(bias) for _ in range(LAYERS)),
                "ln_f": Norm(WIDTH, bias),
            }
        )
        self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.apply(small_weights)
        self.transformer.wte.weight = self.lm_head.weight

    def forward(self, idx: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        length = idx.size(1)
        assert length <= LONGEST, f"{length} tokens are more than {LONGEST}"
        position = torch.arange(0, length, dtype=torch.long, device=idx.device)
        x = self.transformer.drop(self.transformer.wte(idx) + self.transformer.wpe(position))
        for block in self.transformer.h:
            x = block(x)
        logits = self.lm_head(self.transformer.ln_f(x))
        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)
        return logits, loss


class NewGELU(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
        return 0.5 * x * (1.0 + torch.tanh(inner))


class WrittenAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.attn_dropout, self.resid_dropout = nn.Dropout(0.0), nn.Dropout(0.0)
        self.register_buffer("mask", torch.tril(torch.ones(LONGEST, LONGEST)).view(1, 1, LONGEST, LONGEST))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.size()
        q, k, v = self.c_attn(x).split(width, dim=2)
        q = q.view(batch, length, HEADS, width // HEADS).transpose(1, 2)
        k = k.view(batch, length, HEADS, width // HEADS).transpose(1, 2)
        v = v.view(batch, length, HEADS, width // HEADS).transpose(1, 2)
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        scores = scores.masked_fill(self.mask[:, :, :length, :length] == 0, float("-inf"))
        y = self.attn_dropout(F.softmax(scores, dim=-1)) @ v
        y = y.transpose(1, 2).contiguous().view(batch, length, width)
        return self.resid_dropout(self.c_proj(y))


class WrittenBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(WIDTH), WrittenAttention(), nn.LayerNorm(WIDTH)
        self.mlp = nn.ModuleDict(
            {
                "c_fc": nn.Linear(WIDTH, 4 * WIDTH),
                "act": NewGELU(),
                "c_proj": nn.Linear(4 * WIDTH, WIDTH),
                "dropout": nn.Dropout(0.0),
            }
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.ln_1(x))
        m = self.mlp
        return x + m.dropout(m.c_proj(m.act(m.c_fc(self.ln_2(x)))))


class MinGPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.h = nn.ModuleList(WrittenBlock() for _ in range(LAYERS))
        self.ln_f, self.lm_head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.apply(small_weights)

    def forward(self, idx: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        position = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device).unsqueeze(0)
        x = self.wte(idx) + self.wpe(position)
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)
        return logits, loss


def rotations(width: int, longest: int) -> torch.Tensor:
    """Unit complex numbers: a row a position, a column a pair of channels."""
    frequencies = 1.0 / 10000.0 ** (torch.arange(0, width, 2)[: width // 2].float() / width)
    angles = torch.outer(torch.arange(longest).float(), frequencies)
    return torch.polar(torch.ones_like(angles), angles)


def rotated(x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    """Pairs of neighbouring channels as complex numbers, times a rotation each; x: [B, T, heads, C]."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * by[None, :, None, :]).flatten(3).type_as(x)


class RMS(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.eps, self.weight = 1e-5, nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return normed.type_as(x) * self.weight


def by_interleaving(x: torch.Tensor, times: int) -> torch.Tensor:
    return torch.repeat_interleave(x, repeats=times, dim=2)


def by_expanding(x: torch.Tensor, times: int) -> torch.Tensor:
    batch, length, heads, width = x.shape
    return (
        x[:, :, :, None, :]
        .expand(batch, length, heads, times, width)
        .reshape(batch, length, heads * times, width)
    )


class GroupedAttention(nn.Module):
    KV = 2

    def __init__(self, repeat: Callable[[torch.Tensor, int], torch.Tensor]) -> None:
        super().__init__()
        self.repeat, self.channels = repeat, WIDTH // HEADS
        self.wq = nn.Linear(WIDTH, WIDTH, bias=False)
        self.wk = nn.Linear(WIDTH, self.KV * self.channels, bias=False)
        self.wv = nn.Linear(WIDTH, self.KV * self.channels, bias=False)
        self.wo = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor, by: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q = rotated(self.wq(x).view(batch, length, HEADS, self.channels), by)
        k = rotated(self.wk(x).view(batch, length, self.KV, self.channels), by)
        v = self.wv(x).view(batch, length, self.KV, self.channels)
        k, v = self.repeat(k, HEADS // self.KV), self.repeat(v, HEADS // self.KV)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        scores = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(self.channels) + mask
        y = torch.matmul(F.softmax(scores.float(), dim=-1).type_as(q), v)
        return self.wo(y.transpose(1, 2).contiguous().view(batch, length, -1))


class SwiGLU(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.w1 = nn.Linear(WIDTH, hidden, bias=False)
        self.w2 = nn.Linear(hidden, WIDTH, bias=False)
        self.w3 = nn.Linear(WIDTH, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class RotaryBlock(nn.Module):
    def __init__(self, repeat: Callable[[torch.Tensor, int], torch.Tensor]) -> None:
        super().__init__()
        self.attention_norm, self.attention = RMS(), GroupedAttention(repeat)
        self.ffn_norm, self.feed_forward = RMS(), SwiGLU(80)

    def forward(self, x: torch.Tensor, by: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), by, mask)
        return x + self.feed_forward(self.ffn_norm(x))


class Rotary(nn.Module):
    def __init__(self, repeat: Callable[[torch.Tensor, int], torch.Tensor]) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(RotaryBlock(repeat) for _ in range(LAYERS))
        self.norm, self.output = RMS(), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.register_buffer("freqs_cis", rotations(WIDTH // HEADS, LONGEST), persistent=False)
        self.apply(small_weights)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        length = tokens.shape[1]
        by = self.freqs_cis[:length]
        mask = torch.full((length, length), float("-inf"), device=tokens.device).triu(1)
        x = self.tok_embeddings(tokens)
        for layer in self.layers:
            x = layer(x, by, mask)
        logits = self.output(self.norm(x)).float()
        return logits, F.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1), ignore_index=-1)


def small_weights(module: nn.Module) -> None:
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, 0.0, 0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "nanogpt": lambda: NanoGPT(bias=False),
    "nanogpt, biases": lambda: NanoGPT(bias=True),
    "mingpt": MinGPT,
    "rotary, interleaved": lambda: Rotary(by_interleaving),
    "rotary, expanded": lambda: Rotary(by_expanding),
}


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Other tokens at each step; each next one depends on the one before. Some targets don't count."""
    g, found = torch.Generator().manual_seed(11), []
    for _ in range(STEPS):
        tokens = torch.randint(VOCABULARY, (BATCH, 1), generator=g)
        noise = torch.randint(3, (BATCH, LENGTH), generator=g)
        for at in range(LENGTH):
            tokens = torch.cat([tokens, (3 * tokens[:, -1:] + noise[:, at : at + 1]) % VOCABULARY], 1)
        targets = tokens[:, 1:].clone()
        targets[torch.rand(targets.shape, generator=g) < 0.2] = -1
        found.append((tokens[:, :-1].contiguous(), targets))
    return found


def losses(call: Any, model: nn.Module, steps: list[tuple[torch.Tensor, torch.Tensor]]) -> list[float]:
    """Of AdamW with groups: no decay of vectors, gradients clipped, as small trainers do."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=3e-3,
        betas=(0.9, 0.95),
    )
    found = []
    for tokens, targets in steps:
        _, loss = call(tokens, targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        found.append(float(loss.detach()))
    return found


class SmallTrainers(BackendTest):
    def test_losses(self) -> None:
        """30 steps of AdamW on other batches: each loss is eager's within 1e-5, and falls."""
        steps = batches()
        for name, make in MODELS.items():
            with self.subTest(name):
                torch._dynamo.reset()
                torch.manual_seed(0)
                model = make()
                eager = twin(model)
                call = torch.compile(
                    model, backend=fp8c.torch.fp8c_backend, options={"recipe": "f32", "strict": False}
                )
                own, right = losses(call, model, steps), losses(eager, eager, steps)
                report = fp8c.torch.report(model)
                self.assertEqual(report.left_out, [], report)
                self.assertLess(max(abs(a - b) for a, b in zip(own, right)), 1e-5, name)
                self.assertLess(own[-1], own[0] - 0.3, name)


if __name__ == "__main__":
    unittest.main()
