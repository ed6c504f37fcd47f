"""fp8c.torch: PyTorch models through fp8c.

    model = torch.compile(model, backend="fp8c", options={"recipe": "current"})

The name needs no import where the package is installed. Importing fp8c.torch gives it, too: from a
source tree on PYTHONPATH, say.

    print(fp8c.torch.report(model))             what became of every linear
    print(fp8c.torch.statistics(model))         what FP8 did to the operands of the call watched last
    fp8c.torch.state_dict(model)                scales, apart from the model's own state
    fp8c.torch.load_state_dict(model, state)
    fp8c.torch.ScalesState(model)               the same for torch.distributed.checkpoint
    fp8c.torch.update_scales(model)             ends a step of an optimizer that is not torch.optim's
    fp8c.torch.release_memory(model)            frees memory that is kept for the next call
    fp8c.torch.shard_in_fp8(model, "current")   before fully_shard: weights of linears travel in FP8
    fp8c.torch.store_frozen(model)              frozen linears keep their weights as FP8 codes
    fp8c.torch.merge_adapters(model)            LoRA of peft's becomes part of such codes
    fp8c.torch.export_fp8(model, OUT)           a folder with FP8 weights, for other stacks
    fp8c.torch.compile_for_trainer(model, **options)    before Hugging Face's Trainer or Accelerate
    text = fp8c.torch.export_text(model, args, kwargs)     a module as text, for `fp8c compile`

The front half of the torch.compile backend, for who builds on it. All of it is stable to import
from here:

    captured = capture(gm, example_inputs, names)    in a backend: dynamo's graph -> `Captured`.
                       names: names_of(model), where the model is known
    captured = capture_module(model, args, kwargs, dynamic=False)    runs dynamo itself
    plan = partition(captured, name="model")   -> `Plan`; it consumes `captured`

    plan.inputs        list[Input], in the order of the call's arguments: name, kind ("param",
                       "buffer", "input", "size"), path (dotted name of a parameter or buffer),
                       index (position in the call), tensor (the parameter or buffer), requires_grad
    plan.steps         list[Stage | Eager], in the order in which they run
    plan.constants, plan.prologue, plan.prologue_ops, plan.outputs
    plan.stages, plan.eager_ops (EagerOp: op, reason, place), plan.linears
    plan.run(args, run_stage)   one call: prologue, then run_stage(stage, tensors) -> results for
                       each stage, and PyTorch's ops between. `tensors` belong to stage.inputs.

    stage.text         a whole module, for fp8c.Module.parse. Its function is `forward`
    stage.params       list[Param]: name (in the text), index (into plan.inputs and the call's
                       arguments), path, requires_grad. A frozen one is a param of the text all the
                       same. stage.frozen has their names: the compile option `frozen`
    stage.inputs, stage.results    list[Port]: name, value, dtype, shape, gradient, torch_dtype
    stage.gradients_of the inputs whose gradients are wanted (the compile option of that name)
    stage.seed         whether the last input of the text is `seed: i32[]`: give each call a new
                       number. Dropouts have their streams, so all stages of a call share the seed.
                       Under no_grad in training mode run `forward`: `eval` has no dropout
    stage.linears      list[Linear]: name (what recipe rules match), place (module, file, line),
                       weight (the parameter's path; "": computed)
    stage.bounds       dims that are bounds, by name, with their largest values: the sizes of the
                       example, or those given as partition(captured, name, bounds). plan.sizes(args)
                       gives their values in a call, for Program.set_dim: not every dim of a text
                       can be told from the shapes of its inputs

    check_version()    refuses or warns of a PyTorch that was not tested; call it at first use

What can't be captured raises `Unsupported`: op, reason, place. The message has all three.
"""

from . import private
from .backend import fp8c_backend
from .export import export_fp8
from .graph.capture import Captured, Input, Output, capture, capture_module, names_of
from .graph.export import export_text
from .graph.partition import partition
from .graph.plan import Eager, EagerOp, Linear, Param, Plan, Port, Prologue, Stage
from .places import Place, Unsupported
from .ranks.agreement import RanksDiffer
from .ranks.gathered import Fp8GatherError, shard_in_fp8
from .report import LinearReport, Report, report
from .run import copies
from .run.memory import release_memory
from .run.scales import set_amax_group, update_scales
from .run.state import ScalesState, load_state_dict, state_dict
from .selftest import check_version
from .statistics import Operand, Statistics, statistics
from .trainer import compile_for_trainer
from .weights.linear import StoredLinear
from .weights.merge import Merged, MergedLinear, merge_adapters
from .weights.store import Stored, store_frozen

__all__ = ["Captured", "Eager", "EagerOp", "Fp8GatherError", "Input", "Linear", "LinearReport", "Merged",
           "MergedLinear", "Operand", "Output", "Param", "Place", "Plan", "Port", "Prologue", "RanksDiffer",
           "Report", "ScalesState", "Stage", "Statistics", "Stored", "StoredLinear", "Unsupported", "capture",
           "capture_module", "check_version", "compile_for_trainer", "export_fp8", "export_text", "fp8c_backend",
           "load_state_dict", "merge_adapters", "names_of", "partition", "release_memory", "report",
           "set_amax_group", "shard_in_fp8", "state_dict", "statistics", "store_frozen", "update_scales"]

private.keep_fake_guard()
private.register_backend("fp8c", fp8c_backend)
private.keep_whole_under_ddp(fp8c_backend)
