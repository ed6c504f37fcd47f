"""frontend/fp8c.h for ctypes: its enums, structs and functions, under the same names without fp8c_.

tests/frontend/python/test_header.py compares every size, offset, type and value with the header.
"""
from __future__ import annotations

import ctypes
import enum
from ctypes import CFUNCTYPE, POINTER
from ctypes import c_char as char
from ctypes import c_char_p as text
from ctypes import c_double as f64
from ctypes import c_int32 as i32
from ctypes import c_int64 as i64
from ctypes import c_size_t as size
from ctypes import c_uint8 as u8
from ctypes import c_uint16 as u16
from ctypes import c_uint32 as u32
from ctypes import c_uint64 as u64
from ctypes import c_void_p as ptr

VERSION = (0, 1, 0)  # of the header, and so of the library that this package takes
MAX_RANK = 8
MAX_BOUNDS = 8
NCCL_ID = 128

i64_p = POINTER(i64)
texts = POINTER(text)  # then NULL


# ---- enums ----

class Status(enum.IntEnum):
    OK = 0
    ERR_INPUT = 1
    ERR_UNSUPPORTED = 2
    ERR_MEMORY = 3
    ERR_IO = 4
    ERR_LIBRARY = 5
    ERR_INTERNAL = 6
    ERR_CANCELLED = 7


class DType(enum.IntEnum):
    F32 = 0
    BF16 = 1
    F16 = 2
    I32 = 3
    BOOL = 4
    F8E4M3 = 5
    F8E5M2 = 6
    F8E8M0 = 7
    I64 = 8


class NameKind(enum.IntEnum):
    DTYPE = 0
    OP = 1
    PASS = 2
    RECIPE = 3
    TARGET = 4
    ALARM = 5
    COMPONENT_STATE = 6


class TuningWay(enum.IntEnum):
    EXPORT = 0
    IMPORT = 1
    MERGE = 2


class LogLevel(enum.IntEnum):
    WARNING = 0
    INFO = 1
    DEBUG = 2


class Init(enum.IntEnum):
    ZEROS = 0
    ONES = 1
    CONST = 2
    NORMAL = 3
    UNIFORM = 4


class AttrKind(enum.IntEnum):
    INT = 0
    FLOAT = 1
    BOOL = 2
    DTYPE = 3
    STRING = 4
    INTS = 5


class Side(enum.IntEnum):
    INPUT = 0
    OUTPUT = 1


class Forward(enum.IntEnum):
    FIRST = 1
    STATS = 2


class LoadFate(enum.IntEnum):
    TAKEN = 0
    IGNORED = 1
    CALIBRATED = 2
    MISSING = 3
    UNEXPECTED = 4
    DIFFERENT = 5


class AlarmKind(enum.IntEnum):
    LOSS_NONFINITE = 0
    NORM_NONFINITE = 1
    LOSS_EXPLODES = 2
    SCALE = 3
    TENSOR_NONFINITE = 4
    UNDERFLOW = 5
    OVERFLOW = 6
    RANGE = 7


class Verdict(enum.IntEnum):
    NOT_JUDGED = 0
    RIGHT = 1
    WRONG = 2


class ComponentState(enum.IntEnum):
    OK = 0
    MISSING = 1
    REFUSED = 2
    VERSION = 3
    MISMATCHED = 4


class TestResult(enum.IntEnum):
    FAILED = 0
    PASSED = 1
    COMPILED = 2
    NOT_RUN = 3


# ---- pointers to functions ----

# c_char_p would copy up to a 0, so texts of a given size and memory come as addresses.
WriteFn = CFUNCTYPE(ctypes.c_int, ptr, ptr, size)
WitnessFn = CFUNCTYPE(None, ptr, ptr)
DeleterFn = CFUNCTYPE(None, ptr)
LogFn = CFUNCTYPE(None, ptr, i32, text)
ProgressFn = CFUNCTYPE(ctypes.c_int, ptr, ptr)
TextFn = CFUNCTYPE(None, ptr, text)  # say and record of a training
StopFn = CFUNCTYPE(i32, ptr)
TaskFn = CFUNCTYPE(None, ptr, i32, i64, i64)
ParallelFn = CFUNCTYPE(None, ptr, TaskFn, ptr, i64)
AllocFn = CFUNCTYPE(ptr, ptr, size, size)
DeviceAllocFn = CFUNCTYPE(ptr, ptr, size)
FreeFn = CFUNCTYPE(None, ptr, ptr, size)
ExchangeFn = CFUNCTYPE(ctypes.c_int, ptr, ptr, ptr, size)
MessageFn = CFUNCTYPE(ptr, ptr)
ObserveFn = CFUNCTYPE(None, ptr, ptr, i32)
ReportFn = CFUNCTYPE(None, ptr, ptr)
BeforeFn = CFUNCTYPE(None, ptr, text)


