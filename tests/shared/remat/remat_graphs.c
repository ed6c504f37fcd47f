/* Problems for the planner: see remat_graphs.h. */
#include "tests/shared/remat/remat_graphs.h"

#include <stdlib.h>
#include <string.h>

/* ---- building ---- */

static void *must(void *p)
{
    if (!p)
        abort();
    return p;
}

static void begin(remat_graph *g, f8_arena *arena, uint64_t seed)
{
    *g = (remat_graph){.arena = arena, .random = seed * 0x9e3779b97f4a7c15u + 1};
}

uint32_t remat_draw(remat_graph *g, uint32_t n)
{
    g->random = g->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((g->random >> 33) % n);
}

uint32_t remat_value(remat_graph *g, int64_t bytes, double seconds)
{
    const size_t n = g->p.n_values;
    g->value = must(f8_arena_grow(g->arena, g->value, n, &g->value_room, n + 1, sizeof *g->value));
    g->value[n] = (f8_remat_value){.bytes = bytes, .seconds = seconds};
    g->p.value = g->value;
    return g->p.n_values++;
}

static const uint32_t *copy(remat_graph *g, const uint32_t *list, uint32_t n)
{
    uint32_t *p = must(F8_NEW_ARRAY(g->arena, uint32_t, n));
    for (uint32_t i = 0; i < n; i++)
        p[i] = list[i];
    return p;
}

void remat_from(remat_graph *g, uint32_t value, const uint32_t *from, uint32_t n_from)
{
    g->value[value].from = copy(g, from, n_from);
    g->value[value].n_from = n_from;
}

void remat_step(remat_graph *g, const uint32_t *read, uint32_t n_read, const uint32_t *write,
                uint32_t n_write, int64_t bytes)
{
    const size_t n = g->p.n_steps;
    g->step = must(f8_arena_grow(g->arena, g->step, n, &g->step_room, n + 1, sizeof *g->step));
    g->step[n] = (f8_remat_step){.read = copy(g, read, n_read),
                                 .write = copy(g, write, n_write),
                                 .n_read = n_read,
                                 .n_write = n_write,
                                 .bytes = bytes};
    g->p.step = g->step;
    g->p.n_steps++;
    for (uint32_t i = 0; i < n_write; i++)
        if (!g->value[write[i]].from)
            remat_from(g, write[i], read, n_read);
}

/* One step that makes one value from up to four. */
static uint32_t make(remat_graph *g, int64_t bytes, double seconds, int64_t workspace,
                     const uint32_t *read, uint32_t n_read)
{
    const uint32_t v = remat_value(g, bytes, seconds);
    remat_step(g, read, n_read, &v, 1, workspace);
    return v;
}

#define MAKE(g, bytes, seconds, workspace, ...)                                                    \
    make(g, bytes, seconds, workspace, (const uint32_t[]){__VA_ARGS__},                            \
         sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

/* ---- small random ones ---- */

static uint32_t random_value(remat_graph *g)
{
    static const int64_t bytes[] = {1, 2, 4, 4, 8, 8, 16, 3, 5};
    const double seconds = 1 + remat_draw(g, remat_draw(g, 2) ? 4 : 30);
    return remat_value(g, bytes[remat_draw(g, 9)], seconds);
}

static int64_t workspace(remat_graph *g, uint32_t one_in)
{
    return remat_draw(g, one_in) ? 0 : remat_draw(g, 8);
}

/* Forward values from the last one, some from earlier ones too; gradients from the last one and
 * forward values. */
static void forward_backward(remat_graph *g)
{
    const uint32_t n = 3 + remat_draw(g, 7);
    uint32_t f[10], last = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t read[2], n_read = 0;
        f[i] = random_value(g);
        if (i)
            read[n_read++] = f[i - 1];
        if (i > 1 && remat_draw(g, 4) == 0)
            read[n_read++] = f[remat_draw(g, i - 1)];
        if (remat_draw(g, 8) == 0)
            g->value[f[i]].seconds = -1;
        remat_step(g, read, n_read, &f[i], 1, workspace(g, 4));
    }
    for (uint32_t i = n; i-- > 0;) {
        uint32_t read[3], n_read = 0;
        const uint32_t v = random_value(g);
        if (i + 1 < n)
            read[n_read++] = last;
        read[n_read++] = f[i];
        if (i && remat_draw(g, 3))
            read[n_read++] = f[i - 1];
        if (remat_draw(g, 2))
            g->value[v].seconds = -1;
        g->value[v].result = remat_draw(g, 6) == 0;
        remat_step(g, read, n_read, &v, 1, workspace(g, 4));
        last = v;
    }
}

