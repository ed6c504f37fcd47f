"""Compares single ops with PyTorch's and transformers'.

usage: python3 tests/peers/torch_ops.py BUILD/fp8c      needs the packages torch, transformers, safetensors, numpy

1. relu and its gradient beside torch.relu's: at NaN, both zeros, infinities, denormals and random numbers. The same
   bits, but NaN is compared as a class, and of -0 relu makes +0 here, where PyTorch keeps it.
2. rope with Llama 3's scaling beside LlamaRotaryEmbedding (rope_type "llama3"), for each kind of frequency: those that
   stay, those between and those that are divided. The difference is held to transformers' own rounding: it computes an
   angle in f32, so that the angle t f has an error of t f 2^-23.
"""
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

SEED = 1
RELU = """module relu
dim N = 8
param x: f32[N] ones
func forward(%dy: f32[N]) -> (%loss: f32[], %y: f32[N]) {
  %y = relu(x)
  return reshape(reduce_sum(mul(%y, %dy))) {shape = []}, %y
}
"""
ROPE = """module rope
dim B = 2, T = 64, H = 2, D = 128
func forward(%x: f32[B, T, H*D]) -> (%y: f32[B, T, H*D]) {
  return rope(%x) {heads = H, BASE, factor = 8, low_freq_factor = 1, high_freq_factor = 4, original_max_position = 64}
}
"""


def run(fp8c, *args):
    done = subprocess.run([fp8c, "run", *map(str, args)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def same(ours, theirs):
    """The same bits, where both are no NaN."""
    nan = np.isnan(ours)
    return (nan == np.isnan(theirs)).all() and (ours.view(np.uint32) == theirs.view(np.uint32))[~nan].all()


def check_relu(fp8c, folder):
    rng = np.random.default_rng(SEED)
    special = [np.nan, 0.0, -0.0, np.inf, -np.inf, 1e-40, -1e-40, 1.0, -1.0, 3e38, -3e38]
    x = np.array([*special, *rng.standard_normal(1000)], np.float32)
    dy = np.array(rng.standard_normal(x.size), np.float32)
    (folder / "relu.f8").write_text(RELU)
    save_file({"x": x}, folder / "x.safetensors")
    np.save(folder / "dy.npy", dy)
    common = [folder / "relu.f8", "-D", f"N={x.size}", "--recipe", "f32", "--weights", folder / "x.safetensors",
              "--input", f"dy={folder}/dy.npy"]
    run(fp8c, *common, "--output", f"y={folder}/y.npy")
    run(fp8c, *common, "--function", "micro_step", "--save", folder / "after.safetensors")
    at = torch.tensor(x, requires_grad=True)
    want = torch.relu(at)
    want.backward(torch.tensor(dy))
    y, dx = np.load(folder / "y.npy"), load_file(folder / "after.safetensors")["fp8c.state.grad.x"]
    assert same(y, want.detach().numpy() + np.float32(0)), list(zip(x, y, want))[:11]
    assert same(dx, at.grad.numpy()), list(zip(x, dx, at.grad))[:11]
    assert dx[0] == dy[0] and dx[1] == 0 and dx[2] == 0  # at NaN, 0 and -0
    print(f"relu of {x.size} numbers (seed {SEED}), and its gradient: the bits of torch {torch.__version__}")


def check_rope(fp8c, folder):
    rng = np.random.default_rng(SEED)
    B, T, H, D = 2, 64, 2, 128
    x = np.array(rng.standard_normal((B, T, H * D)), np.float32)
    np.save(folder / "x.npy", x)
    for base in (10000.0, 500000.0):
        scaling = {"rope_type": "llama3", "rope_theta": base, "factor": 8.0, "low_freq_factor": 1.0,
                   "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
        names = {"rope_parameters": scaling} if int(transformers.__version__.split(".")[0]) > 4 else {
            "rope_scaling": scaling, "rope_theta": base}
        config = transformers.LlamaConfig(hidden_size=H * D, num_attention_heads=H, head_dim=D,
                                          max_position_embeddings=512, **names)
        rotary = LlamaRotaryEmbedding(config)
        plain = base ** (-np.arange(0, D, 2) / D)
        kinds = [int(n) for n in np.bincount(np.digitize(64 * plain / (2 * np.pi), [1, 4]), minlength=3)]
        assert all(kinds), kinds  # divided, between, as they were
        heads = torch.tensor(x).view(B, T, H, D).transpose(1, 2)
        cos, sin = rotary(heads, torch.arange(T)[None].expand(B, T))
        want = apply_rotary_pos_emb(heads, heads, cos, sin)[0].transpose(1, 2).reshape(B, T, H * D).numpy()
        (folder / "rope.f8").write_text(ROPE.replace("BASE", f"base = {base}"))
        run(fp8c, folder / "rope.f8", "--recipe", "f32", "--input", f"x={folder}/x.npy", "--output",
            f"y={folder}/y.npy")
        y = np.load(folder / "y.npy")
        # |dx'| <= sqrt(2) |x| (angle's error), and a few roundings of the sum
        near = np.sqrt(2) * np.abs(x).max() * (T * 2.0**-23 + 4 * 2.0**-24)
        off = np.abs(y - want).max()
        assert off <= near, (off, near)
        unscaled = LlamaRotaryEmbedding(transformers.LlamaConfig(
            hidden_size=H * D, num_attention_heads=H, head_dim=D,
            **({"rope_parameters": {"rope_type": "default", "rope_theta": base}}
               if "rope_parameters" in names else {"rope_theta": base})))
        cos, sin = unscaled(heads, torch.arange(T)[None].expand(B, T))
        other = apply_rotary_pos_emb(heads, heads, cos, sin)[0].transpose(1, 2).reshape(B, T, H * D).numpy()
        assert np.abs(y - other).max() > 1000 * near  # the bound sees a scaling that is left out
        print(f"rope of Llama 3, theta {base:g} ({kinds[0]} frequencies divided, {kinds[1]} between, {kinds[2]} kept): "
              f"largest difference from transformers {transformers.__version__} {off:.1e}, bound {near:.1e}")


def main():
    with tempfile.TemporaryDirectory() as name:
        check_relu(sys.argv[1], pathlib.Path(name))
        check_rope(sys.argv[1], pathlib.Path(name))


if __name__ == "__main__":
    main()
