"""FP8 weights as transformers and compressed-tensors keep them: these load what fp8c writes, and fp8c reads what these
write.

usage: python3 tests/peers/formats.py BUILD/fp8c      needs the packages transformers (5 and later), compressed_tensors,
                                                      torch, safetensors, numpy, accelerate

1. A Llama with grouped queries and a head of its own, a Qwen3, which has norms of queries and keys and a tied head, and
   a GPT-2, whose linears are Conv1D: a training begins with transformers' folder, and `export --as` writes what it has
   learned. transformers loads the folder, with no missing and no unexpected tensor. Its loss is fp8c's with the same
   values: the folder converted to fp8c's own file. Of a BERT, which is exported as transformers made it, the hidden
   states are compared.
2. Where nothing is quantized again, that loss is also the one of what `export` writes without --as, to the bit.
3. transformers quantizes and saves a Llama, with F32 scales and with E8M0's; compressed-tensors does so by tensor,
   channel and block; and so does ModelOpt, where its package (nvidia-modelopt, with omegaconf and scipy) is there, by
   tensor, row, block and MX. `weights` finds nothing wrong with these, and converts them. Of ModelOpt's, fp8c's values
   are those that ModelOpt's quantizer gives, but for the last bits of f32: it divides by the inverse of the scale.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings
from unittest import mock

del sys.path[0]  # the statistics.py of this folder is not Python's
os.environ["TQDM_DISABLE"] = "1"

import numpy as np
import torch
import transformers
from compressed_tensors.compressors import ModelCompressor
from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config
from safetensors.torch import load_file
from transformers import (AutoModel, AutoModelForCausalLM, BertConfig, BertModel, CompressedTensorsConfig,
                          FineGrainedFP8Config, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen3Config,
                          Qwen3ForCausalLM)
from transformers.quantizers.quantizer_finegrained_fp8 import FineGrainedFP8HfQuantizer

SEED = 1
# Both sides multiply the same codes with the same scales, in float32, and compute in float32: they differ in the order
# of sums alone. A sum of n = 512 terms, the longest here, has a relative error of sqrt(n) * 2^-24 = 1.3e-6 where
# rounding errors are independent; the loss is a mean over tokens of what such sums give. Three times that. The smallest
# mistake of a format, two blocks with each other's scales, moves the loss by ten times as much: see `moved`.
NEAR = 4e-6
# Elements of hidden states, which are of the order of 1, after two layers of such sums.
NEAR_HIDDEN = 4e-6
# An f32 rounding of the inverse, one of the quotient, and one of code times scale, of the largest value.
NEAR_VALUES = 3 * 2.0**-24
LLAMA, GPT, BERT = "frontend/models/llama_block.f8", "frontend/models/gpt2_124m.f8", "tests/models/bert.f8"
LLAMA_DIMS = "-D B=2 -D T=32 -D C=256 -D F=512".split()
BERT_DIMS = "-D B=2 -D T=16 -D C=128 -D F=256".split()
GPT_DIMS = "-D B=2 -D T=16 -D C=128 -D H=2 -D L=2 -D V=256".split()


def run(fp8c, *args, code=0):
    done = subprocess.run([fp8c, *map(str, args)], capture_output=True, text=True, check=False)
    assert done.returncode == code, (args, done.stdout[-2000:], done.stderr)
    return done.stdout


def is_sound(fp8c, folder):
    run(fp8c, "weights", folder)


class Case:
    """A model, what it was trained to, and a batch."""

    def __init__(self, fp8c, folder, text, dims, model, tokens, maps=()):
        self.fp8c, self.folder, self.text, self.dims, self.maps = fp8c, folder, text, dims, maps
        self.base, self.checkpoint = folder / "base", folder / "checkpoint.safetensors"
        model.save_pretrained(self.base)
        (self.base / "tokenizer_config.json").write_text("{}")
        run(fp8c, "train", text, *dims, "--data", folder.parent / "text", "--weights", self.base / "model.safetensors",
            "--steps", "4", "--recipe", "delayed", "--save", self.checkpoint)
        self.tokens = tokens
        np.save(folder / "tokens.npy", np.ascontiguousarray(tokens[:, :-1]))
        np.save(folder / "targets.npy", np.ascontiguousarray(tokens[:, 1:]))

    def own_loss(self, weights):
        """fp8c's, of a file of its own."""
        run(self.fp8c, "run", self.text, *self.dims, "--recipe", "f32", "--weights", weights, "--input",
            f"tokens={self.folder}/tokens.npy", "--input", f"targets={self.folder}/targets.npy", "--output",
            f"loss={self.folder}/loss.npy")
        return float(np.load(self.folder / "loss.npy"))

    def peer_loss(self, model):
        t = torch.tensor(self.tokens).long()
        with torch.no_grad():
            logits = model(t[:, :-1]).logits.float()
        return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), t[:, 1:].reshape(-1)).item()


