/* Lists of names: fp8c_name. */
#include "frontend/api.h"
#include "frontend/target.h"
#include "passes/pipeline.h"

/* Every op but `input`, which the text does not call. */
static const char *op_name(int index)
{
    for (int op = F8_OP_NONE + 1; op < F8_OP_COUNT; op++)
        if (op != F8_OP_INPUT && index-- == 0)
            return f8_op_facts((f8_op)op)->name;
    return NULL;
}

static const char *const alarms[] = {
    "loss_nonfinite",   "norm_nonfinite", "loss_explodes", "scale",
    "tensor_nonfinite", "underflow",      "overflow",      "range"};
static const char *const states[] = {"ok", "missing", "does not load", "wrong version",
                                     "mismatched"};
enum { ALARMS = FP8C_ALARM_RANGE + 1, STATES = FP8C_COMPONENT_MISMATCHED + 1 };
_Static_assert(sizeof alarms / sizeof *alarms == ALARMS, "a name for each kind");
_Static_assert(sizeof states / sizeof *states == STATES, "a name for each state");

const char *fp8c_name(fp8c_name_kind kind, int index)
{
    if (index < 0)
        return NULL;
    switch (kind) {
    case FP8C_NAME_DTYPE: return index < F8_DTYPE_COUNT ? f8_dtype_name((f8_dtype)index) : NULL;
    case FP8C_NAME_OP: return op_name(index);
    case FP8C_NAME_PASS: return f8_pass_name((size_t)index);
    case FP8C_NAME_RECIPE: return f8_recipe_name((size_t)index);
    case FP8C_NAME_TARGET: return f8_target_name(index);
    case FP8C_NAME_ALARM: return index < ALARMS ? alarms[index] : NULL;
    case FP8C_NAME_COMPONENT_STATE: return index < STATES ? states[index] : NULL;
    }
    return NULL;
}
