/* A target against the interpreter, one graph: see differential.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/build.h"
#include "frontend/instance.h"
#include "tests/shared/kernel_cache.h"
#include "tests/shared/passes/passes.h"
#include "tests/shared/passes/primitive.h"
#include "tests/shared/graphs/differential_parts.h"

enum { RUNS = 2, MESSAGE = F8_MESSAGE, VARIANTS = 3 };

/* ---- cuts ---- */

static bool is_product(const f8_graph *g, f8_ref r)
{
    return f8_op_facts(f8_at(g, r)->op)->cls == F8_GEMM;
}

/* cast(product, bf16), the product's only use: `uses` by ref. */
static bool is_rounded_product(const f8_graph *g, f8_ref r, const uint32_t *uses)
{
    const f8_node *n = f8_at(g, r);
    return n->op == F8_OP_CAST && n->type.dtype == F8_BF16 && is_product(g, n->in[0]) &&
           f8_type_of(g, n->in[0])->dtype == F8_F32 && uses[n->in[0]] == 1;
}

/* How often each node is used, by live nodes and as a result. The caller frees. */
static uint32_t *count_uses(const f8_func *f)
{
    const f8_ref n = f->graph->n_nodes;
    uint32_t *uses = calloc(n, sizeof *uses);
    for (size_t i = 0; i < f->n_out; i++)
        uses[f->out[i].ref]++;
    for (f8_ref r = n; r-- > 1;)
        for (uint32_t i = 0; uses[r] && i < f8_at(f->graph, r)->n_in; i++)
            uses[f8_at(f->graph, r)->in[i]]++;
    return uses;
}

/* By ref: this node's results come from the target. The caller frees. */
static uint8_t *find_cuts(const f8_func *f)
{
    const f8_graph *g = f->graph;
    uint32_t *uses = count_uses(f);
    uint8_t *cut = calloc(g->n_nodes, 1);
    for (f8_ref r = 1; r < g->n_nodes; r++) {
        const f8_class cls = f8_op_facts(f8_at(g, r)->op)->cls;
        if (!uses[r])
            continue;
        cut[r] |= cls == F8_GEMM || cls == F8_ATTENTION;
        if (is_rounded_product(g, r, uses)) {
            cut[r] = 1;
            cut[f8_at(g, r)->in[0]] = 0;
        }
    }
    free(uses);
    return cut;
}

/* Every result of a cut node becomes a result of the function, unless it already is. */
static f8_status expose_cuts(f8_func *f)
{
    uint8_t *cut = find_cuts(f);
    const f8_ref n = f->graph->n_nodes;
    for (f8_ref r = 1; r < n; r++) {
        const int results = cut[r] ? f8_op_facts(f8_at(f->graph, r)->op)->results : 0;
        for (int k = 0; k < results; k++) {
            const f8_ref result = f8_project(f->graph, r, k);
            bool already = false;
            char name[32];
            for (size_t i = 0; i < f->n_out; i++)
                already |= f->out[i].ref == result;
            snprintf(name, sizeof name, "cut.%u.%d", r, k);
            if (!already)
                f8_func_result(f, name, result, -1);
        }
    }
    free(cut);
    return f->graph->diag->status;
}

static f8_module *make_module(const graphgen_options *o, f8_arena *arena, f8_diag *diag)
{
    f8_module *m = graphgen_make(o, arena, diag);
    return m && expose_cuts(&m->func[0]) == F8_OK ? m : NULL;
}

/* ---- one graph, compiled ---- */

typedef struct compiled {
    f8_arena arena;
    f8_diag diag;
    f8_unit unit;
    f8_plan plan;
    f8_instance instance;
    void **var; /* the variables, as read last */
} compiled;

static void compiled_end(compiled *t)
{
    f8_instance_destroy(&t->instance);
    if (t->arena.allocator.alloc)
        f8_arena_end(&t->arena);
}

static f8_status run_passes(f8_unit *u, const char **at)
{
    static const struct {
        const char *name;
        f8_status (*run)(f8_unit *u);
    } passes[] = {{"ids", f8_pass_ids},
                  {"decompose", f8_pass_decompose},
                  {"canonicalize", f8_pass_canonicalize},
                  {"legalize", f8_pass_legalize},
                  {"group", f8_pass_group},
                  {"schedule", f8_pass_schedule},
                  {"memory", f8_pass_memory}};
    for (size_t i = 0; i < sizeof passes / sizeof passes[0]; i++) {
        *at = passes[i].name;
        F8_TRY(passes[i].run(u));
        F8_TRY(f8_verify(u->module, u->diag));
    }
    return F8_OK;
}