# ---- structs ----

class Structure(ctypes.Structure):
    """A struct of the header; struct_size, where it has one, is set."""

    def __init__(self, **fields):
        if self._fields_[0][0] == "struct_size":
            fields["struct_size"] = ctypes.sizeof(self)
        super().__init__(**fields)


class Type(Structure):
    _fields_ = [("dtype", i32), ("rank", i32), ("dim", i64 * MAX_RANK)]


class Progress(Structure):
    _fields_ = [("struct_size", size), ("phase", text), ("item", text), ("done", i64),
                ("total", i64), ("seconds_left", f64)]


class ContextOptions(Structure):
    _fields_ = [("struct_size", size), ("alloc", AllocFn), ("free", FreeFn),
                ("allocator_user", ptr), ("gpu_library_path", text), ("cuda_home", text),
                ("cuda_path", text), ("python_env", text), ("home", text), ("cache_dir", text),
                ("cache_bytes", i64), ("tuning", text), ("log", LogFn), ("log_user", ptr),
                ("verbose", i32), ("dump", text), ("progress", ProgressFn), ("progress_user", ptr),
                ("parallel", ParallelFn), ("parallel_user", ptr), ("parallel_threads", i32),
                ("threads", i32)]


class CacheInfo(Structure):
    _fields_ = [("struct_size", size), ("folder", text), ("why_not", text), ("read_only", i32),
                ("hits", i64), ("misses", i64), ("stored", i64), ("bytes", i64), ("entries", i64),
                ("tuning", text)]


class Dim(Structure):
    _fields_ = [("name", text), ("value", i64)]


class ModuleInfo(Structure):
    _fields_ = [("struct_size", size), ("name", text), ("parameters", i64), ("elements", i64),
                ("accumulate", i64), ("optimizer_steps", i64), ("needs_steps", i32)]


class Attr(Structure):
    _fields_ = [("name", text), ("kind", i32), ("i", i64), ("f", f64), ("s", text), ("ints", ptr),
                ("n_ints", i32)]


class OpInfo(Structure):
    _fields_ = [("struct_size", size), ("name", text), ("group", text), ("operands", text),
                ("min_operands", i32), ("max_operands", i32), ("results", i32), ("attributes", i32),
                ("gradient", text), ("text", text), ("types", char * 320)]


class OpAttr(Structure):
    _fields_ = [("struct_size", size), ("attr", Attr), ("text", text)]


class StoredAs(Structure):
    _fields_ = [("name", text), ("recipe", text)]


class Exchange(Structure):
    _fields_ = [("op", text), ("function", text), ("name", text), ("bytes", i64), ("enqueued", u64)]


class Comm(Structure):
    _fields_ = [("struct_size", size), ("rank", i32), ("ranks", i32), ("user", ptr),
                ("all_gather", ExchangeFn), ("all_to_all", ExchangeFn), ("message", MessageFn),
                ("on_caller", i32), ("nccl", ptr), ("observe", ObserveFn),
                ("all_reduce", ExchangeFn), ("reduce_scatter", ExchangeFn)]


class NcclOptions(Structure):
    _fields_ = [("struct_size", size), ("device", i32), ("rank", i32), ("ranks", i32),
                ("over", ptr), ("id", ptr), ("seconds", f64)]


class Trial(Structure):
    _fields_ = [("linear", text), ("role", text), ("m", i64), ("n", i64), ("k", i64),
                ("winner", i32), ("reason", text), ("fixed", i32)]


