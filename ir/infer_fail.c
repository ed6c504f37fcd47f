/* The messages of infer rules, with the operands' types and places. infer.c and infer_nn.c use
 * them. */
#include "ir/internal.h"

#include <stdio.h>
#include <string.h>

#include "ir/base/format.h"

/* Append "f32[8, 256] (from %x, line 12:3)" at buf + at. Returns the new length, less than size. */
static size_t describe(const f8_graph *g, f8_ref r, char *buf, size_t size, size_t at)
{
    char type[160], where[48] = "";
    f8_loc loc = g->loc[r];
    const char *name = g->name[r];
    f8_op op = g->node[r].op;
    bool var = op == F8_OP_INPUT && name && f8_module_find_var(g->module, name) >= 0;
    if (loc.line)
        snprintf(where, sizeof where, ", line %u:%u", loc.line, loc.column);
    int n = snprintf(buf + at, size - at, "%s (from %s%s%s)",
                     f8_type_print(&g->node[r].type, type, sizeof type), name && !var ? "%" : "",
                     name ? name : f8_op_facts(op)->name, where);
    at += n > 0 ? (size_t)n : 0;
    return at < size ? at : size - 1;
}

f8_status f8_infer_fail(f8_graph *g, const f8_node *n, const char *roles, const char *fmt, ...)
{
    enum { SHOWN = 5 };
    char text[896], what[256];
    size_t at = 0;
    va_list args;
    va_start(args, fmt);
    f8_vformat(what, sizeof what, fmt, args);
    va_end(args);
    text[0] = 0;
    for (uint32_t i = 0; i < n->n_in && i < SHOWN && at + 1 < sizeof text; i++) {
        size_t role = roles ? strcspn(roles, " ") : 0;
        int put = snprintf(text + at, sizeof text - at, "%s%.*s%s",
                           i == 0             ? ""
                           : i + 1 == n->n_in ? " and "
                                              : ", ",
                           (int)role, role ? roles : "", role ? " " : "");
        at += put > 0 ? (size_t)put : 0;
        if (at + 1 < sizeof text)
            at = describe(g, n->in[i], text, sizeof text, at);
        if (roles)
            roles += roles[role] ? role + 1 : role;
    }
    const char *more = n->n_in > SHOWN ? " and more" : "";
    return f8_fail(g->diag, F8_ERR_INPUT, g->at, n->n_in ? "%s: %s%s: %s" : "%s%s%s: %s",
                   f8_op_facts(n->op)->name, text, more, what);
}

static const char *dtype_list(unsigned mask, char *buf, size_t size)
{
    size_t at = 0;
    buf[0] = 0;
    for (int d = 0; d < F8_DTYPE_COUNT && at < size; d++)
        if (mask & 1u << d)
            at += (size_t)snprintf(buf + at, size - at, "%s%s", at ? " or " : "", f8_dtype_name(d));
    return buf;
}

f8_status f8_need_dtype(f8_graph *g, const f8_node *n, const char *roles, uint32_t i, unsigned mask)
{
    f8_dtype d = f8_in_type(g, n, i)->dtype;
    char list[96];
    if (mask & 1u << d)
        return F8_OK;
    const char *how = "";
    if (d == F8_BF16 || d == F8_F16 || f8_dtype_is_fp8(d) || d == F8_E8M0)
        how = "; cast it to f32 first";
    return f8_infer_fail(g, n, roles, "operand %u must be %s, not %s%s", i + 1,
                         dtype_list(mask, list, sizeof list), f8_dtype_name(d), how);
}

f8_status f8_infer_need_type(f8_graph *g, const f8_node *n, const char *roles, uint32_t i,
                             const f8_type *t)
{
    char text[160];
    if (f8_type_equal(f8_in_type(g, n, i), t))
        return F8_OK;
    return f8_infer_fail(g, n, roles, "operand %u must be %s%s", i + 1, t->rank ? "" : "a scalar, ",
                         f8_type_print(t, text, sizeof text));
}
