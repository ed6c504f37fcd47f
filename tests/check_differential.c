/* The CPU target against the reference interpreter, on random graphs (tests/shared/graphgen.h).
 *
 * Each graph is compiled twice, fused and not, and both must agree with each other bit for bit, and
 * with the interpreter bit for bit (NaNs by class) but for products and attention. Those are cut:
 * the target's own results of them are fed to the interpreter, so everything after them is still
 * compared exactly, and each of them is evaluated alone on the operands the target saw and compared
 * within a derived bound (tests/shared/compare.c). States are carried over two runs; a share of the
 * graphs runs on 1, 2 and 3 threads.
 *
 *   FP8C_SEED=S     begin with that seed
 *   FP8C_GRAPHS=N   how many graphs: 1000, or 1 with a seed
 *
 * A failure is shrunk (fewer steps, then fewer results) and printed as text with its seed. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "codegen/build.h"
#include "codegen/reference.h"
#include "passes/pass.h"
#include "runtime/exec.h"
#include "tests/shared/compare.h"
#include "tests/shared/graphgen.h"

enum { RUNS = 2, MESSAGE = F8_MESSAGE };

/* ---- one graph, compiled ---- */

typedef struct target {
    f8_arena arena;
    f8_diag diag;
    f8_unit unit;
    f8_plan plan;
    f8_exec *exec;
} target;

static bool is_cut(f8_op op)
{
    const f8_class cls = f8_op_facts(op)->cls;
    return cls == F8_GEMM || cls == F8_ATTENTION;
}

