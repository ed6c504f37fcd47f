/* The branch: GEMMs that run beside other steps within a CUDA graph (f8_step.branch). A weight's
 * gradient is needed late, so its GEMM need not stand between the next layer's steps.
 *
 * The branch is a stream of its own, in which such GEMMs follow one another. Each begins after all
 * steps before it, so it reads what it should. Places are shared by the order of steps, so another
 * step has to wait for the branch where bytes say so: where it accesses what a GEMM of the branch
 * writes, or writes what one reads. It waits for the last such GEMM, which is after the others.
 * Steps that it follows in its own stream have waited already for what they had to follow; so
 * f8_bytes, which knows the last write and the reads since, is enough. */
#include "codegen/plan/merge.h"

typedef struct follower {
    const f8_step *step;
    uint32_t last; /* 1 + the last step of the branch that it must come after; 0: none */
} follower;

/* mark: 1 + a step before, or the step itself. */
static bool see(void *user, uint32_t mark)
{
    follower *f = user;
    if (f->step[mark - 1].branch && mark > f->last)
        f->last = mark;
    return true;
}

static f8_status find_joins(f8_build *b, f8_bytes *bytes)
{
    f8_step *step = b->out->step;
    uint32_t joined = 0; /* 1 + the last step of the branch that was waited for */
    for (uint32_t i = 0; i < b->out->n_steps; i++) {
        const f8_step_builder *d = &b->builder[i];
        follower f = {.step = step};
        for (uint32_t k = 0; k < d->n_accesses; k++)
            if (!f8_bytes_follow(bytes, &d->access[k], i + 1, see, &f))
                return f8_arena_status(bytes->arena, b->diag);
        if (step[i].branch || f.last <= joined)
            continue;
        step[i].joins = joined = f.last;
    }
    return F8_OK;
}

f8_status f8_build_branch(f8_build *b)
{
    f8_arena scratch;
    bool any = false;
    for (uint32_t i = 0; i < b->out->n_steps; i++)
        any |= b->out->step[i].branch;
    if (!any)
        return F8_OK;
    f8_arena_init(&scratch, b->options->allocator);
    f8_bytes bytes = {.arena = &scratch};
    const f8_status status = find_joins(b, &bytes);
    f8_arena_end(&scratch);
    return status;
}