static f8_status create_instance(const f8_judge *j, compiled *t, int threads)
{
    if (j->target->kind == F8_TARGET_CPU)
        return f8_instance_create_cpu(&t->instance, &t->plan,
                                      &(f8_exec_options){.n_threads = threads}, &t->diag);
    return f8_instance_create_cuda(&t->instance, &t->plan, j->cuda, &(f8_cuda_exec_options){0},
                                   &t->diag);
}

static bool compile(const f8_judge *j, compiled *t, const graphgen_options *o, bool no_fuse,
                    int threads, char *message)
{
    *t = (compiled){0};
    f8_arena_init(&t->arena, NULL);
    t->unit = (f8_unit){.arena = &t->arena, .diag = &t->diag};
    t->unit.options =
        (f8_options){.target = j->target, .recipe = f8_recipe_by_name("bf16"), .no_fuse = no_fuse};
    t->unit.module = make_module(o, &t->arena, &t->diag);
    /* A compiler of CUDA C takes longer to begin than to compile a graph's kernel. Plans of several
     * images are the share of one graph in five. */
    const f8_build_options build = {.target = j->target,
                                    .cuda = j->cuda,
                                    .cache = f8_test_kernel_cache(),
                                    .threads = 1,
                                    .batch = o->seed % 5 ? UINT32_MAX : 0};
    const char *at = "generator";
    if (t->unit.module && run_passes(&t->unit, &at) == F8_OK) {
        at = "build";
        if (f8_build_plan(t->unit.module, &build, &t->arena, &t->plan, &t->diag) == F8_OK) {
            at = "exec";
            t->var = F8_NEW_ARRAY(&t->arena, void *, t->plan.n_vars + 1);
            for (uint32_t v = 0; v < t->plan.n_vars; v++)
                t->var[v] =
                    f8_arena_array(&t->arena, 1, (size_t)f8_type_bytes(&t->plan.var[v].type));
            if (create_instance(j, t, threads) == F8_OK)
                return true;
        }
    }
    snprintf(message, MESSAGE, "%s, %s: %s", no_fuse ? "not fused" : "fused", at, t->diag.text);
    return false;
}

static void *port(const compiled *t, bool output, size_t index)
{
    f8_instance *i = (f8_instance *)&t->instance;
    return i->kind->port(i, 0, output, (uint32_t)index);
}

static bool refused(compiled *t, const char *what, char *message)
{
    snprintf(message, MESSAGE, "%s: %s", what, t->diag.text);
    return false;
}

static bool read_variables(compiled *t, char *message)
{
    for (uint32_t v = 0; v < t->plan.n_vars; v++)
        if (t->instance.kind->read(&t->instance, v, t->var[v], &t->diag) != F8_OK)
            return refused(t, "read", message);
    return true;
}

static bool run(compiled *t, char *message)
{
    if (t->instance.kind->run(&t->instance, 0, &t->diag) != F8_OK)
        return refused(t, "run", message);
    return read_variables(t, message);
}

static bool fill(compiled *t, const f8_module *m, uint64_t seed, char *message)
{
    const f8_func *f = &m->func[0];
    for (size_t i = 0; i < f->n_in; i++)
        if (f->in[i].var < 0)
            graphgen_fill(seed, f->in[i].name, &f->in[i].type, port(t, false, i));
    for (uint32_t v = 0; v < m->n_vars; v++) {
        graphgen_fill(seed, m->var[v].name, &m->var[v].type, t->var[v]);
        if (t->instance.kind->write(&t->instance, v, t->var[v], &t->diag) != F8_OK)
            return refused(t, "write", message);
    }
    return true;
}

/* ---- the reference's version: cuts are inputs, their operands results ---- */

typedef struct cutter {
    f8_func *f;
    const uint8_t *cut; /* by ref of the old graph */
} cutter;

