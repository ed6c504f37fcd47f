/* Lists of names: fp8c_name. */
#include "frontend/api.h"
#include "frontend/figures.h"
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

static const char *state_name(int state)
{
    static const char *const names[] = {"ok", "missing", "does not load", "wrong version",
                                        "mismatched"};
    return state < (int)(sizeof names / sizeof *names) ? names[state] : NULL;
}

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
    case FP8C_NAME_ALARM: return f8_alarm_name(index);
    case FP8C_NAME_COMPONENT_STATE: return state_name(index);
    }
    return NULL;
}
