/* Graphs: what was captured, with its order. See stream.h.
 *
 * A graph is a list of works in the order of their calls. Each has a lane, the stream that did it,
 * and comes after the work before it of the same lane. A WAIT also comes after a work of another
 * lane. All of a launch runs one after the other here; which lane goes on where several could
 * decides what a missing WAIT does. */
#include "tests/emulator/stream.h"

#include <stdlib.h>
#include <string.h>

/* ---- lists of works ---- */

void f8_emu_work_free(work *w)
{
    free(w->kernel.params);
    free(w->data);
}

void f8_emu_graph_clear(void *graph)
{
    struct CUgraph_st *g = graph;
    for (size_t i = 0; i < g->n; i++)
        f8_emu_work_free(&g->work[i]);
    free(g->work);
    g->work = NULL;
    g->n = g->room = 0;
}

bool f8_emu_append(struct CUgraph_st *g, const work *w)
{
    if (g->n == g->room) {
        const size_t room = g->room ? 2 * g->room : 16;
        work *grown = realloc(g->work, room * sizeof *grown);
        if (!grown)
            return false;
        g->work = grown;
        g->room = room;
    }
    g->work[g->n++] = *w;
    return true;
}

bool f8_emu_append_copy(struct CUgraph_st *g, const work *from)
{
    work w = *from;
    const size_t params = w.kind == WORK_KERNEL ? f8_emu_kernel_params(&w.kernel) : 0;
    if (w.kernel.params)
        w.kernel.params = malloc(params);
    if (w.data)
        w.data = malloc(w.move.bytes);
    if ((from->kernel.params && !w.kernel.params) || (from->data && !w.data) ||
        !f8_emu_append(g, &w)) {
        f8_emu_work_free(&w);
        return false;
    }
    if (w.kernel.params)
        memcpy(w.kernel.params, from->kernel.params, params);
    if (w.data)
        memcpy(w.data, from->data, w.move.bytes);
    return true;
}

/* ---- orders ---- */

/* Which lane goes on: the first stream, others only when it waits for them; others first; as the
 * calls came; with a seed any. */
enum { LATE, EARLY, AS_CALLED, ANY };

typedef struct player {
    const struct CUgraph_st *g;
    bool *done;
    size_t head[F8_EMU_LANES]; /* the index of the lane's next work; n: none */
    int policy;
    uint64_t random;
} player;

static size_t next_of(const struct CUgraph_st *g, int lane, size_t from)
{
    while (from < g->n && g->work[from].lane != lane)
        from++;
    return from;
}

static bool is_ready(const player *p, int lane)
{
    const size_t i = p->head[lane];
    return i < p->g->n && (!p->g->work[i].after || p->done[p->g->work[i].after - 1]);
}

static bool is_better(player *p, int lane, int than, int seen)
{
    switch (p->policy) {
    case LATE: return false;
    case EARLY: return true;
    case AS_CALLED: return p->head[lane] < p->head[than];
    default:
        p->random = p->random * 6364136223846793005u + 1442695040888963407u;
        return (p->random >> 33) % (uint64_t)seen == 0;
    }
}

/* -1: all is done. */
static int choose_lane(player *p)
{
    int best = -1, seen = 0;
    for (int lane = 0; lane < F8_EMU_LANES; lane++)
        if (is_ready(p, lane)) {
            seen++;
            best = best < 0 || is_better(p, lane, best, seen) ? lane : best;
        }
    return best;
}

bool f8_emu_graph_play(struct CUgraph_st *to, const struct CUgraph_st *from)
{
    static uint64_t plays;
    const uint64_t seed = (uint64_t)f8_emu_setting("FP8C_EMULATOR_SEED", 0);
    player p = {.g = from,
                .done = calloc(from->n + 1, sizeof *p.done),
                .policy = seed ? ANY : (int)f8_emu_setting("FP8C_EMULATOR_GRAPH", LATE),
                .random = seed * 0x9e3779b97f4a7c15u + ++plays};
    bool good = p.done != NULL;
    for (int lane = 0; lane < F8_EMU_LANES; lane++)
        p.head[lane] = next_of(from, lane, 0);
    for (int lane; good && (lane = choose_lane(&p)) >= 0;) {
        const size_t i = p.head[lane];
        if (from->work[i].kind != WORK_WAIT)
            good = f8_emu_append_copy(to, &from->work[i]);
        p.done[i] = true;
        p.head[lane] = next_of(from, lane, i + 1);
    }
    free(p.done);
    return good;
}

bool f8_emu_graph_is_joined(const struct CUgraph_st *g)
{
    size_t reached[F8_EMU_LANES] = {
        [0] = g->n}; /* 1 + the last work that the first stream is after */
    bool joined = true;
    for (size_t i = g->n; i-- > 0;) {
        const work *w = &g->work[i];
        if (i >= reached[w->lane]) {
            joined = joined && (w->kind == WORK_EVENT || w->kind == WORK_WAIT);
            continue;
        }
        const int other = w->after ? g->work[w->after - 1].lane : w->lane;
        if (w->after > reached[other])
            reached[other] = w->after;
    }
    return joined;
}

/* ---- calls ---- */

static bool copy_graph(struct CUgraph_st *to, const struct CUgraph_st *from)
{
    for (size_t i = 0; i < from->n; i++)
        if (!f8_emu_append_copy(to, &from->work[i]))
            return false;
    return true;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    F8_EMU_ENTER(F8_EMU_UNSAFE);
    if (!f8_emu_object_lives(graph, F8_EMU_GRAPH))
        return CUDA_ERROR_INVALID_HANDLE;
    if (flags)
        return CUDA_ERROR_NOT_SUPPORTED;
    *exec = f8_emu_object_new(F8_EMU_GRAPH_EXEC, sizeof **exec);
    if (!*exec)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (copy_graph(&(*exec)->graph, graph))
        return CUDA_SUCCESS;
    f8_emu_object_free(*exec);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Only parameters may differ: the same kinds of work in the same order, the same kernels. */
CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
                              CUgraphExecUpdateResultInfo *result_info)
{
    F8_EMU_ENTER(F8_EMU_UNSAFE);
    (void)result_info;
    if (!f8_emu_object_lives(exec, F8_EMU_GRAPH_EXEC) || !f8_emu_object_lives(graph, F8_EMU_GRAPH))
        return CUDA_ERROR_INVALID_HANDLE;
    bool same = exec->graph.n == graph->n;
    for (size_t i = 0; same && i < graph->n; i++)
        same = exec->graph.work[i].kind == graph->work[i].kind &&
               exec->graph.work[i].kernel.function == graph->work[i].kernel.function &&
               exec->graph.work[i].kernel.dependent == graph->work[i].kernel.dependent &&
               exec->graph.work[i].lane == graph->work[i].lane &&
               exec->graph.work[i].after == graph->work[i].after;
    if (!same)
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    f8_emu_graph_clear(&exec->graph);
    return copy_graph(&exec->graph, graph) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    F8_EMU_ENTER(F8_EMU_CONTEXT);
    return f8_emu_object_destroy(exec, F8_EMU_GRAPH_EXEC);
}

CUresult cuGraphDestroy(CUgraph graph)
{
    F8_EMU_ENTER(F8_EMU_CONTEXT);
    return f8_emu_object_destroy(graph, F8_EMU_GRAPH);
}
