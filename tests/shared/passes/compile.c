/* See compile.h. */
#include "tests/shared/passes/compile.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/build.h"
#include "frontend/text/parse.h"
#include "tests/shared/kernel_cache.h"

char *f8_test_read(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    fseek(f, 0, SEEK_END);
    const long n = ftell(f);
    rewind(f);
    char *text = malloc((size_t)n + 1);
    *size = text ? fread(text, 1, (size_t)n, f) : 0;
    fclose(f);
    return text;
}

char *f8_test_text(size_t *size)
{
    char *text = f8_test_read("../shared/data/tinyshakespeare.txt", size);
    if (text)
        return text;
    static const char *const own[] = {"ir/graph.c",
                                      "ir/infer.c",
                                      "passes/scale/scaling.c",
                                      "runtime/cpu/exec.c",
                                      "frontend/cli/cmd_train.c",
                                      "frontend/program.c",
                                      "ir/module.c"};
    text = NULL;
    *size = 0;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        size_t n;
        char *part = f8_test_read(own[i], &n);
        if (!part)
            continue;
        text = realloc(text, *size + n);
        memcpy(text + *size, part, n);
        *size += n;
        free(part);
    }
    return text;
}

static size_t parse_dims(const char *text, char *buf, f8_dim_override *out)
{
    size_t n = 0;
    strcpy(buf, text);
    for (char *word = strtok(buf, " "); word; word = strtok(NULL, " ")) {
        char *equals = strchr(word, '=');
        *equals = 0;
        out[n++] = (f8_dim_override){word, atoll(equals + 1)};
    }
    return n;
}

static bool has_word(const char *words, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = words; (at = strstr(at, word)); at += n)
        if ((at == words || at[-1] == ' ') && (at[n] == ' ' || !at[n]))
            return true;
    return false;
}

/* Once nothing is made from them any more. */
static void drop_functions(f8_module *m, const char *drop)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n_funcs; i++)
        if (!has_word(drop, m->func[i].name))
            m->func[n++] = m->func[i];
    m->n_funcs = n;
}

static f8_status after_pass(void *user, f8_unit *u, const char *pass)
{
    const f8_compile_setup *setup = user;
    if (setup->drop && !strcmp(pass, "legalize"))
        drop_functions(u->module, setup->drop);
    return setup->after ? setup->after(setup->after_user, u, pass) : F8_OK;
}

static void set_options(f8_options *o, const f8_compile_setup *setup)
{
    o->target = setup->target;
    o->keep = setup->keep;
    o->no_fuse = setup->no_fuse;
    o->memory = setup->memory;
    o->checkpoint = setup->checkpoint;
    o->recompute = setup->recompute;
    o->pair = o->train_step = setup->pair;
    o->ranks = setup->ranks;
    o->zero = setup->zero;
    o->after = after_pass;
    o->after_user = (void *)setup;
}

bool f8_compile_passes(f8_compiled *c, const f8_compile_setup *setup)
{
    *c = (f8_compiled){0};
    f8_arena_init(&c->arena, NULL);
    char buf[256] = "";
    f8_dim_override dims[16];
    const size_t n_dims = setup->dims ? parse_dims(setup->dims, buf, dims) : 0;
    size_t size = 0;
    char *text = f8_test_read(setup->file, &size);
    if (text && setup->rules) {
        text = realloc(text, size + strlen(setup->rules));
        memcpy(text + size, setup->rules, strlen(setup->rules));
        size += strlen(setup->rules);
    }
    if (!text) {
        f8_fail(&c->diag, F8_ERR_IO, F8_NOWHERE, "cannot read %s", setup->file);
        return false;
    }
    c->unit = (f8_unit){.arena = &c->arena, .diag = &c->diag};
    f8_recipe *recipe = F8_NEW(&c->arena, f8_recipe);
    *recipe = setup->recipe;
    c->unit.options.recipe = recipe;
    set_options(&c->unit.options, setup);
    const bool ok = f8_parse(text, size, setup->file, dims, n_dims, &c->arena, &c->diag,
                             &c->unit.module) == F8_OK &&
                    f8_run_passes(&c->unit) == F8_OK;
    free(text);
    return ok;
}