static f8_ref cut_node(void *user, f8_graph *to, const f8_graph *from, f8_ref old, const f8_ref *in)
{
    const cutter *c = user;
    const f8_node *n = f8_at(from, old);
    f8_ref of = old;
    char name[48];
    int64_t index = 0;
    if (n->op == F8_OP_PROJECT && c->cut[n->in[0]]) {
        of = n->in[0];
        index = f8_attr_i(from, old, F8_A_INDEX);
    } else if (!c->cut[old]) {
        return 0;
    }
    if (of == old) {
        const bool rounded = n->op == F8_OP_CAST; /* the product under it is in the new graph */
        const f8_node *source = rounded ? f8_at(to, in[0]) : n;
        const uint32_t n_in = source->n_in;
        for (uint32_t i = 0; i < n_in; i++) {
            snprintf(name, sizeof name, "arg.%u.%u", old, i);
            f8_func_result(c->f, name, rounded ? f8_at(to, in[0])->in[i] : in[i], -1);
        }
    }
    snprintf(name, sizeof name, "cut.%u.%d", of, (int)index);
    return f8_func_input(c->f, name, &n->type, -1);
}

typedef struct oracle {
    f8_arena arena;
    f8_diag diag;
    f8_module *whole, *cut; /* as the target has it before the passes; with cuts */
    void **in, **out;       /* of cut's function */
} oracle;

static bool oracle_make(oracle *o, const graphgen_options *options, char *message)
{
    *o = (oracle){0};
    f8_arena_init(&o->arena, NULL);
    o->whole = make_module(options, &o->arena, &o->diag);
    o->cut = make_module(options, &o->arena, &o->diag);
    if (o->whole && o->cut) {
        f8_func *f = &o->cut->func[0];
        uint8_t *cut = find_cuts(f);
        cutter c = {f, cut};
        const bool ok =
            f8_func_rewrite(f, cut_node, &c) == F8_OK && f8_verify(o->cut, &o->diag) == F8_OK;
        free(cut);
        if (ok) {
            o->in = F8_NEW_ARRAY(&o->arena, void *, f->n_in);
            o->out = F8_NEW_ARRAY(&o->arena, void *, f->n_out);
            for (size_t i = 0; i < f->n_in; i++)
                o->in[i] = f8_arena_array(&o->arena, 1, (size_t)f8_type_bytes(&f->in[i].type));
            for (size_t i = 0; i < f->n_out; i++)
                o->out[i] = f8_arena_array(&o->arena, 1, (size_t)f8_type_bytes(&f->out[i].type));
            return true;
        }
    }
    snprintf(message, MESSAGE, "cutting: %s", o->diag.text);
    return false;
}

static const void *target_result(const compiled *t, const f8_func *f, size_t i)
{
    return f->out[i].var >= 0 ? t->var[f->out[i].var] : port(t, true, i);
}

/* The target's buffer of result `index` of node `r`. */
static const void *cut_result(const oracle *o, const compiled *t, f8_ref r, int index)
{
    const f8_func *f = &o->whole->func[0];
    const f8_ref result = f8_project(f->graph, r, index);
    for (size_t i = 0; i < f->n_out; i++)
        if (f->out[i].ref == result)
            return target_result(t, f, i);
    return NULL;
}

static bool check_cuts(const f8_judge *j, const oracle *o, const compiled *t, char *message)
{
    const f8_func *f = &o->cut->func[0];
    const f8_graph *g = o->whole->func[0].graph;
    for (size_t i = 0; i < f->n_out; i++) {
        unsigned r;
        if (sscanf(f->out[i].name, "arg.%u.0", &r) != 1 ||
            strcmp(strrchr(f->out[i].name, '.'), ".0"))
            continue; /* operand 0 of a node: the others follow */
        const void *result[3];
        for (int k = 0; k < f8_op_facts(f8_at(g, r)->op)->results; k++)
            result[k] = cut_result(o, t, r, k);
        const f8_node_check check = {.g = g,
                                     .r = r,
                                     .operand = (const void *const *)&o->out[i],
                                     .result = result,
                                     .sums = j->d->sums,
                                     .message = message};
        if (!f8_check_node(&check))
            return false;
    }
    return true;
}

/* Run the interpreter from the values that the target started from (o->in holds inputs and states)
 * and the cuts it computed; compare everything. */
static bool check_against_oracle(const f8_judge *j, oracle *o, const compiled *t, char *message)
{
    const f8_func *f = &o->cut->func[0];
    for (size_t i = 0; i < f->n_in; i++) {
        unsigned r;
        int index;
        if (sscanf(f->in[i].name, "cut.%u.%d", &r, &index) == 2)
            memcpy(o->in[i], cut_result(o, t, r, index), (size_t)f8_type_bytes(&f->in[i].type));
    }
    if (test_reference_run(f, (const void *const *)o->in, o->out, &o->diag) != F8_OK) {
        snprintf(message, MESSAGE, "reference: %s", o->diag.text);
        return false;
    }
    for (size_t i = 0; i < o->whole->func[0].n_out; i++)
        if (!f8_same_bits("against the reference", f->out[i].name, &f->out[i].type,
                          target_result(t, &o->whole->func[0], i), o->out[i], message))
            return false;
    return check_cuts(j, o, t, message);
}