static void any_graph(remat_graph *g)
{
    const uint32_t n = 6 + remat_draw(g, 9);
    uint32_t sum = UINT32_MAX; /* written by several steps */
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t made = g->p.n_values, n_write = 1 + (remat_draw(g, 4) == 0 && made < 14);
        uint32_t read[4], write[3], n_read = made ? remat_draw(g, made < 3 ? made + 1 : 4) : 0;
        for (uint32_t k = 0; k < n_read; k++)
            read[k] = remat_draw(g, 3) ? made - 1 - remat_draw(g, made < 5 ? made : 5)
                                       : remat_draw(g, made);
        for (uint32_t k = 0; k < n_write; k++) {
            write[k] = random_value(g);
            if (remat_draw(g, 6) == 0)
                g->value[write[k]].seconds = -1;
            g->value[write[k]].result = remat_draw(g, 10) == 0;
        }
        const bool add = sum != UINT32_MAX && remat_draw(g, 2);
        write[n_write] = sum;
        remat_step(g, read, n_read, write, n_write + add, workspace(g, 3));
        if (n_write > 1 && remat_draw(g, 2)) { /* the second from the first as well */
            read[n_read++] = write[0];
            remat_from(g, write[1], read, n_read);
        }
        if (sum == UINT32_MAX && made && remat_draw(g, 8) == 0)
            sum = made;
    }
}

void remat_random(remat_graph *g, f8_arena *arena, uint64_t seed)
{
    begin(g, arena, seed);
    if (seed % 2)
        forward_backward(g);
    else
        any_graph(g);
}

/* ---- layers ---- */

void remat_chain(remat_graph *g, f8_arena *arena, uint32_t n)
{
    begin(g, arena, 0);
    uint32_t *f = must(F8_NEW_ARRAY(arena, uint32_t, n)), last = 0;
    for (uint32_t i = 0; i < n; i++)
        f[i] = make(g, 1, 1, 0, i ? &f[i - 1] : NULL, i > 0);
    for (uint32_t i = n; i-- > 0;) {
        const uint32_t read[] = {f[i], last};
        last = make(g, 1, -1, 0, read, i + 1 < n ? 2 : 1);
    }
    g->value[last].result = true;
}

/* Of one layer, what the backward reads. */
typedef struct layer {
    uint32_t x, stats, codes, qkv, o, lse, o_codes, mid, stats_2, codes_2, up, act_codes;
} layer;

enum { WIDE = 1 << 20, SMALL = 64 }; /* bytes of tokens x width in BF16; of scales and such */
static const double pass = 0.125, gemm = 1; /* seconds: one pass over it, a square GEMM */

static uint32_t forward(remat_graph *g, layer *l, uint32_t x)
{
    const double norm = 2 * pass;
    l->x = x;
    l->stats = MAKE(g, WIDE / 256, pass, 0, x);
    l->codes = MAKE(g, WIDE / 2, norm, 0, x, l->stats);
    l->qkv = MAKE(g, 3 * WIDE, 3 * gemm, WIDE / 16, l->codes);
    l->o = remat_value(g, WIDE, 1.5 * gemm);
    l->lse = remat_value(g, WIDE / 64, 1.5 * gemm);
    remat_step(g, &l->qkv, 1, (const uint32_t[]){l->o, l->lse}, 2, WIDE / 8);
    l->o_codes = MAKE(g, WIDE / 2, pass, 0, l->o);
    const uint32_t projected = MAKE(g, WIDE, gemm, WIDE / 16, l->o_codes);
    l->mid = MAKE(g, WIDE, norm, 0, x, projected);
    l->stats_2 = MAKE(g, WIDE / 256, pass, 0, l->mid);
    l->codes_2 = MAKE(g, WIDE / 2, norm, 0, l->mid, l->stats_2);
    l->up = MAKE(g, 4 * WIDE, 4 * gemm, WIDE / 16, l->codes_2);
    const uint32_t act = MAKE(g, 4 * WIDE, 8 * pass, 0, l->up);
    l->act_codes = MAKE(g, 2 * WIDE, 6 * pass, 0, act);
    const uint32_t down = MAKE(g, WIDE, 4 * gemm, WIDE / 16, l->act_codes);
    return MAKE(g, WIDE, norm, 0, l->mid, down);
}