static f8_status create_instance(f8_compiled *c, const f8_compile_setup *setup)
{
    if (setup->cuda)
        return f8_instance_create_cuda(&c->instance, &c->plan, setup->cuda,
                                       &(f8_cuda_exec_options){0}, &c->diag);
    const f8_exec_options run = {.n_threads = setup->threads};
    F8_TRY(f8_instance_create_cpu(&c->instance, &c->plan, &run, &c->diag));
    c->exec = c->instance.cpu;
    return F8_OK;
}

bool f8_compile_model(f8_compiled *c, const f8_compile_setup *setup)
{
    const f8_build_options build = {
        .target = setup->target, .cuda = setup->cuda, .cache = f8_test_kernel_cache()};
    if (!f8_compile_passes(c, setup) ||
        f8_build_plan(c->unit.module, &build, &c->arena, &c->plan, &c->diag) != F8_OK ||
        create_instance(c, setup) != F8_OK ||
        c->instance.kind->init(&c->instance, setup->seed ? setup->seed : 1, NULL, &c->diag) !=
            F8_OK)
        return false;
    const int prepare = f8_compiled_func(c, "prepare");
    return prepare < 0 || f8_compiled_run(c, prepare) == F8_OK;
}

void f8_compiled_end(f8_compiled *c)
{
    f8_instance_destroy(&c->instance);
    f8_arena_end(&c->arena);
}

int f8_compiled_func(const f8_compiled *c, const char *name)
{
    for (uint32_t i = 0; i < c->plan.n_funcs; i++)
        if (!strcmp(c->plan.func[i].name, name))
            return (int)i;
    return -1;
}

int f8_compiled_output(const f8_compiled *c, int func, const char *name)
{
    const f8_plan_func *f = &c->plan.func[func];
    for (uint32_t i = 0; i < f->n_out; i++)
        if (!strcmp(f->out[i].name, name))
            return (int)i;
    return -1;
}

static const void *output(f8_compiled *c, int func, const char *name, f8_type *type)
{
    const int i = f8_compiled_output(c, func, name);
    if (i < 0)
        return NULL;
    *type = c->plan.func[func].out[i].type;
    return c->instance.kind->port(&c->instance, (uint32_t)func, true, (uint32_t)i);
}

bool f8_compiled_operand(f8_compiled *c, int func, uint32_t port, char *name, size_t size,
                         f8_operand_view *out)
{
    const char *codes = c->plan.func[func].out[port].name;
    const size_t n = strlen(codes);
    char part[256];
    if (n < 2 || strcmp(codes + n - 2, ".q"))
        return false;
    snprintf(name, size, "%.*s", (int)(n - 2), codes);
    snprintf(part, sizeof part, "%s.scale_inv", name);
    out->q = output(c, func, codes, &out->q_type);
    out->scale_inv = output(c, func, part, &out->scale_type);
    out->x = output(c, func, name, &out->x_type);
    return out->q && out->scale_inv && out->x;
}

f8_status f8_compiled_run(f8_compiled *c, int func)
{
    F8_TRY(c->instance.kind->run(&c->instance, (uint32_t)func, &c->diag));
    return c->instance.kind->wait(&c->instance, &c->diag);
}

void f8_compiled_batch(f8_compiled *c, int func, const char *text, size_t size, uint64_t seed)
{
    const f8_plan_func *f = &c->plan.func[func];
    for (uint32_t i = 0; i < f->n_in; i++) {
        const bool targets = !strcmp(f->in[i].name, "targets");
        if (!targets && strcmp(f->in[i].name, "tokens"))
            continue;
        int32_t *to = c->instance.kind->port(&c->instance, (uint32_t)func, false, i);
        const int64_t B = f->in[i].type.dim[0], T = f->in[i].type.dim[1];
        uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;
        for (int64_t b = 0; b < B; b++) {
            x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
            const size_t at = (size_t)(x >> 33) % (size - (size_t)T - 1);
            for (int64_t t = 0; t < T; t++)
                to[b * T + t] = (unsigned char)text[at + (size_t)t + targets];
        }
    }
}

float f8_compiled_step(f8_compiled *c, const char *text, size_t size, uint64_t seed)
{
    const int step = f8_compiled_func(c, "micro_step"), update = f8_compiled_func(c, "update");
    if (step < 0 || update < 0)
        return NAN;
    f8_compiled_batch(c, step, text, size, seed);
    if (f8_compiled_run(c, step) != F8_OK || f8_compiled_run(c, update) != F8_OK)
        return NAN;
    f8_type type;
    const float *loss = output(c, step, "loss", &type);
    return loss ? *loss : NAN;
}