class Candidate(Structure):
    _fields_ = [("recipe", text), ("excluded", text), ("error", f64), ("sqnr", f64 * 2),
                ("underflow", f64 * 2), ("overflow", f64 * 2), ("seconds", f64),
                ("gemm_seconds", f64), ("bytes", f64)]


class OpenOptions(Structure):
    _fields_ = [("struct_size", size), ("target", text), ("threads", i32), ("profile", i32),
                ("device", i32), ("no_device", i32), ("stream", ptr),
                ("device_alloc", DeviceAllocFn), ("device_free", FreeFn), ("device_user", ptr),
                ("external", text), ("comm", ptr), ("bytes", ptr), ("n_bytes", size)]


class ArenaOptions(Structure):
    _fields_ = [("struct_size", size), ("device_alloc", DeviceAllocFn), ("device_free", FreeFn),
                ("device_user", ptr)]


class FileInfo(Structure):
    _fields_ = [("struct_size", size), ("version", text), ("format", i32), ("plan_format", i32),
                ("bytes", i64), ("checksum", char * 33), ("targets", i32), ("target", char * 32),
                ("missing", char * 160), ("dims", char * 192), ("variants", i32)]


class TrainingOptions(Structure):
    _fields_ = [("struct_size", size), ("compile", ptr), ("data", ptr), ("n_data", size),
                ("batches", ptr), ("n_batches", size), ("validation", ptr), ("n_validation", size),
                ("tokens", text), ("steps", i64), ("stop_at", i64), ("eval_every", i64),
                ("seed", u64), ("run", text), ("resume", text), ("save_every", i64), ("keep", i64),
                ("checksum_every", i64), ("fingerprint_every", i64), ("guard", text),
                ("every", i64), ("dump_steps", text), ("calibrate", i64), ("error_budget", f64),
                ("say", TextFn), ("record", TextFn), ("stop", StopFn), ("user", ptr),
                ("weights", ptr), ("n_weights", size), ("ignore", ptr), ("n_ignore", size),
                ("map", ptr), ("n_map", size), ("allow_missing", ptr), ("n_allow_missing", size)]


class TrainingStep(Structure):
    _fields_ = [("struct_size", size), ("step", i64), ("steps", i64), ("loss", f64),
                ("grad_norm", f64), ("lr", f64), ("heldout_loss", f64), ("seconds", f64),
                ("skipped", i32), ("alarms", i32)]


class TrainingResult(Structure):
    _fields_ = [("struct_size", size), ("begun_at", i64), ("done", i64), ("skipped", i64),
                ("final_loss", f64), ("heldout_loss", f64), ("items_per_second", f64),
                ("fp8_gemms", i64)]


class TuneOptions(Structure):
    _fields_ = [("struct_size", size), ("compile", ptr), ("database", text), ("only", text),
                ("seconds", f64), ("runs", i32), ("same_bits", i32), ("again", i32),
                ("gemm", text), ("kernels", text)]


class TuningInfo(Structure):
    _fields_ = [("struct_size", size), ("database", text), ("device", text), ("problems", i32),
                ("chosen", i32), ("timed", i64), ("kept", i64), ("changed_bits", i64),
                ("untuned_seconds", f64), ("tuned_seconds", f64), ("finished", i32)]


class Tuned(Structure):
    _fields_ = [("problem", text), ("name", text), ("candidate", text), ("gemm", i32),
                ("count", i32), ("candidates", i32), ("model_seconds", f64), ("seconds", f64)]


class TuningRows(Structure):
    _fields_ = [("struct_size", size), ("timings", i64), ("choices", i64), ("older", i64),
                ("others", i64)]


class Choice(Structure):
    _fields_ = [("problem", text), ("candidate", text), ("gemm", i32), ("count", i32),
                ("tuned", i32)]


class ProgramDim(Structure):
    _fields_ = [("name", text), ("value", i64), ("bound", i64)]


class Port(Structure):
    _fields_ = [("name", text), ("type", Type), ("variable", i32)]


class Variable(Structure):
    _fields_ = [("name", text), ("type", Type), ("is_param", i32), ("data", ptr), ("rows", i64)]


class DLDevice(ctypes.Structure):
    _fields_ = [("type", i32), ("id", i32)]


