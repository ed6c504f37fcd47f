/* fp8c ops: the reference of the ops, for people, as records, and as the page
 * frontend/text/OPS.md. */
#include <inttypes.h>
#include <string.h>

#include "frontend/cli/cli.h"

enum { CALL = 160, VALUE = 64 };

static const struct {
    const char *name, *title, *text;
} groups[] = {
    {"leaf", "Leaves", "no operands"},
    {"pointwise", "Pointwise ops", "element by element; operands broadcast as in NumPy"},
    {"reduction", "Reductions", "the axis stays, with size 1"},
    {"shape", "Shapes", "move elements and compute nothing"},
    {"gemm", "Matrix products", "the result is f32, or rounded once more to bf16"},
    {"attention", "Attention", "each head on its own"},
    {"gather", "Rows by index", "an index is i32"},
    {"fp8", "FP8", "amax, scales, codes; recipes insert these"},
    {"collective", "Collectives",
     "what several ranks exchange, each with its own x; sums are in the order of the ranks"},
    {"composite", "Composites", "expanded into the ops above after differentiation"},
};

/* "linear(x, w[, bias])" */
static const char *call_of(const fp8c_op_info *o, char call[CALL])
{
    int n = snprintf(call, CALL, "%s(", o->name), at = 0;
    for (const char *name = o->operands; *name; at++) {
        const int length = (int)strcspn(name, " ");
        const bool optional = at >= o->min_operands && *name != '.';
        n += snprintf(call + n, CALL - (size_t)n, "%s%s%.*s%s", optional ? "[" : "", at ? ", " : "",
                      length, name, optional ? "]" : "");
        name += length + (name[length] == ' ');
    }
    snprintf(call + n, CALL - (size_t)n, ")");
    return call;
}

/* An attribute's default as the text writes it. */
static const char *value_of(const fp8c_attr *a, char value[VALUE])
{
    switch (a->kind) {
    case FP8C_ATTR_INT: snprintf(value, VALUE, "%" PRId64, a->i); break;
    case FP8C_ATTR_FLOAT: snprintf(value, VALUE, "%g", a->f); break;
    case FP8C_ATTR_BOOL: snprintf(value, VALUE, "%s", a->i ? "true" : "false"); break;
    case FP8C_ATTR_DTYPE:
        snprintf(value, VALUE, "%s", fp8c_name(FP8C_NAME_DTYPE, (fp8c_dtype)a->i));
        break;
    case FP8C_ATTR_STRING: snprintf(value, VALUE, "\"%s\"", a->s); break;
    case FP8C_ATTR_INTS: snprintf(value, VALUE, "[]"); break;
    }
    return value;
}

static const char *gradient_of(const fp8c_op_info *o)
{
    return !strcmp(o->gradient, "zero")   ? "zero everywhere"
           : !strcmp(o->gradient, "none") ? "none; differentiating through it is an error"
                                          : "yes";
}

/* ---- for people ---- */

static void print_op(const fp8c_op_info *o)
{
    char call[CALL], value[VALUE], given[CALL];
    printf("%s\n    %s\n\n", call_of(o, call), o->text);
    if (*o->types)
        printf("    types       %s\n", o->types);
    printf("    gradient    %s\n", gradient_of(o));
    fp8c_op_attr a = {.struct_size = sizeof a};
    for (int i = 0; fp8c_op_attribute(o->name, i, &a) == FP8C_OK; i++) {
        snprintf(given, sizeof given, "%s = %s", a.attr.name, value_of(&a.attr, value));
        printf("    %s  %-26s  %s\n", i ? "          " : "attributes", given, a.text);
    }
}

static void print_line(const fp8c_op_info *o)
{
    printf("  %-18s  %s\n", o->name, o->text);
}

/* ---- the page ---- */

static const char page[] =
    "# Ops\n"
    "\n"
    "`fp8c ops --markdown` prints this page from `ir/ops.def` and `ir/attrs.def`; `fp8c ops NAME`\n"
    "shows one op. A call is `op(operands) {attribute = value, ...}`. Operands in `[]` may be\n"
    "left out. An attribute that is left out has the value shown here.\n"
    "\n"
    "How to read types, as `f32[.., K], f32[K, N], f32[N] -> f32[.., N]`:\n"
    "\n"
    "- `..` is any number of axes, and a capital letter is a size: the same wherever it stands.\n"
    "  So `[.., K]` is a tensor whose last axis has the size K. `[]` is a scalar.\n"
    "- A small letter before the brackets is a dtype; the list after `;` says which. The same\n"
    "  letter is the same dtype.\n"
    "- `f32[T] (f32 m: f32[2, T])`: the type is f32[2, T] if there is an operand whose dtype m is "
    "f32,\n  else f32[T].\n"
    "- A word is the value of that attribute: `to[..]`, `f32[shape]`, `heads*D`. Sizes are those\n"
    "  under the default attributes.\n"
    "\n"
    "The gradient of an op is zero everywhere where it says so. Integers and bools have none.\n";

static void markdown_op(const fp8c_op_info *o)
{
    char call[CALL], value[VALUE];
    printf("\n### `%s`\n\n%s.\n\n", call_of(o, call), o->text);
    if (*o->types)
        printf("    %s\n\n", o->types);
    printf("Gradient: %s.\n", gradient_of(o));
    fp8c_op_attr a = {.struct_size = sizeof a};
    for (int i = 0; fp8c_op_attribute(o->name, i, &a) == FP8C_OK; i++)
        printf("%s- `%s = %s`: %s\n", i ? "" : "\n", a.attr.name, value_of(&a.attr, value), a.text);
}

/* ---- the command ---- */

static void show(const cli *c, cli_json *json, const fp8c_op_info *o)
{
    if (c->json)
        cli_json_record(json, f8_record_op(json_object(), o));
    if (c->markdown)
        markdown_op(o);
    else if (c->file && !cli_json_to_stdout(c))
        print_op(o);
    else if (!cli_json_to_stdout(c))
        print_line(o);
}

static void show_all(const cli *c, cli_json *json)
{
    const char *name, *group = "";
    if (c->markdown)
        fputs(page, stdout);
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
        for (int i = 0; (name = fp8c_name(FP8C_NAME_OP, i)); i++) {
            fp8c_op_info o = {.struct_size = sizeof o};
            if (fp8c_op(name, &o) != FP8C_OK || strcmp(o.group, groups[g].name))
                continue;
            if (group != groups[g].name && c->markdown)
                printf("\n## %s: %s\n", groups[g].title, groups[g].text);
            else if (group != groups[g].name && !cli_json_to_stdout(c))
                printf("%s%s: %s\n", *group ? "\n" : "", groups[g].title, groups[g].text);
            group = groups[g].name;
            show(c, json, &o);
        }
    if (!c->markdown && !cli_json_to_stdout(c))
        puts("\n`fp8c ops OP` shows operands, types, attributes with their defaults, and "
             "gradient.");
}

int cmd_ops(const cli *c)
{
    fp8c_op_info one = {.struct_size = sizeof one};
    cli_json json;
    if (c->markdown && cli_json_to_stdout(c))
        return cli_usage(c, "--markdown and --json - both write to stdout");
    if (c->file && fp8c_op(c->file, &one) != FP8C_OK)
        return cli_usage(c, "no such op '%s': `fp8c ops` lists all", c->file);
    if (!cli_json_open(&json, c->json))
        return CLI_FAILED;
    if (c->file)
        show(c, &json, &one);
    else
        show_all(c, &json);
    return cli_json_close(&json) ? CLI_DONE : CLI_FAILED;
}