def load(folder, how, kind=AutoModelForCausalLM):
    """The model, its values in float32, and whatever was missing or not expected."""
    config = FineGrainedFP8Config(dequantize=True) if how == "hf-fp8" else CompressedTensorsConfig(dequantize=True)
    model, info = kind.from_pretrained(folder, output_loading_info=True, dtype=torch.float32,
                                       quantization_config=config)
    # What is loaded dequantized has no place for the scale of an input.
    wrong = {k: [n for n in v if not str(n).endswith(".input_scale")] for k, v in info.items()}
    return model, {k: v for k, v in wrong.items() if v}


def check_loads(case, recipe, how):
    fp8c, out = case.fp8c, case.folder / f"{recipe}-{how}"
    written = run(fp8c, "export", case.text, *case.dims, "--weights", case.checkpoint, "--recipe", recipe, "--as", how,
                  "--model", case.base, "-o", out, "--json", "-")
    fates = [r["fate"] for r in map(json.loads, written.splitlines()) if r["event"] == "converted"]
    assert fates and "dequantized" not in fates, fates
    is_sound(fp8c, out)
    model, wrong = load(out, how)
    assert not wrong, (recipe, how, wrong)
    again = case.folder / "again.safetensors"
    run(fp8c, "weights", out, "--as", "native", "-o", again, *case.maps)
    own, peer = case.own_loss(again), case.peer_loss(model)
    assert abs(own - peer) <= NEAR * abs(peer), (recipe, how, own, peer)
    if "requantized" not in fates:
        run(fp8c, "export", case.text, *case.dims, "--weights", case.checkpoint, "--recipe", recipe, "-o", again)
        assert case.own_loss(again) == own, (recipe, how)
    print(f"{case.text}: {recipe} as {how}: loss {own:.7g}, transformers {peer:.7g}")
    return out


def check_bert(fp8c, work):
    """Queries, keys and values have biases, and the pooler is no part of fp8c's text."""
    config = BertConfig(vocab_size=120, hidden_size=128, num_hidden_layers=2, num_attention_heads=2,
                        intermediate_size=256, max_position_embeddings=24)
    torch.manual_seed(SEED)
    BertModel(config).save_pretrained(work / "bert")
    tokens, types = np.random.default_rng(SEED).integers(0, (120, 2), (2, 16, 2), np.int32).transpose(2, 0, 1)
    np.save(work / "tokens.npy", np.ascontiguousarray(tokens))
    np.save(work / "types.npy", np.ascontiguousarray(types))
    for how in ("hf-fp8", "compressed-tensors"):
        for recipe in ("block", "current", "rowwise"):
            out, again = work / f"bert-{recipe}-{how}", work / "bert.safetensors"
            run(fp8c, "export", BERT, *BERT_DIMS, "--weights", work / "bert", "--ignore", "pooler.*", "--recipe",
                recipe, "--as", how, "--model", work / "bert", "-o", out)
            is_sound(fp8c, out)
            model, wrong = load(out, how, AutoModel)
            assert not wrong, (recipe, how, wrong)
            with torch.no_grad():
                peer = model(torch.tensor(tokens).long(), token_type_ids=torch.tensor(types).long()).last_hidden_state
            run(fp8c, "weights", out, "--as", "native", "--ignore", "pooler.*", "-o", again)
            run(fp8c, "run", BERT, *BERT_DIMS, "--recipe", "f32", "--weights", again, "--input",
                f"tokens={work}/tokens.npy", "--input", f"types={work}/types.npy", "--output",
                f"hidden={work}/hidden.npy")
            off = np.abs(np.load(work / "hidden.npy") - peer.numpy()).max()
            assert off < NEAR_HIDDEN, (recipe, how, off)
            print(f"{BERT}: {recipe} as {how}: hidden states differ by {off:.1e}")


