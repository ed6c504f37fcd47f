/* Strided copies: see copy.h. The outermost axis is split into tasks. */
#include "runtime/copy.h"

#include <string.h>

typedef struct copy_job {
    const f8_step *step;
    const uint8_t *from;
    uint8_t *to;
} copy_job;

/* One element run of the innermost axis. */
static void copy_line(const f8_step *s, const uint8_t *from, uint8_t *to)
{
    const int last = s->copy.rank - 1;
    const size_t e = s->copy.element;
    const int64_t n = s->copy.size[last], fs = s->copy.from[last], ts = s->copy.to[last];
    if (fs == 1 && ts == 1) {
        memcpy(to, from, (size_t)n * e);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        memcpy(to + (size_t)(i * ts) * e, from + (size_t)(i * fs) * e, e);
}

/* Everything below the outermost axis, at one index of it. */
static void copy_slab(const f8_step *s, const uint8_t *from, uint8_t *to)
{
    int64_t index[F8_COPY_RANK] = {0};
    const int last = s->copy.rank - 1;
    const int64_t e = (int64_t)s->copy.element;
    for (;;) {
        int64_t f = 0, t = 0;
        for (int i = 1; i < last; i++) {
            f += index[i] * s->copy.from[i];
            t += index[i] * s->copy.to[i];
        }
        copy_line(s, from + f * e, to + t * e);
        int i = last - 1;
        while (i >= 1 && ++index[i] == s->copy.size[i])
            index[i--] = 0;
        if (i < 1)
            return;
    }
}

static void copy_tasks(void *user, int thread, int64_t begin, int64_t end)
{
    (void)thread;
    const copy_job *j = user;
    const f8_step *s = j->step;
    const int64_t e = (int64_t)s->copy.element;
    for (int64_t i = begin; i < end; i++)
        copy_slab(s, j->from + i * s->copy.from[0] * e, j->to + i * s->copy.to[0] * e);
}

void f8_copy_run(const f8_step *step, f8_pool *pool, const void *from, void *to)
{
    copy_job job = {step, from, to};
    if (step->copy.rank == 0)
        memcpy(to, from, step->copy.element);
    else if (step->copy.rank == 1)
        copy_line(step, from, to);
    else
        f8_pool_run(pool, copy_tasks, &job, step->copy.size[0]);
}
