"""FP8 under `accelerate launch` with its FSDP2 plugin and a config file, in fresh processes: on each rank the
report shows FP8 and the parameters are sharded as asked, or the run fails with an error that names both.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from typing import Any

from ranks import free_port

HERE = os.path.dirname(os.path.abspath(__file__))
CONFIG = """compute_environment: LOCAL_MACHINE
distributed_type: FSDP
mixed_precision: "{precision}"
num_machines: 1
num_processes: 2
machine_rank: 0
main_training_function: main
main_process_ip: 127.0.0.1
main_process_port: {port}
rdzv_backend: static
same_network: true
use_cpu: false
debug: false
fsdp_config:
  fsdp_version: {version}
  fsdp_reshard_after_forward: {reshard}
  fsdp_auto_wrap_policy: {wrap}
  fsdp_activation_checkpointing: {checkpoint}
  fsdp_cpu_ram_efficient_loading: {efficient}
  fsdp_sync_module_states: {efficient}
  fsdp_offload_params: {offload}
  fsdp_state_dict_type: SHARDED_STATE_DICT
"""
STEPS = 3
LAYERS = "  fsdp_transformer_layer_cls_to_wrap: GPT2Block\n"


def words(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def launched(model: str, recipe: str = "current", devices: str = "gpus", version: int = 2,
             reshard: bool = True, precision: str = "no", checkpoint: bool = False, efficient: bool = False,
             offload: bool = False, seconds: int = 300, **options: Any) -> list[dict[str, Any]]:
    """What each rank of accelerate_script.py found. TimeoutError: the ranks have not ended in time; they
    are killed."""
    options = {"recipe": recipe, "strict": True, "timeout": 60, **options}
    wrap = "NO_WRAP" if model == "two" else "TRANSFORMER_BASED_WRAP"
    given = {"precision": precision, "version": version, "reshard": reshard, "wrap": wrap,
             "checkpoint": checkpoint, "efficient": efficient, "offload": offload, "port": free_port()}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "config.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(CONFIG.format(**{key: words(value) for key, value in given.items()}))
            file.write(LAYERS if model != "two" else "")
        with open(os.path.join(folder, "log"), "w+b") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "accelerate.commands.launch", "--config_file", path,
                 os.path.join(HERE, "accelerate_script.py"), model, json.dumps(options), folder, devices],
                stdout=log, stderr=log, start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired as error:
                raise TimeoutError(f"the ranks had not ended after {seconds} seconds") from error
            finally:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                process.wait()
            log.seek(0)
            said = log.read().decode(errors="replace")
        found = []
        for rank in range(2):
            try:
                with open(os.path.join(folder, str(rank)), encoding="utf-8") as file:
                    found.append(json.load(file))
            except OSError:
                raise AssertionError(f"rank {rank} left no result: {said[-4000:]}") from None
        return found


class Launch(unittest.TestCase):
    def trained(self, found: list[dict[str, Any]], counts: dict[str, int], executed: int) -> None:
        """On each rank all linears are in FP8 as wanted, every parameter is sharded over both ranks, and
        losses are finite."""
        for rank, one in enumerate(found):
            with self.subTest(rank=rank):
                self.assertNotIn("error", one, one.get("trace"))
                self.assertEqual(one["counts"], counts)
                self.assertEqual(one["executed"], executed)
                self.assertEqual(one["placed"], [["DTensor", 0, 2]] * one["parameters"])
                self.assertEqual(len(one["losses"]), STEPS)
                self.assertTrue(all(math.isfinite(loss) for loss in one["losses"]))
                self.assertEqual(one["unused"], [])

    def refused(self, found: list[dict[str, Any]], *words: str) -> None:
        """Each rank says so, by name."""
        for rank, one in enumerate(found):
            with self.subTest(rank=rank):
                self.assertEqual(one.get("error"), "Unsupported", one.get("trace", one))
                for word in words:
                    self.assertIn(word, one["message"])

    def test_two_linears(self) -> None:
        """Five GEMMs a step: the input of the first linear needs no gradient."""
        self.trained(launched("two", reshard=True), {"FP8": 2}, STEPS * 5)
        self.trained(launched("two", "delayed", reshard=False, precision="bf16"), {"FP8": 2}, STEPS * 5)

    def test_gpt2(self) -> None:
        """Class wrapping, with a head that is tied to the embedding. Activation checkpointing runs the
        forward of the two blocks again, with four linears each."""
        found = launched("gpt2", "delayed", reshard=False, precision="bf16", checkpoint=True)
        self.trained(found, {"FP8": 9}, STEPS * (27 + 8))
        found = launched("gpt2", "current", reshard=True, precision="bf16", efficient=True)
        self.trained(found, {"FP8": 9}, STEPS * 27)

    def test_rules(self) -> None:
        """Rules match the names in the model, with activation checkpointing, too."""
        rules = ['"transformer.h.0.attn.c_attn" = bf16', '"*.mlp.c_fc" = bf16']
        for checkpoint in (False, True):
            with self.subTest(checkpoint=checkpoint):
                found = launched("gpt2", checkpoint=checkpoint, rules=rules)
                self.trained(found, {"FP8": 6, "bf16": 3}, STEPS * (18 + 5 * checkpoint))
                for one in found:
                    names = {name.replace("_checkpoint_wrapped_module.", "")
                             for name, kind in one["kinds"].items() if kind == "bf16"}
                    self.assertEqual(names, {"transformer.h.0.attn.c_attn", "transformer.h.0.mlp.c_fc",
                                             "transformer.h.1.mlp.c_fc"})

    def test_trainer(self) -> None:
        """Hugging Face's Trainer with FSDP2."""
        for reshard in (True, False):
            with self.subTest(reshard=reshard):
                self.trained(launched("trainer", reshard=reshard, precision="bf16"), {"FP8": 9}, STEPS * 27)

    def test_refused(self) -> None:
        """Offload, FSDP1, and CPUs, where Accelerate drops FSDP and says nothing."""
        self.refused(launched("two", offload=True), "CPUOffloadPolicy")
        self.refused(launched("gpt2", version=1), "FSDP", "recipe current", "fsdp_version: 2")
        self.refused(launched("trainer", version=1), "FSDP", "recipe current", "fsdp_version: 2")
        self.refused(launched("gpt2", devices="cpus"), "FSDP", "recipe current",
                     "On CPUs Accelerate drops FSDP")


if __name__ == "__main__":
    unittest.main()