/* A weight's gradient is added up elsewhere; a few bytes stand for it. */
static void weight(remat_graph *g, uint32_t codes, uint32_t gradient)
{
    g->value[MAKE(g, SMALL, -1, WIDE / 8, codes, gradient)].result = true;
}

static uint32_t backward(remat_graph *g, const layer *l, uint32_t dx)
{
    uint32_t codes = MAKE(g, WIDE / 2, pass, 0, dx);
    weight(g, l->act_codes, codes);
    const uint32_t dact = MAKE(g, 4 * WIDE, 4 * gemm, WIDE / 16, codes);
    codes = MAKE(g, 2 * WIDE, 8 * pass, 0, dact, l->up);
    weight(g, l->codes_2, codes);
    const uint32_t dnorm = MAKE(g, WIDE, 4 * gemm, WIDE / 16, codes);
    const uint32_t dmid = MAKE(g, WIDE, 2 * pass, 0, dnorm, l->mid, l->stats_2, dx);
    codes = MAKE(g, WIDE / 2, pass, 0, dmid);
    weight(g, l->o_codes, codes);
    const uint32_t d_o = MAKE(g, WIDE, gemm, WIDE / 16, codes);
    const uint32_t dqkv = MAKE(g, 3 * WIDE, 3 * gemm, WIDE / 4, d_o, l->o, l->lse, l->qkv);
    codes = MAKE(g, 3 * WIDE / 2, 3 * pass, 0, dqkv);
    weight(g, l->codes, codes);
    const uint32_t dnorm_1 = MAKE(g, WIDE, 3 * gemm, WIDE / 16, codes);
    return MAKE(g, WIDE, -1, 0, dnorm_1, l->x, l->stats, dmid);
}

void remat_transformer(remat_graph *g, f8_arena *arena, uint32_t n_layers)
{
    begin(g, arena, 0);
    layer *l = must(F8_NEW_ARRAY(arena, layer, n_layers));
    g->n_layers = n_layers;
    g->border = must(F8_NEW_ARRAY(arena, uint32_t, (size_t)n_layers + 1));
    g->layer_end = must(F8_NEW_ARRAY(arena, uint32_t, n_layers));
    g->border[0] = make(g, WIDE, -1, 0, NULL, 0);
    for (uint32_t i = 0; i < n_layers; i++) {
        g->border[i + 1] = forward(g, &l[i], g->border[i]);
        g->layer_end[i] = g->p.n_steps;
    }
    uint32_t dx = make(g, WIDE, -1, 4 * WIDE, &g->border[n_layers], 1); /* head and loss */
    for (uint32_t i = n_layers; i-- > 0;)
        dx = backward(g, &l[i], dx);
    g->value[make(g, SMALL, -1, 0, &dx, 1)].result = true;
}

/* Values that a step of the forward makes are in the layer of that step; values of one step follow
 * each other. */
static uint32_t recompute_layer(const remat_graph *g, uint32_t layer, f8_remat_action *action)
{
    uint32_t n = 0;
    for (uint32_t s = layer ? g->layer_end[layer - 1] : 1; s < g->layer_end[layer]; s++)
        for (uint32_t i = 0; i < g->step[s].n_write; i++)
            if (g->step[s].write[i] != g->border[layer + 1])
                action[n++] = (f8_remat_action){true, g->step[s].write[i]};
    return n;
}

bool remat_by_layers(const remat_graph *g, int64_t budget, f8_arena *arena, f8_remat_plan *out)
{
    const uint32_t n_forward = g->layer_end[g->n_layers - 1];
    for (uint32_t n = 0; n <= g->n_layers; n++) {
        *out = (f8_remat_plan){.action = must(F8_NEW_ARRAY(arena, f8_remat_action,
                                                           (size_t)g->p.n_steps + g->p.n_values))};
        const uint32_t steps = (g->p.n_steps - n_forward - 2) / g->n_layers;
        for (uint32_t s = 0; s < g->p.n_steps; s++) {
            const uint32_t since = s - n_forward - 1;
            if (s > n_forward && since % steps == 0 && since / steps < g->n_layers) {
                const uint32_t layer = g->n_layers - 1 - since / steps;
                if (layer < n)
                    out->n_actions += recompute_layer(g, layer, out->action + out->n_actions);
            }
            out->action[out->n_actions++] = (f8_remat_action){false, s};
        }
        if (!f8_remat_plan_measure(&g->p, arena, out))
            abort();
        if (out->peak <= budget)
            return true;
    }
    return false;
}
