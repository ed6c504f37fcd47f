/* The ops as an embedder sees them: the rows of ir/ops.def. */
#include <stdio.h>
#include <string.h>

#include "frontend/api.h"

fp8c_status fp8c_op(const char *name, fp8c_op_info *out)
{
    static const char *const groups[] = {
        [F8_LEAF] = "leaf", [F8_POINTWISE] = "pointwise", [F8_REDUCE] = "reduction",
        [F8_SHAPE] = "shape", [F8_GEMM] = "gemm", [F8_ATTENTION] = "attention",
        [F8_GATHER] = "gather", [F8_FP8] = "fp8", [F8_COMPOSITE] = "composite",
        [F8_COLLECTIVE] = "collective",
    };
    static const char *const gradients[] = {
        [F8_GRADIENT_RULE] = "yes", [F8_GRADIENT_ZERO] = "zero", [F8_GRADIENT_ERROR] = "none"};
    const f8_op op = f8_op_by_name(name, strlen(name));
    if (op == F8_OP_NONE || op == F8_OP_INPUT || !out->struct_size)
        return FP8C_ERR_INPUT;
    const f8_op_info *o = f8_op_facts(op);
    fp8c_op_info own = {
        .struct_size = sizeof own, .name = o->name, .group = groups[o->cls],
        .operands = o->operands, .min_operands = o->min_in, .max_operands = o->max_in,
        .results = o->results, .attributes = o->n_attrs,
        .gradient = gradients[f8_op_gradient_of(op)], .text = o->text,
    };
    char types[sizeof own.types];
    snprintf(own.types, sizeof own.types, "%s", f8_op_types(op, types, sizeof types));
    f8_api_give(out, &own);
    return FP8C_OK;
}

fp8c_status fp8c_op_attribute(const char *name, int index, fp8c_op_attr *out)
{
    static const fp8c_attr_kind kinds[] = {
        [F8_ATTR_INT] = FP8C_ATTR_INT,     [F8_ATTR_FLOAT] = FP8C_ATTR_FLOAT,
        [F8_ATTR_BOOL] = FP8C_ATTR_BOOL,   [F8_ATTR_DTYPE] = FP8C_ATTR_DTYPE,
        [F8_ATTR_STR] = FP8C_ATTR_STRING,  [F8_ATTR_INTS] = FP8C_ATTR_INTS,
    };
    const f8_op op = f8_op_by_name(name, strlen(name));
    if (op == F8_OP_NONE || op == F8_OP_INPUT || index < 0 || index >= f8_op_facts(op)->n_attrs ||
        !out->struct_size)
        return FP8C_ERR_INPUT;
    const f8_attr *a = &f8_op_facts(op)->attrs[index];
    const f8_attr_kind kind = f8_attr_kind_of(a->key);
    fp8c_op_attr own = {.struct_size = sizeof own, .text = f8_attr_text(a->key),
                        .attr = {.name = f8_attr_name(a->key), .kind = kinds[kind]}};
    switch (kind) {
    case F8_ATTR_FLOAT: own.attr.f = a->f; break;
    case F8_ATTR_STR: own.attr.s = a->s; break;
    case F8_ATTR_INTS: break;
    default: own.attr.i = a->i;
    }
    f8_api_give(out, &own);
    return FP8C_OK;
}