class DLDataType(ctypes.Structure):
    _fields_ = [("code", u8), ("bits", u8), ("lanes", u16)]


class TensorView(ctypes.Structure):
    """DLPack's DLTensor."""
    _fields_ = [("data", ptr), ("device", DLDevice), ("ndim", i32), ("dtype", DLDataType),
                ("shape", i64_p), ("strides", i64_p), ("byte_offset", u64)]


class ManagedTensor(ctypes.Structure):
    """DLPack's DLManagedTensorVersioned."""
    _fields_ = [("major", u32), ("minor", u32), ("manager", ptr), ("deleter", DeleterFn),
                ("flags", u64), ("tensor", TensorView)]


class Position(Structure):
    _fields_ = [("struct_size", size), ("step", i64), ("seed", u64), ("batch", u64)]


class LoadItem(Structure):
    _fields_ = [("fate", i32), ("error", i32), ("variable", text), ("tensor", text), ("file", text),
                ("detail", text)]


class LoadOptions(Structure):
    _fields_ = [("struct_size", size), ("files", ptr), ("n_files", size), ("ignore", ptr),
                ("n_ignore", size), ("map", ptr), ("n_map", size), ("allow_missing", ptr),
                ("n_allow_missing", size), ("scales", ptr), ("report", ReportFn), ("user", ptr)]


class Converted(Structure):
    _fields_ = [("weight", text), ("fate", text), ("granularity", text), ("why", text), ("sqnr", f64),
                ("added", f64)]


class ConvertOptions(Structure):
    _fields_ = [("struct_size", size), ("from", text), ("format", text), ("out", text), ("model", text),
                ("adapters", text), ("most", i64), ("ignore", ptr), ("n_ignore", size), ("map", ptr),
                ("n_map", size), ("report", ReportFn), ("user", ptr)]


class Carried(Structure):
    _fields_ = [("struct_size", size), ("carried", i64), ("missing", i64), ("left", i64)]


class Stored(Structure):
    _fields_ = [("variable", i32), ("scale_variable", i32), ("recipe", char * 160), ("kept", text)]


class Info(Structure):
    _fields_ = [("struct_size", size), ("compile_seconds", f64), ("planned_bytes", i64),
                ("peak_bytes", i64), ("arena_bytes", i64), ("arena_lower_bound", i64),
                ("linears", i64), ("fp8_gemms_planned", i64), ("gemms_executed", i64),
                ("fp8_gemms_executed", i64), ("kernels_executed", i64), ("distinct_kernels", i64),
                ("code_bytes", i64), ("kernels_cached", i64), ("threads", i32),
                ("held_bytes", i64), ("tuning_table", text)]


class Device(Structure):
    _fields_ = [("struct_size", size), ("name", char * 128), ("compute_capability", i32),
                ("driver", i32), ("multiprocessors", i32), ("memory", i64), ("memory_free", i64)]


class Found(Structure):
    _fields_ = [("struct_size", size), ("tensor", text), ("role", text), ("index", i64),
                ("value", f64), ("nonfinite", i64), ("elements", i64), ("others", i64)]


class GuardOptions(Structure):
    _fields_ = [("struct_size", size), ("scale_every", i32), ("underflow", f64), ("overflow", f64)]


class GuardFacts(Structure):
    _fields_ = [("struct_size", size), ("step", i64), ("loss", f64), ("grad_norm", f64),
                ("program", ptr), ("function", i32), ("found", POINTER(Found))]


class GuardInfo(Structure):
    _fields_ = [("struct_size", size), ("raised", u32), ("far", i32), ("suspects", i64)]


class Alarm(Structure):
    _fields_ = [("struct_size", size), ("kind", i32), ("step", i64), ("since", i64),
                ("tensor", text), ("role", text), ("value", f64), ("limit", f64), ("others", i64),
                ("text", char * 320)]


class Decision(Structure):
    _fields_ = [("linear", text), ("role", text), ("format_a", text), ("format_b", text),
                ("scaling", text), ("reason", text), ("m", i64), ("n", i64), ("k", i64),
                ("count", i64), ("fp8", i32)]