/* ---- one graph ---- */

static void snapshot(oracle *o, const compiled *t)
{
    const f8_func *f = &o->cut->func[0];
    for (size_t i = 0; i < o->whole->func[0].n_in; i++)
        memcpy(o->in[i], f->in[i].var >= 0 ? t->var[f->in[i].var] : port(t, false, i),
               (size_t)f8_type_bytes(&f->in[i].type));
}

static bool same_results(const char *what, const oracle *o, const compiled *a, const compiled *b,
                         char *message)
{
    const f8_func *f = &o->whole->func[0];
    for (size_t i = 0; i < f->n_out; i++)
        if (!f8_same_bits(what, f->out[i].name, &f->out[i].type, target_result(a, f, i),
                          target_result(b, f, i), message))
            return false;
    for (uint32_t v = 0; v < o->whole->n_vars; v++)
        if (!f8_same_bits(what, o->whole->var[v].name, &o->whole->var[v].type, a->var[v], b->var[v],
                          message))
            return false;
    return true;
}

static bool check_runs(const f8_judge *j, oracle *o, compiled *fused, compiled *other,
                       uint64_t seed, char *message)
{
    if (!fill(fused, o->whole, seed, message) || !fill(other, o->whole, seed, message))
        return false;
    for (int i = 0; i < RUNS; i++) {
        snapshot(o, fused);
        if (!run(fused, message) || !run(other, message) ||
            !check_against_oracle(j, o, fused, message) ||
            !same_results("not fused", o, other, fused, message))
            return false;
    }
    return true;
}

/* The same plan on 1, 2 and 3 threads; in the emulator, with blocks and warps in other orders and
 * with another number of multiprocessors. On a real device each run's order is its own already. */
static const char *set_variant(const f8_judge *j, int variant, char *text, size_t room)
{
    if (j->target->kind == F8_TARGET_CPU)
        return "on other threads";
    snprintf(text, room, "%d", variant);
    if (j->d->emulated) {
        setenv("FP8C_EMULATOR_SEED", text, 1);
        setenv("FP8C_EMULATOR_MULTIPROCESSORS", variant == 1 ? "1" : variant == 2 ? "3" : "64", 1);
    }
    return "in another order";
}

static bool check_variants(const f8_judge *j, const oracle *o, compiled *fused, uint64_t seed,
                           char *message)
{
    bool ok = true;
    for (int variant = 1; variant <= VARIANTS && ok; variant++) {
        char text[16];
        compiled t = *fused;
        t.instance = (f8_instance){0};
        const char *what = set_variant(j, variant, text, sizeof text);
        t.var = F8_NEW_ARRAY(&fused->arena, void *, t.plan.n_vars + 1);
        for (uint32_t v = 0; v < t.plan.n_vars; v++)
            t.var[v] = f8_arena_array(&fused->arena, 1, (size_t)f8_type_bytes(&t.plan.var[v].type));
        ok = create_instance(j, &t, variant) == F8_OK ? fill(&t, o->whole, seed, message)
                                                      : refused(&t, "exec", message);
        for (int i = 0; i < RUNS && ok; i++)
            ok = run(&t, message);
        ok = ok && same_results(what, o, &t, fused, message);
        f8_instance_destroy(&t.instance);
    }
    unsetenv("FP8C_EMULATOR_SEED");
    unsetenv("FP8C_EMULATOR_MULTIPROCESSORS");
    return ok;
}

bool f8_judge_graph(const f8_judge *j, const graphgen_options *options, char *message)
{
    oracle o;
    compiled fused = {0}, single = {0};
    const uint64_t seed = options->seed;
    const bool ok = oracle_make(&o, options, message) &&
                    compile(j, &fused, options, false, 1 + (int)(seed % 2), message) &&
                    compile(j, &single, options, true, 1, message) &&
                    check_runs(j, &o, &fused, &single, seed, message) &&
                    (seed % 8 != 0 || check_variants(j, &o, &fused, seed, message));
    compiled_end(&fused);
    compiled_end(&single);
    f8_arena_end(&o.arena);
    return ok;
}