def qwen(work):
    """Llama's text with what Qwen3 has besides. Heads are of 64 elements."""
    text = pathlib.Path(LLAMA).read_text()
    for before, after in (
            ("  param model.layers.{l}.post_attention", "".join(
                f"  param model.layers.{{l}}.self_attn.{n}_norm.weight: f32[D] ones\n" for n in "qk") +
             "  param model.layers.{l}.post_attention"),
            ("param lm_head.weight: f32[V, C] normal(0.02)\n", ""), ("lm_head.weight", "model.embed_tokens.weight"),
            ('"lm_head"', '"model.embed_tokens"'),
            *((f"rope(%{n})", f"rope(reshape(rmsnorm(reshape(%{n}) {{shape = [B, T, {h}, D]}}, "
               f"model.layers.{{l}}.self_attn.{n}_norm.weight) {{eps = 1e-5}}) {{shape = [B, T, {h}*D]}})")
              for n, h in (("q", "H"), ("k", "KV")))):
        assert before in text, before
        text = text.replace(before, after)
    (work / "qwen3.f8").write_text(text)
    config = Qwen3Config(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, head_dim=64, vocab_size=256, tie_word_embeddings=True,
                         max_position_embeddings=128, rms_norm_eps=1e-5)
    return work / "qwen3.f8", config


def moved(case, folder):
    """What the smallest mistake does to the loss: two blocks of one weight have each other's scales."""
    model, _ = load(folder, "hf-fp8")
    before = case.peer_loss(model)
    weight = dict(model.named_parameters())["model.layers.0.mlp.down_proj.weight"]
    scale = load_file(folder / "model.safetensors")["model.layers.0.mlp.down_proj.weight_scale_inv"]
    with torch.no_grad():
        weight[:128, :128] *= scale[0, 1] / scale[0, 0]
        weight[:128, 128:256] *= scale[0, 0] / scale[0, 1]
    return abs(case.peer_loss(model) - before) / abs(before)


def check_converts(fp8c, folder, work):
    is_sound(fp8c, folder)
    for how in ("hf-fp8", "compressed-tensors", "native"):
        out = work / f"{folder.name}-{how}"
        run(fp8c, "weights", folder, "--as", how, "-o", out)
        is_sound(fp8c, out)


def check_transformers_files(fp8c, base, work):
    """transformers quantizes on a GPU alone; its check is left out, its arithmetic runs anywhere."""
    for scales in ("float", "ue8m0"):
        out = work / f"saved-{scales}"
        with mock.patch.object(FineGrainedFP8HfQuantizer, "validate_environment", lambda *a, **k: None):
            config = FineGrainedFP8Config(scale_fmt=scales)
            AutoModelForCausalLM.from_pretrained(base, quantization_config=config).save_pretrained(out)
        types = {str(t.dtype) for k, t in load_file(out / "model.safetensors").items() if k.endswith("_scale_inv")}
        assert len(types) == 1, types
        check_converts(fp8c, out, work)
        print(f"transformers' own file, scale_fmt {scales}: scales of {types.pop()}")


