/* Lines about the steps of a plan: what they exchange with other ranks and what goes on meanwhile.
 */
#include <inttypes.h>
#include <string.h>

#include "frontend/cli/cli.h"

/* "2 kernels, 1 GEMM: first to last", of the steps beside a collective. */
static void describe(const json_t *beside, char *text, size_t size)
{
    static const struct {
        const char *kind, *one, *several;
    } kinds[] = {{"kernel", "kernel", "kernels"},
                 {"gemm", "GEMM", "GEMMs"},
                 {"attention", "attention", "attentions"},
                 {"copy", "copy", "copies"}};
    const size_t all = json_array_size(beside);
    size_t used = 0;
    for (int k = 0; k < 4; k++) {
        size_t i, n = 0;
        json_t *step;
        json_array_foreach (beside, i, step)
            n += !strcmp(json_string_value(json_object_get(step, "kind")), kinds[k].kind);
        if (n)
            used += (size_t)snprintf(text + used, size - used, "%s%zu %s", used ? ", " : "", n,
                                     n == 1 ? kinds[k].one : kinds[k].several);
    }
    const char *first = json_string_value(json_object_get(json_array_get(beside, 0), "name")),
               *last = json_string_value(json_object_get(json_array_get(beside, all - 1), "name"));
    if (!all)
        snprintf(text, size, "nothing");
    else
        snprintf(text + used, size - used, ": %s%s%s", first, all > 1 ? " to " : "",
                 all > 1 ? last : "");
}

bool cli_moves(const fp8c_step *s)
{
    return s->collective.op && s->collective.bytes > 0;
}

static void print_one(const fp8c_program *p, int function, int index, const fp8c_step *s, int width,
                      FILE *to, cli_json *json)
{
    const fp8c_collective *c = &s->collective;
    char text[400];
    json_t *record = f8_record_collective(p, function, index, s);
    describe(json_object_get(record, "beside"), text, sizeof text);
    cli_say(to, "%-14s  %-6s  %5d  %9.1f  %-*s  %s\n", c->op,
            fp8c_name(FP8C_NAME_DTYPE, (int)c->dtype), (int)c->ranks,
            (double)(c->bytes * (c->ranks - 1)) / 1024, width, s->name, text);
    cli_json_record(json, record);
}

/* Prints the collectives of a function, and what they move, if any does. */
static void print_function(const fp8c_program *p, int function, FILE *to, cli_json *json)
{
    fp8c_step s;
    int64_t n = 0, sent = 0;
    int ranks = 0, width = (int)strlen("name");
    bool of_library = false; /* another than fp8c adds */
    for (int i = 0; fp8c_program_step(p, function, i, &s) == FP8C_OK; i++) {
        if (!cli_moves(&s))
            continue;
        n++;
        sent += s.collective.bytes * (s.collective.ranks - 1);
        ranks = (int)s.collective.ranks;
        width = (int)strlen(s.name) > width ? (int)strlen(s.name) : width;
        of_library |=
            !strcmp(s.collective.op, "all_reduce") || !strcmp(s.collective.op, "reduce_scatter");
    }
    if (!n)
        return;
    cli_say(to,
            "\n%s: each of %d ranks sends %.1f KiB to the others, and receives as much, in "
            "%" PRId64 " collective%s\n%-14s  %-6s  %5s  %9s  %-*s  %s\n",
            fp8c_program_function_name(p, function), ranks, (double)sent / 1024, n,
            n == 1 ? "" : "s", "op", "dtype", "ranks", "sent KiB", width, "name", "goes on beside");
    for (int i = 0; fp8c_program_step(p, function, i, &s) == FP8C_OK; i++)
        if (cli_moves(&s))
            print_one(p, function, i, &s, width, to, json);
    if (of_library)
        cli_say(to, "sums of all_reduce and reduce_scatter are the library's: their order, and so "
                    "the bits, may differ from run to run\n");
}

void cli_print_collectives(const fp8c_program *p, FILE *to, cli_json *json)
{
    for (int f = 0; fp8c_program_function_name(p, f); f++)
        print_function(p, f, to, json);
}