class Collective(Structure):
    _fields_ = [("op", text), ("ranks", i32), ("bytes", i64), ("dtype", i32), ("wait", i32),
                ("beside", i32), ("goes_on", i32), ("queued", f64), ("waited", f64)]


class Step(Structure):
    _fields_ = [("name", text), ("kind", text), ("phases", i32), ("hash", u64), ("bytes_read", i64),
                ("bytes_written", i64), ("seconds", f64), ("algorithm", text),
                ("collective", Collective), ("work", text), ("flops", f64), ("estimated", f64),
                ("gap", f64)]


class Witnessed(Structure):
    _fields_ = [("struct_size", size), ("function", i32), ("step", i32), ("kind", text),
                ("name", text), ("value", text), ("type", Type), ("data", ptr), ("hash", u64),
                ("verdict", i32), ("wrong", i64), ("at", i64), ("got", f64), ("want", f64),
                ("allowed", f64), ("nonfinite", i64), ("nonfinite_at", i64),
                ("nonfinite_input", text), ("nonfinite_op", text)]


class Image(Structure):
    _fields_ = [("llvm", text), ("cuda", text), ("ptx", text), ("log", text), ("cubin", ptr),
                ("cubin_size", size)]


class Kernel(Structure):
    _fields_ = [("name", text), ("symbol", text), ("hash", u64), ("image", i32), ("launches", i32),
                ("threads", i32), ("multi", i32), ("registers", i64), ("stack", i64),
                ("spill_stores", i64), ("spill_loads", i64), ("shared", i64),
                ("shared_dynamic", i64), ("bulk", i64), ("seconds", f64)]


class Peak(Structure):
    _fields_ = [("step", text), ("position", i32), ("positions", i32), ("arena_bytes", i64),
                ("alive_bytes", i64), ("activation_bytes", i64), ("seconds", f64)]


class Memory(Structure):
    _fields_ = [("category", text), ("bytes", i64), ("in_arena", i32)]


class Tensor(Structure):
    _fields_ = [("name", text), ("category", text), ("type", Type), ("bytes", i64), ("made", text),
                ("read", text), ("first", i32), ("last", i32)]


class Remat(Structure):
    _fields_ = [("struct_size", size), ("arena_before", i64), ("arena_budget", i64),
                ("arena_after", i64), ("activations_before", i64), ("activations_after", i64),
                ("recomputed", i64), ("fp8_gemms", i64), ("seconds", f64), ("extra_seconds", f64),
                ("rounds", i32), ("planned_bytes", i64)]


class Pass(Structure):
    _fields_ = [("name", text), ("seconds", f64), ("nodes", i64)]


class DoctorOptions(Structure):
    _fields_ = [("struct_size", size), ("before", BeforeFn), ("user", ptr), ("cpu_only", i32)]


class Component(Structure):
    _fields_ = [("name", text), ("kind", text), ("state", i32), ("version", text), ("major", i32),
                ("path", text), ("problem", text), ("note", text), ("enables", text),
                ("places", text), ("get", text)]


class Fact(Structure):
    _fields_ = [("group", text), ("name", text), ("value", text), ("advice", text)]


class TargetReport(Structure):
    _fields_ = [("name", text), ("is", text), ("can_compile", i32), ("can_run", i32),
                ("compile_missing", text), ("run_missing", text)]


class SelfTest(Structure):
    _fields_ = [("result", i32), ("seconds", f64), ("detail", text)]


class BurnOptions(Structure):
    _fields_ = [("struct_size", size), ("target", text), ("device", i32), ("threads", i32),
                ("seconds", f64)]


class BurnInfo(Structure):
    _fields_ = [("struct_size", size), ("target", text), ("device", text), ("threads", i32),
                ("finished", i32), ("failure", text), ("seconds", f64), ("rounds", i64),
                ("comparisons", i64), ("wrong", i64), ("runs", i64), ("bytes", i64),
                ("busy", f64), ("first_flops", f64), ("last_flops", f64)]


class BurnResult(Structure):
    _fields_ = [("struct_size", size), ("name", text), ("step", text), ("skipped", text),
                ("comparisons", i64), ("wrong", i64), ("first", text), ("first_round", i64),
                ("first_element", i64), ("first_count", i64)]


