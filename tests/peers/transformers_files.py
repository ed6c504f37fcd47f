"""Reads what transformers writes: a BertModel and a GPT-2 with random weights, as save_pretrained leaves them.

usage: python3 tests/peers/transformers_files.py BUILD/fp8c      needs the packages transformers, torch, numpy

1. A BertModel, in one file and in several with an index: without --ignore the pooler is refused by name; with it the
   encoder's result is transformers' own. A BertForMaskedLM, whose names have a prefix and a head, needs a map as well.
2. A GPT-2, as GPT2LMHeadModel ("transformer." in front) and as GPT2Model, in F32 and BF16, whole and in pieces: the
   loss is transformers' own, and without a prefix a map gives one.
3. A GPT-2 and a Llama, whole and in pieces: the first loss of a training that begins with them is that of `eval`'s
   graph on the same batch, to the bit, under every recipe whose scales do not come from earlier steps.
4. Under `delayed`, which needs scales, `run` calibrates them on its inputs: the loss is near.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

del sys.path[0]  # the statistics.py of this folder is not Python's

import numpy as np
import torch
import transformers
from transformers import (BertConfig, BertForMaskedLM, BertModel, GPT2Config, GPT2LMHeadModel, GPT2Model, LlamaConfig,
                          LlamaForCausalLM)

SEED = 1
NEAR = 2e-5  # float32 sums in another order
BERT, GPT = "tests/models/bert.f8", "frontend/models/gpt2_124m.f8"
GPT_DIMS = "-D B=2 -D T=16 -D C=32 -D H=2 -D L=2 -D V=120".split()
LLAMA = "frontend/models/llama_block.f8"
LLAMA_DIMS = "-D B=2 -D T=16 -D C=32 -D F=80 -D H=4 -D KV=2 -D L=2 -D V=120".split()


def run(fp8c, *args):
    done = subprocess.run([fp8c, *map(str, args)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def files_of(folder):
    """What --weights takes: the index, else the one file."""
    index = folder / "model.safetensors.index.json"
    return index if index.exists() else folder / "model.safetensors"


def save(model, folder, pieces):
    model.save_pretrained(folder, max_shard_size="20KB" if pieces else "1GB")
    made = sorted(p.name for p in folder.glob("*.safetensors"))
    assert (len(made) > 2) == pieces, made
    return files_of(folder)


def weights_record(out):
    return next(r for r in map(json.loads, out.splitlines()) if r["event"] == "weights")


def check_bert(fp8c, folder):
    config = BertConfig(vocab_size=120, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                        intermediate_size=64, max_position_embeddings=24)
    torch.manual_seed(SEED)
    tokens, types = np.random.default_rng(SEED).integers(0, (120, 2), (2, 16, 2), np.int32).transpose(2, 0, 1)
    np.save(folder / "tokens.npy", np.ascontiguousarray(tokens))
    np.save(folder / "types.npy", np.ascontiguousarray(types))
    inputs = ["--input", f"tokens={folder}/tokens.npy", "--input", f"types={folder}/types.npy"]
    cases = [(BertModel, False, ["pooler.*"], []), (BertModel, True, ["pooler.*"], []),
             (BertForMaskedLM, False, ["cls.*"], ["bert.*=*"]), (BertForMaskedLM, True, ["cls.*"], ["bert.*=*"])]
    for number, (kind, pieces, ignore, maps) in enumerate(cases):
        model = kind(config).eval()
        weights = save(model, folder / f"bert{number}", pieces)
        common = ["run", BERT, "--recipe", "f32", "--weights", weights, *inputs]
        code, out, err = run(fp8c, *common)
        assert code == 1 and f"  unexpected  {ignore[0][:-1]}" in err, err
        options = [x for p in ignore for x in ("--ignore", p)] + [x for m in maps for x in ("--map", m)]
        code, out, err = run(fp8c, *common, *options, "--json", "-", "--output", f"hidden={folder}/hidden.npy")
        assert code == 0, err
        encoder = model.bert if maps else model
        with torch.no_grad():
            want = encoder(torch.tensor(tokens).long(), token_type_ids=torch.tensor(types).long()).last_hidden_state
        off = np.abs(np.load(folder / "hidden.npy") - want.numpy()).max()
        assert off < NEAR, off
        record = weights_record(out)
        assert len(record["taken"]) == 5 + 2 * 16 and record["ignored"] and not record["missing"]
        print(f"{kind.__name__}, {len(record['files'])} file(s): {len(record['taken'])} tensors taken, "
              f"{len(record['ignored'])} ignored, largest difference {off:.1e}")


def check_gpt2(fp8c, folder):
    config = GPT2Config(vocab_size=120, n_positions=16, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0,
                        attn_pdrop=0)
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    for name in ("tokens", "targets"):
        np.save(folder / f"{name}.npy", rng.integers(0, 120, (2, 16), np.int32))
    inputs = [x for name in ("tokens", "targets") for x in ("--input", f"{name}={folder}/{name}.npy")]
    tokens, targets = (torch.tensor(np.load(folder / f"{name}.npy")).long() for name in ("tokens", "targets"))
    for number, (kind, pieces, dtype) in enumerate([(GPT2LMHeadModel, False, torch.float32),
                                                    (GPT2LMHeadModel, True, torch.float32),
                                                    (GPT2LMHeadModel, True, torch.bfloat16),
                                                    (GPT2Model, True, torch.float32)]):
        head = GPT2LMHeadModel(config).eval()
        with torch.no_grad():  # far from the initial values, so that every tensor counts
            for p in head.parameters():
                p.add_(0.05 * torch.randn_like(p))
        head = head.to(dtype)
        weights = save(head if kind is GPT2LMHeadModel else head.transformer, folder / f"gpt{number}", pieces)
        with torch.no_grad():
            logits = head.float()(tokens).logits
            want = torch.nn.functional.cross_entropy(logits.view(-1, 120), targets.view(-1)).item()
        for recipe, near in (("f32", NEAR), ("bf16", 2e-3), ("delayed", 2e-2)):
            code, out, err = run(fp8c, "run", GPT, *GPT_DIMS, "--recipe", recipe, "--weights", weights, *inputs,
                                 "--json", "-")
            assert code == 0, err
            loss = next(r for r in map(json.loads, out.splitlines()) if r["event"] == "output")["value"]
            assert abs(loss - want) < near * want, (recipe, loss, want)
            record = weights_record(out)
            assert len(record["taken"]) == 28 and bool(record["calibrated"]) == (recipe == "delayed")
            print(f"{kind.__name__}, {len(record['files'])} file(s), {dtype}: loss {loss:.6f} under {recipe}, "
                  f"transformers has {want:.6f}")
    code, _, err = run(fp8c, "run", GPT, *GPT_DIMS, "--weights", weights, *inputs, "--map", "*=transformer.*")
    assert code == 0, err


def check_training(fp8c, folder):
    row = np.random.default_rng(SEED).integers(0, 120, (1, 17), np.int32)
    batch, rows = [], []
    for name, values in (("tokens", row[:, :-1]), ("targets", row[:, 1:])):
        np.save(folder / f"{name}.npy", np.repeat(values, 2, 0))
        np.save(folder / f"{name}s.npy", np.repeat(values, 20, 0))  # every batch is the same
        batch += ["--input", f"{name}={folder}/{name}.npy"]
        rows += ["--batch", f"{name}={folder}/{name}s.npy"]
    gpt = GPT2LMHeadModel(GPT2Config(vocab_size=120, n_positions=16, n_embd=32, n_layer=2, n_head=2))
    llama = LlamaForCausalLM(LlamaConfig(vocab_size=120, hidden_size=32, intermediate_size=80, num_hidden_layers=2,
                                         num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5,
                                         max_position_embeddings=16))
    for model, text, dims in ((gpt, GPT, GPT_DIMS), (llama, LLAMA, LLAMA_DIMS)):
        for pieces in (False, True):
            weights = save(model, folder / f"{type(model).__name__}{pieces}", pieces)
            for recipe in ("f32", "bf16", "current", "rowwise", "block", "mxfp8"):
                common = [text, *dims, "--recipe", recipe, "--weights", weights, "--json", "-"]
                code, out, err = run(fp8c, "run", *common, *batch)
                assert code == 0, err
                want = next(r for r in map(json.loads, out.splitlines()) if r["event"] == "output")["value"]
                code, out, err = run(fp8c, "train", *common, *rows, "--steps", 1)
                assert code == 0, err
                loss = next(r for r in map(json.loads, out.splitlines()) if r["event"] == "step")["loss"]
                assert np.float32(loss) == np.float32(want), (recipe, loss, want)
            print(f"{type(model).__name__}, {'pieces' if pieces else 'one file'}: first losses are eval's, "
                  f"{loss:.6f} under {recipe}")


def main():
    fp8c = sys.argv[1]
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as name:
        check_bert(fp8c, pathlib.Path(name))
        check_gpt2(fp8c, pathlib.Path(name))
        check_training(fp8c, pathlib.Path(name))


if __name__ == "__main__":
    main()