/* Every result of a product or attention becomes a result of the function, unless it already is. */
static f8_status expose_cuts(f8_func *f)
{
    const f8_ref n = f->graph->n_nodes;
    uint8_t *live = calloc(n, 1);
    for (size_t i = 0; i < f->n_out; i++)
        live[f->out[i].ref] = 1;
    for (f8_ref r = n; r-- > 1;)
        for (uint32_t i = 0; live[r] && i < f8_at(f->graph, r)->n_in; i++)
            live[f8_at(f->graph, r)->in[i]] = 1;
    for (f8_ref r = 1; r < n; r++) {
        const int results = live[r] && is_cut(f8_at(f->graph, r)->op)
                                ? f8_op_facts(f8_at(f->graph, r)->op)->results
                                : 0;
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
    free(live);
    return f->graph->diag->status;
}

static f8_module *make_module(const graphgen_options *o, f8_arena *arena, f8_diag *diag)
{
    f8_module *m = graphgen_make(o, arena, diag);
    return m && expose_cuts(&m->func[0]) == F8_OK ? m : NULL;
}

static void target_end(target *t)
{
    f8_exec_destroy(t->exec);
    f8_arena_end(&t->arena);
}

static f8_status run_passes(f8_unit *u, const char **at)
{
    static const struct {
        const char *name;
        f8_status (*run)(f8_unit *u);
    } passes[] = {{"decompose", f8_pass_decompose}, {"canonicalize", f8_pass_canonicalize},
                  {"legalize", f8_pass_legalize},   {"group", f8_pass_group},
                  {"schedule", f8_pass_schedule},   {"memory", f8_pass_memory}};
    for (size_t i = 0; i < sizeof passes / sizeof passes[0]; i++) {
        *at = passes[i].name;
        F8_TRY(passes[i].run(u));
        F8_TRY(f8_verify(u->module, u->diag));
    }
    return F8_OK;
}

static bool compile(target *t, const graphgen_options *o, bool no_fuse, int threads, char *message)
{
    *t = (target){0};
    f8_arena_init(&t->arena, NULL);
    t->unit = (f8_unit){.arena = &t->arena, .diag = &t->diag};
    t->unit.options = (f8_options){.recipe = f8_recipe_by_name("bf16"), .no_fuse = no_fuse};
    t->unit.module = make_module(o, &t->arena, &t->diag);
    const char *at = "generator";
    if (t->unit.module && run_passes(&t->unit, &at) == F8_OK) {
        at = "build";
        if (f8_build_plan(t->unit.module, &(f8_build_options){.threads = 1}, &t->arena, &t->plan,
                          &t->diag) == F8_OK) {
            at = "exec";
            if (f8_exec_create(&t->plan, &(f8_exec_options){.n_threads = threads}, &t->exec,
                               &t->diag) == F8_OK)
                return true;
        }
    }
    snprintf(message, MESSAGE, "%s, %s: %s", no_fuse ? "not fused" : "fused", at, t->diag.text);
    return false;
}

/* ---- the reference's version: products and attention are inputs, their operands results ---- */

static f8_ref cut_node(void *user, f8_graph *to, const f8_graph *from, f8_ref old, const f8_ref *in)
{
    f8_func *f = user;
    const f8_node *n = f8_at(from, old);
    f8_ref of = old;
    char name[48];
    int64_t index = 0;
    if (n->op == F8_OP_PROJECT) {
        of = n->in[0];
        index = f8_attr_i(from, old, F8_A_INDEX);
    } else if (!is_cut(n->op)) {
        return 0;
    }
    if (of == old)
        for (uint32_t i = 0; i < n->n_in; i++) {
            snprintf(name, sizeof name, "arg.%u.%u", old, i);
            f8_func_result(f, name, in[i], -1);
        }
    (void)to;
    snprintf(name, sizeof name, "cut.%u.%d", of, (int)index);
    return f8_func_input(f, name, &n->type, -1);
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
    if (!o->whole || !o->cut ||
        f8_func_rewrite(&o->cut->func[0], cut_node, &o->cut->func[0]) != F8_OK ||
        f8_verify(o->cut, &o->diag) != F8_OK) {
        snprintf(message, MESSAGE, "cutting: %s", o->diag.text);
        return false;
    }
    const f8_func *f = &o->cut->func[0];
    o->in = F8_NEW_ARRAY(&o->arena, void *, f->n_in);
    o->out = F8_NEW_ARRAY(&o->arena, void *, f->n_out);
    for (size_t i = 0; i < f->n_in; i++)
        o->in[i] = f8_arena_array(&o->arena, 1, (size_t)f8_type_bytes(&f->in[i].type));
    for (size_t i = 0; i < f->n_out; i++)
        o->out[i] = f8_arena_array(&o->arena, 1, (size_t)f8_type_bytes(&f->out[i].type));
    return true;
}

static void *target_result(const target *t, const f8_func *f, size_t i)
{
    return f->out[i].var >= 0 ? f8_exec_var(t->exec, (uint32_t)f->out[i].var)
                              : f8_exec_port(t->exec, 0, true, (uint32_t)i);
}

/* The target's buffer of result `index` of node `r`. */
static const void *cut_result(const oracle *o, const target *t, f8_ref r, int index)
{
    const f8_func *f = &o->whole->func[0];
    const f8_ref result = f8_project(f->graph, r, index);
    for (size_t i = 0; i < f->n_out; i++)
        if (f->out[i].ref == result)
            return target_result(t, f, i);
    return NULL;
}

static bool check_cuts(const oracle *o, const target *t, char *message)
{
    const f8_func *f = &o->cut->func[0];
    const f8_graph *g = o->whole->func[0].graph;
    for (size_t i = 0; i < f->n_out; i++) {
        unsigned r;
        if (sscanf(f->out[i].name, "arg.%u.0", &r) != 1 ||
            strcmp(strrchr(f->out[i].name, '.'), ".0"))
            continue; /* operand 0 of a node: the others follow */
        const f8_node *n = f8_at(g, r);
        const void *result[3];
        for (int k = 0; k < f8_op_facts(n->op)->results; k++)
            result[k] = cut_result(o, t, r, k);
        if (!f8_check_node(
                &(f8_node_check){g, r, (const void *const *)&o->out[i], result, message}))
            return false;
    }
    return true;
}

/* Run the interpreter from the values that the target started from (o->in holds inputs and states)
 * and the cuts it computed; compare everything. */
static bool check_against_oracle(oracle *o, const target *t, char *message)
{
    const f8_func *f = &o->cut->func[0];
    for (size_t i = 0; i < f->n_in; i++) {
        unsigned r;
        int index;
        if (sscanf(f->in[i].name, "cut.%u.%d", &r, &index) == 2)
            memcpy(o->in[i], cut_result(o, t, r, index), (size_t)f8_type_bytes(&f->in[i].type));
    }
    if (f8_reference_run(f, (const void *const *)o->in, o->out, NULL, &o->diag) != F8_OK) {
        snprintf(message, MESSAGE, "reference: %s", o->diag.text);
        return false;
    }
    for (size_t i = 0; i < o->whole->func[0].n_out; i++)
        if (!f8_same_bits("against the reference", f->out[i].name, &f->out[i].type,
                          target_result(t, &o->whole->func[0], i), o->out[i], message))
            return false;
    return check_cuts(o, t, message);
}

/* ---- one graph ---- */

static void fill(const target *t, const f8_module *m, uint64_t seed)
{
    const f8_func *f = &m->func[0];
    for (size_t i = 0; i < f->n_in; i++)
        if (f->in[i].var < 0)
            graphgen_fill(seed, f->in[i].name, &f->in[i].type,
                          f8_exec_port(t->exec, 0, false, (uint32_t)i));
    for (uint32_t v = 0; v < m->n_vars; v++)
        graphgen_fill(seed, m->var[v].name, &m->var[v].type, f8_exec_var(t->exec, v));
}

static void snapshot(oracle *o, const target *t)
{
    const f8_func *f = &o->cut->func[0];
    for (size_t i = 0; i < o->whole->func[0].n_in; i++)
        memcpy(o->in[i],
               f->in[i].var >= 0 ? f8_exec_var(t->exec, (uint32_t)f->in[i].var)
                                 : f8_exec_port(t->exec, 0, false, (uint32_t)i),
               (size_t)f8_type_bytes(&f->in[i].type));
}

static bool same_results(const char *what, const oracle *o, const target *a, const target *b,
                         char *message)
{
    const f8_func *f = &o->whole->func[0];
    for (size_t i = 0; i < f->n_out; i++)
        if (!f8_same_bits(what, f->out[i].name, &f->out[i].type, target_result(a, f, i),
                          target_result(b, f, i), message))
            return false;
    for (uint32_t v = 0; v < o->whole->n_vars; v++)
        if (!f8_same_bits(what, o->whole->var[v].name, &o->whole->var[v].type,
                          f8_exec_var(a->exec, v), f8_exec_var(b->exec, v), message))
            return false;
    return true;
}

static bool run(target *t, char *message)
{
    if (f8_exec_run(t->exec, 0, &t->diag) == F8_OK)
        return true;
    snprintf(message, MESSAGE, "run: %s", t->diag.text);
    return false;
}

static bool check_runs(oracle *o, target *fused, target *other, const char *what, uint64_t seed,
                       char *message)
{
    fill(fused, o->whole, seed);
    fill(other, o->whole, seed);
    for (int i = 0; i < RUNS; i++) {
        snapshot(o, fused);
        if (!run(fused, message) || !run(other, message) ||
            !check_against_oracle(o, fused, message) ||
            !same_results(what, o, other, fused, message))
            return false;
    }
    return true;
}

static bool check_threads(const oracle *o, target *fused, uint64_t seed, char *message)
{
    for (int threads = 1; threads <= 3; threads++) {
        target t = *fused;
        t.exec = NULL;
        if (f8_exec_create(&t.plan, &(f8_exec_options){.n_threads = threads}, &t.exec, &t.diag) !=
            F8_OK) {
            snprintf(message, MESSAGE, "exec: %s", t.diag.text);
            return false;
        }
        fill(&t, o->whole, seed);
        bool ok = true;
        for (int i = 0; i < RUNS && ok; i++)
            ok = run(&t, message);
        ok = ok && same_results("on other threads", o, &t, fused, message);
        f8_exec_destroy(t.exec);
        if (!ok)
            return false;
    }
    return true;
}

static bool check_graph(const graphgen_options *options, char *message)
{
    oracle o;
    target fused = {0}, single = {0};
    const uint64_t seed = options->seed;
    bool ok = oracle_make(&o, options, message) &&
              compile(&fused, options, false, 1 + (int)(seed % 2), message) &&
              compile(&single, options, true, 1, message) &&
              check_runs(&o, &fused, &single, "not fused", seed, message) &&
              (seed % 8 != 0 || check_threads(&o, &fused, seed, message));
    if (fused.arena.allocator.alloc)
        target_end(&fused);
    if (single.arena.allocator.alloc)
        target_end(&single);
    f8_arena_end(&o.arena);
    return ok;
}

/* ---- shrinking ---- */

/* In a child process, so that a crash is a failure like another. */
static bool survives(const graphgen_options *options, char *message)
{
    char *shared = mmap(NULL, MESSAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    snprintf(shared, MESSAGE, "crashed");
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0)
        _exit(check_graph(options, shared) ? 0 : 1);
    int status = 0;
    waitpid(child, &status, 0);
    memcpy(message, shared, MESSAGE);
    munmap(shared, MESSAGE);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int put(void *user, const char *text, size_t n)
{
    return fwrite(text, 1, n, user) != n;
}

static void shrink(graphgen_options options)
{
    char message[MESSAGE], last[MESSAGE];
    uint8_t drop[GRAPHGEN_MAX_RESULTS] = {0};
    options.drop = drop;
    options.steps = graphgen_steps(options.seed);
    if (survives(&options, last)) {
        printf("seed %llu: failed once, then passed\n", (unsigned long long)options.seed);
        return;
    }
    while (options.steps > 1) {
        options.steps--;
        if (survives(&options, message)) {
            options.steps++;
            break;
        }
        memcpy(last, message, MESSAGE);
    }
    f8_arena arena;
    f8_diag diag = {0};
    f8_arena_init(&arena, NULL);
    f8_module *m = graphgen_make(&options, &arena, &diag);
    for (int i = 0; i < GRAPHGEN_MAX_RESULTS && m; i++) {
        const size_t before = m->func[0].n_out;
        drop[i] = 1;
        m = graphgen_make(&options, &arena, &diag);
        if (!m || m->func[0].n_out == 0 ||
            (m->func[0].n_out < before && survives(&options, message))) {
            drop[i] = 0;
            m = graphgen_make(&options, &arena, &diag);
        } else if (m->func[0].n_out < before) {
            memcpy(last, message, MESSAGE);
        }
    }
    printf("seed %llu, %d steps: %s\n", (unsigned long long)options.seed, options.steps, last);
    if (m && f8_func_rewrite(&m->func[0], NULL, NULL) == F8_OK) /* less what is dead now */
        f8_print_module(m, &(f8_writer){put, stdout});
    f8_arena_end(&arena);
}

/* ---- all graphs ---- */

enum { WORKERS = 2, REPORTED = 3 };

typedef struct progress {
    uint64_t seed[WORKERS]; /* at work on it; 0 = done */
    uint64_t failed[REPORTED];
    int n_failed, n_done;
} progress;

static void work(progress *p, int worker, uint64_t first, uint64_t end)
{
    char message[MESSAGE];
    for (uint64_t seed = first; seed < end; seed += WORKERS) {
        p->seed[worker] = seed;
        if (!check_graph(&(graphgen_options){.seed = seed, .gemms = true}, message)) {
            const int n = __atomic_fetch_add(&p->n_failed, 1, __ATOMIC_SEQ_CST);
            if (n < REPORTED)
                p->failed[n] = seed;
        }
        __atomic_fetch_add(&p->n_done, 1, __ATOMIC_SEQ_CST);
    }
    p->seed[worker] = 0;
}

/* Seeds [first, end), by two processes; one that crashes goes on after the seed that killed it. */
static progress run_all(uint64_t first, uint64_t end)
{
    progress *p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t next[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        next[i] = first + (uint64_t)i;
    bool running = true;
    while (running) {
        pid_t child[WORKERS];
        running = false;
        for (int i = 0; i < WORKERS; i++) {
            child[i] = 0;
            if (next[i] >= end)
                continue;
            fflush(NULL);
            if ((child[i] = fork()) == 0) {
                work(p, i, next[i], end);
                _exit(0);
            }
        }
        for (int i = 0; i < WORKERS; i++) {
            int status = 0;
            if (!child[i])
                continue;
            waitpid(child[i], &status, 0);
            next[i] = end;
            if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
                continue;
            if (p->n_failed < REPORTED)
                p->failed[p->n_failed] = p->seed[i];
            p->n_failed++;
            next[i] = p->seed[i] + WORKERS;
            running = true;
        }
    }
    const progress result = *p;
    munmap(p, sizeof *p);
    return result;
}

START_TEST(targets_agree)
{
    const char *count = getenv("FP8C_GRAPHS"), *seed = getenv("FP8C_SEED");
    const uint64_t first = seed ? strtoull(seed, NULL, 0) : 1;
    const uint64_t n = count ? strtoull(count, NULL, 0) : seed ? 1 : 1000;
    const progress p = run_all(first, first + n);
    for (int i = 0; i < p.n_failed && i < REPORTED; i++)
        shrink((graphgen_options){.seed = p.failed[i], .gemms = true});
    ck_assert_msg(p.n_failed == 0, "%d of %llu graphs failed", p.n_failed, (unsigned long long)n);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("differential");
    TCase *t = tcase_create("differential");
    tcase_set_timeout(t, 3000);
    tcase_add_test(t, targets_agree);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_set_fork_status(r, CK_NOFORK);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
