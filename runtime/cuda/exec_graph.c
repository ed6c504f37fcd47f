/* The captured graphs of a function: see exec_internal.h. */
#include "runtime/cuda/exec_internal.h"

#include <string.h>

static size_t n_addresses(const f8_live_func *f)
{
    enum { SHARED = 3 }; /* arena, workspace, constants */
    return SHARED + (size_t)f->func->n_in + f->func->n_out;
}

f8_status f8_cuda_exec_make_graphs(f8_cuda_exec *x, f8_live_func *f, f8_diag *diag)
{
    for (int i = 0; i < F8_CUDA_GRAPHS; i++)
        f->known[i].address = F8_NEW_ARRAY(&x->memory, uint64_t, n_addresses(f));
    f->wanted = F8_NEW_ARRAY(&x->memory, uint64_t, n_addresses(f));
    f->graph = f->known;
    return f8_arena_status(&x->memory, diag);
}

static void list_addresses(const f8_cuda_exec *x, uint32_t func, uint64_t *to)
{
    const f8_live_func *f = &x->func[func];
    *to++ = x->home->home.arena.at;
    *to++ = x->home->home.workspace.at;
    *to++ = x->tenant.constants.at;
    for (int side = 0; side < 2; side++)
        for (uint32_t k = 0; k < (side ? f->func->n_out : f->func->n_in); k++)
            *to++ = x->tenant.port[func][side][k].at;
}

static void forget(const f8_cuda_exec *x, f8_known_graph *g)
{
    if (g->graph)
        x->cuda->cu.cuGraphExecDestroy(g->graph); /* one in flight ends first */
    g->graph = NULL;
}

void f8_cuda_exec_choose_graph(f8_cuda_exec *x, uint32_t func)
{
    f8_live_func *f = &x->func[func];
    const size_t bytes = n_addresses(f) * sizeof *f->wanted;
    f8_known_graph *oldest = f->known;
    list_addresses(x, func, f->wanted);
    f->chosen++;
    for (int i = 0; i < F8_CUDA_GRAPHS; i++) {
        f8_known_graph *g = &f->known[i];
        if (g->chosen < oldest->chosen)
            oldest = g;
        if (!g->chosen || memcmp(g->address, f->wanted, bytes))
            continue;
        g->chosen = f->chosen;
        f->graph = g;
        return;
    }
    forget(x, oldest);
    memcpy(oldest->address, f->wanted, bytes);
    oldest->chosen = f->chosen;
    f->graph = oldest;
}

void f8_cuda_exec_forget_graphs(f8_cuda_exec *x, f8_live_func *f)
{
    for (int i = 0; i < F8_CUDA_GRAPHS; i++)
        forget(x, &f->known[i]);
}