def check_compressed_files(fp8c, work, strategy):
    torch.manual_seed(SEED)
    model = LlamaForCausalLM(llama())
    weights = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": strategy}
    if strategy == "block":
        weights["block_structure"] = [128, 128]
    inputs = {"num_bits": 8, "type": "float", "dynamic": True, "strategy": "group" if strategy == "block" else "token"}
    if strategy == "block":
        inputs["group_size"] = 128
    config = QuantizationConfig(config_groups={"group_0": {"targets": ["Linear"], "weights": weights,
                                                           "input_activations": inputs}}, ignore=["lm_head"])
    apply_quantization_config(model, config)
    for module in model.modules():
        scale, w = getattr(module, "weight_scale", None), getattr(module, "weight", None)
        if scale is None:
            continue
        high, wide = ((w.shape[0] // scale.shape[0], w.shape[1] // scale.shape[1]) if scale.dim() == 2 else w.shape)
        amax = w.detach().abs().reshape(w.shape[0] // high, high, w.shape[1] // wide, wide).amax((1, 3))
        scale.data.copy_((amax / 448).reshape(scale.shape).to(scale.dtype))
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    out = work / f"compressed-{strategy}"
    model.save_pretrained(out)
    compressor.update_config(out)
    check_converts(fp8c, out, work)
    print(f"compressed-tensors' own file, {strategy}")


def check_modelopt_files(fp8c, work):
    try:
        import modelopt.torch.quantization as mtq
        from modelopt.torch.export import export_hf_checkpoint
    except ImportError as error:
        print(f"ModelOpt's own files: not checked: {error}")
        return
    for name in ("FP8_DEFAULT_CFG", "FP8_PER_CHANNEL_PER_TOKEN_CFG", "FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG",
                 "MXFP8_DEFAULT_CFG"):
        torch.manual_seed(SEED)
        config = llama()
        config.architectures = ["LlamaForCausalLM"]
        model, out = LlamaForCausalLM(config).eval(), work / name
        tokens = torch.randint(0, 256, (2, 33))
        mtq.quantize(model, getattr(mtq, name), lambda m: m(tokens))
        linears = {n: m for n, m in model.named_modules()
                   if getattr(getattr(m, "weight_quantizer", None), "is_enabled", False)}
        mx = name.startswith("MX")  # its quantizer needs a GPU: then the file's codes say what is wanted
        with torch.no_grad():
            wanted = {} if mx else {n: m.weight_quantizer(m.weight) for n, m in linears.items()}
        export_hf_checkpoint(model, export_dir=out)
        check_converts(fp8c, out, work)
        if mx:
            own = load_file(out / "model.safetensors")
            wanted = {n: own[f"{n}.weight"].float() *
                      torch.exp2(own[f"{n}.weight_scale"].float() - 127).repeat_interleave(32, 1) for n in linears}
        assert len(wanted) == 14, len(wanted)
        # A training that stores none of them reads codes times scales.
        run(fp8c, "train", LLAMA, *LLAMA_DIMS, "--data", work / "text", "--weights", out, "--recipe", "f32", "--steps",
            "1", "--frozen", "model.layers.*", "--save", work / "values.safetensors")
        values = load_file(work / "values.safetensors")
        off = max((values[f"{n}.weight"] - w.float()).abs().max().item() / w.abs().max().item()
                  for n, w in wanted.items())
        assert off <= NEAR_VALUES, (name, off)
        print(f"ModelOpt's own file, {name}")


def llama():
    return LlamaConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
                       num_key_value_heads=2, vocab_size=256, tie_word_embeddings=False, max_position_embeddings=128,
                       rms_norm_eps=1e-5, initializer_range=0.08)  # large, so that each scale counts in the loss


def main(fp8c):
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")  # that a config's own settings win
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        data = np.random.default_rng(SEED).choice(256, 40000, p=np.arange(256, 0, -1) / (128 * 257)).astype(np.uint8)
        (work / "text").write_bytes(data.tobytes())
        text = data[1000:1066].astype(np.int32)
        torch.manual_seed(SEED)
        (work / "llama").mkdir()
        case = Case(fp8c, work / "llama", LLAMA, LLAMA_DIMS, LlamaForCausalLM(llama()), text.reshape(2, 33))
        for how in ("hf-fp8", "compressed-tensors"):
            for recipe in ("block", "current", "rowwise", "mxfp8", "delayed"):
                out = check_loads(case, recipe, how)
                if (how, recipe) == ("hf-fp8", "block"):
                    least = moved(case, out)
                    assert least > 5 * NEAR, least  # where scales differ by a few percent, as here
                    check_transformers_files(fp8c, case.base, work)
        own, config = qwen(work)
        (work / "qwen").mkdir()
        case = Case(fp8c, work / "qwen", own, LLAMA_DIMS, Qwen3ForCausalLM(config), text.reshape(2, 33))
        for how in ("hf-fp8", "compressed-tensors"):
            for recipe in ("block", "current", "rowwise"):
                check_loads(case, recipe, how)
        check_bert(fp8c, work)
        check_modelopt_files(fp8c, work)
        for strategy in ("tensor", "channel", "block"):
            check_compressed_files(fp8c, work, strategy)
        gpt = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=16, n_embd=128, n_layer=2, n_head=2,
                                         resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
        (work / "gpt").mkdir()
        case = Case(fp8c, work / "gpt", GPT, GPT_DIMS, gpt, text[:34].reshape(2, 17),
                    ("--map", "transformer.*=*"))
        for recipe in ("block", "current", "delayed"):
            check_loads(case, recipe, "hf-fp8")


if __name__ == "__main__":
    main(sys.argv[1])
