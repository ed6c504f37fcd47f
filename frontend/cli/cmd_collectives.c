/* What a program exchanges with other ranks, and what it computes meanwhile: see cmd.h. */
#include <inttypes.h>
#include <string.h>

#include "frontend/cli/cmd.h"

enum { KINDS = 4 };
static const struct {
    const char *kind, *one, *several;
} kinds[KINDS] = {{"kernel", "kernel", "kernels"},
                  {"gemm", "GEMM", "GEMMs"},
                  {"attention", "attention", "attentions"},
                  {"copy", "copy", "copies"}};

/* Steps between the start of a collective and the wait for it. */
typedef struct beside {
    int n[KINDS];
    const char *first, *last; /* their names */
    json_t *all;
} beside;

static void count_step(beside *b, const fp8c_step *s)
{
    for (int i = 0; i < KINDS; i++) {
        if (strcmp(s->kind, kinds[i].kind))
            continue;
        b->n[i]++;
        b->first = b->first ? b->first : s->name;
        b->last = s->name;
        json_array_append_new(b->all, json_pack("{ss ss}", "kind", s->kind, "name", s->name));
    }
}

/* The caller owns `all`. */
static beside steps_beside(const fp8c_program *p, int function, int index, int wait)
{
    beside b = {.all = json_array()};
    fp8c_step s;
    for (int i = index + 1; i < wait; i++)
        if (fp8c_program_step(p, function, i, &s) == FP8C_OK)
            count_step(&b, &s);
    return b;
}

static void describe(const beside *b, char *text, size_t size)
{
    int used = 0;
    for (int i = 0; i < KINDS; i++)
        if (b->n[i])
            used += snprintf(text + used, size - (size_t)used, "%s%d %s", used ? ", " : "", b->n[i],
                             b->n[i] == 1 ? kinds[i].one : kinds[i].several);
    if (!used)
        snprintf(text, size, "nothing");
    else if (b->first == b->last)
        snprintf(text + used, size - (size_t)used, ": %s", b->first);
    else
        snprintf(text + used, size - (size_t)used, ": %s to %s", b->first, b->last);
}

/* Whether the step is a collective that moves bytes. */
static bool moves(const fp8c_step *s)
{
    return s->collective.op && s->collective.bytes > 0;
}

static void print_one(const fp8c_program *p, int function, int index, const fp8c_step *s, int width,
                      FILE *to, cli_json *json)
{
    const fp8c_collective *c = &s->collective;
    const beside b = steps_beside(p, function, index, c->wait);
    const int64_t sent = c->bytes * (c->ranks - 1);
    char text[400];
    describe(&b, text, sizeof text);
    if (to)
        fprintf(to, "%-14s  %-6s  %5d  %9.1f  %-*s  %s\n", c->op,
                fp8c_name(FP8C_NAME_DTYPE, c->dtype), (int)c->ranks, (double)sent / 1024, width,
                s->name, text);
    cli_json_record(json,
                    json_pack("{ss ss sI ss ss ss si sI sI so so}", "event", "collective",
                              "function", fp8c_program_function_name(p, function), "step",
                              (json_int_t)index, "op", c->op, "name", s->name, "dtype",
                              fp8c_name(FP8C_NAME_DTYPE, c->dtype), "ranks", (int)c->ranks, "bytes",
                              (json_int_t)c->bytes, "bytes_sent", (json_int_t)sent, "wait",
                              c->wait ? json_integer(c->wait) : json_null(), "beside", b.all));
}

/* Whether another than fp8c adds. */
static bool adds(const fp8c_collective *c)
{
    return !strcmp(c->op, "all_reduce") || !strcmp(c->op, "reduce_scatter");
}

/* How many collectives of a function move bytes. *sent: by a rank; *width: of the longest name. */
static int64_t survey(const fp8c_program *p, int function, int64_t *sent, int *ranks, int *width)
{
    fp8c_step s;
    int64_t n = 0;
    *sent = 0;
    *width = (int)strlen("name");
    for (int i = 0; fp8c_program_step(p, function, i, &s) == FP8C_OK; i++) {
        if (!moves(&s))
            continue;
        n++;
        *sent += s.collective.bytes * (s.collective.ranks - 1);
        *ranks = (int)s.collective.ranks;
        *width = (int)strlen(s.name) > *width ? (int)strlen(s.name) : *width;
    }
    return n;
}

void cli_print_collectives(const fp8c_program *p, FILE *to, cli_json *json)
{
    const char *function;
    fp8c_step s;
    for (int f = 0; (function = fp8c_program_function_name(p, f)); f++) {
        int64_t sent;
        int ranks = 0, width;
        const int64_t n = survey(p, f, &sent, &ranks, &width);
        if (n && to) {
            fprintf(to,
                    "\n%s: each of %d ranks sends %.1f KiB to the others, and receives as much, in "
                    "%" PRId64 " collective%s\n",
                    function, ranks, (double)sent / 1024, n, n == 1 ? "" : "s");
            fprintf(to, "%-14s  %-6s  %5s  %9s  %-*s  %s\n", "op", "dtype", "ranks", "sent KiB",
                    width, "name", "goes on beside");
        }
        bool of_library = false;
        for (int i = 0; n && fp8c_program_step(p, f, i, &s) == FP8C_OK; i++)
            if (moves(&s)) {
                print_one(p, f, i, &s, width, to, json);
                of_library |= adds(&s.collective);
            }
        if (of_library && to)
            fprintf(to, "sums of all_reduce and reduce_scatter are the library's: their order, and "
                        "so the bits, may differ from run to run\n");
    }
}