class HealthOptions(Structure):
    _fields_ = [("struct_size", size), ("gpu", i32), ("device", i32), ("seconds", f64)]


class HealthInfo(Structure):
    _fields_ = [("struct_size", size), ("source", text), ("known", i32), ("events", i32),
                ("faults", i32), ("address", text)]


class HealthValue(Structure):
    _fields_ = [("struct_size", size), ("name", text), ("text", text), ("first", i64),
                ("now", i64), ("fault", i32)]


class HealthEvent(Structure):
    _fields_ = [("struct_size", size), ("name", text), ("text", char * 160), ("seconds", f64),
                ("number", i64), ("fault", i32)]


# ---- functions: the type of the result, then those of the arguments ----

status = i32

FUNCTIONS = {
    "version": (text,),
    "type_bytes": (i64, ptr),
    "name": (text, i32, i32),
    "context_create": (status, ptr, ptr),
    "context_destroy": (None, ptr),
    "context_abandon_files": (None, ptr),
    "context_message": (text, ptr),
    "context_cache": (status, ptr, ptr),
    "module_parse": (status, ptr, text, size, text, ptr, size, ptr),
    "module_destroy": (None, ptr),
    "module_report": (None, ptr, ptr),
    "module_print": (status, ptr, WriteFn, ptr),
    "module_dim": (i64, ptr, text),
    "module_create": (status, ptr, text, ptr),
    "module_param": (status, ptr, text, ptr, i32, f64),
    "module_optimizer": (status, ptr, ptr, size),
    "module_rule": (status, ptr, text, text),
    "module_check": (status, ptr),
    "func_begin": (status, ptr, text),
    "func_input": (u32, ptr, text, ptr),
    "func_param": (u32, ptr, text),
    "func_const": (u32, ptr, f64),
    "func_op": (u32, ptr, text, ptr, size, ptr, size),
    "func_result": (status, ptr, text, u32),
    "func_end": (status, ptr),
    "op": (status, text, ptr),
    "op_attribute": (status, text, i32, ptr),
    "mpi_open": (status, ptr, text, ptr, ptr),
    "mpi_close": (None, ptr),
    "mpi_abort": (None, ptr, i32),
    "nccl_id": (status, ptr, ptr),
    "nccl_open": (status, ptr, ptr, ptr, ptr),
    "nccl_close": (None, ptr),
    "nccl_abort": (None, ptr),
    "training_create": (status, ptr, ptr, ptr, ptr),
    "training_destroy": (None, ptr),
    "training_run": (status, ptr, ptr),
    "training_end": (status, ptr),
    "training_report": (None, ptr, ptr),
    "training_program": (ptr, ptr),
    "calibration_create": (status, ptr, ptr, f64, ptr),
    "calibration_destroy": (None, ptr),
    "calibration_program": (ptr, ptr),
    "calibration_observe": (status, ptr),
    "calibration_trial": (status, ptr, i32, ptr),
    "calibration_candidate": (status, ptr, i32, i32, ptr),
    "calibration_rules": (status, ptr, WriteFn, ptr),
    "compile": (status, ptr, ptr, ptr),
    "program_destroy": (None, ptr),
    "compile_file": (status, ptr, ptr, size, text),
    "program_open": (status, ptr, text, ptr, ptr),
    "file_read_info": (status, ptr, text, i32, ptr),
    "tune": (status, ptr, ptr, ptr, ptr),
    "tuning_destroy": (None, ptr),
    "tuning_report": (None, ptr, ptr),
    "tuning_problem": (status, ptr, i32, ptr),
    "tuning_candidate": (status, ptr, i32, i32, ptr, ptr),
    "tuning_move": (status, ptr, i32, text, text, ptr),
    "program_choice": (status, ptr, i32, ptr),
    "program_dims": (status, ptr, i32, ptr),
    "program_values": (status, ptr, i32, ptr),
    "program_set_dim": (status, ptr, text, i64),
    "program_fit": (status, ptr, i32, ptr, size),
    "program_initialize": (status, ptr, u64),
    "program_function": (i32, ptr, text),
    "program_function_name": (text, ptr, i32),
    "program_port": (status, ptr, i32, i32, i32, ptr),
    "program_find_port": (i32, ptr, i32, i32, text),
    "program_buffer": (ptr, ptr, i32, i32, i32),
    "program_bind": (status, ptr, i32, i32, i32, ptr),
    "program_run": (status, ptr, i32),
    "program_form": (status, ptr, i32, ptr),
    "program_run_witnessed": (status, ptr, i32, i32, WitnessFn, ptr),
    "program_wait": (status, ptr),
    "program_call": (status, ptr, i32, ptr, size, ptr, size),
    "program_port_view": (status, ptr, i32, i32, i32, ptr),
    "program_variable_view": (status, ptr, i32, ptr),
    "arena_create": (status, ptr, ptr, ptr),
    "arena_destroy": (None, ptr),
    "arena_bytes": (i64, ptr),
    "lender_create": (status, ptr, size, ptr),
    "lender_destroy": (None, ptr),
    "lender_lend": (status, ptr, ptr, ptr),
    "lender_bytes": (i64, ptr, i32),
    "saved_create": (status, ptr, ptr),
    "saved_destroy": (None, ptr),
    "saved_drop": (None, ptr),
    "program_forward": (status, ptr, i32, ptr, ptr, size, ptr, size),
    "program_backward": (status, ptr, ptr, ptr, size, ptr, size),
    "program_variable": (status, ptr, i32, ptr),
    "program_find_variable": (i32, ptr, text),
    "program_read": (status, ptr, i32, ptr),
    "program_write": (status, ptr, i32, ptr),
    "program_check_ranks": (status, ptr),
    "program_save": (status, ptr, text, ptr),
    "program_load": (status, ptr, text, i32, ptr),
    "program_load_weights": (status, ptr, ptr),
    "convert_weights": (status, ptr, ptr),
    "program_element": (text, ptr, i32, i64, i32),
    "program_carry": (status, ptr, ptr, ptr),
    "program_stored": (status, ptr, i32, ptr),
    "program_quantize": (status, ptr, i32, ptr, ptr),
    "program_bind_variable": (status, ptr, i32, ptr),
    "program_move_variables": (status, ptr, ptr, ptr, size),
    "program_set_stream": (status, ptr, ptr),
    "program_info": (None, ptr, ptr),
    "program_fp8_gemms": (i64, ptr, i32),
    "program_target": (text, ptr),
    "program_device": (status, ptr, ptr),
    "program_statistic": (status, ptr, i32, i32, ptr),
    "program_find_nonfinite": (status, ptr, i32, i32, ptr),
    "guard_create": (status, ptr, ptr, ptr),
    "guard_destroy": (None, ptr),
    "guard_step": (status, ptr, ptr),
    "guard_alarm": (status, ptr, i32, ptr),
    "guard_report": (None, ptr, ptr),
    "program_decision": (status, ptr, i32, ptr),
    "program_step": (status, ptr, i32, i32, ptr),
    "program_image": (status, ptr, i32, ptr),
    "program_kernel": (status, ptr, i32, ptr),
    "program_peak": (status, ptr, i32, ptr),
    "program_memory": (status, ptr, i32, i32, ptr),
    "program_tensor": (status, ptr, i32, i32, ptr),
    "program_remat": (status, ptr, i64, f64, ptr),
    "program_pass": (status, ptr, i32, ptr),
    "recipe_canonical": (status, ptr, text, ptr, size),
    "doctor_create": (status, ptr, ptr, ptr),
    "doctor_destroy": (None, ptr),
    "doctor_component": (status, ptr, i32, ptr),
    "doctor_fact": (status, ptr, i32, ptr),
    "doctor_target": (status, ptr, i32, ptr),
    "doctor_test": (status, ptr, i32, ptr),
    "doctor_burn": (status, ptr, ptr, ptr),
    "burn_destroy": (None, ptr),
    "burn_report": (None, ptr, ptr),
    "burn_result_at": (status, ptr, i32, ptr),
    "health_create": (status, ptr, ptr, ptr),
    "health_destroy": (None, ptr),
    "health_report": (None, ptr, i32, ptr),
    "health_value_at": (status, ptr, i32, ptr),
    "health_event_at": (status, ptr, i32, ptr),
}
