/* A kernel that computes wrong: linked into a program beside the library, with
 *
 *     -Wl,--wrap=f8_exec_create -Wl,--wrap=f8_blob_phase
 *
 * it puts a function of this file in the place of one kernel of target cpu, by the name of its
 * step. That function runs the kernel and then flips a bit of one element of what it wrote.
 *
 *     FP8C_TEST_FLIP_KERNEL=NAME    the step, the first of that name which writes a result
 *     FP8C_TEST_FLIP_ONCE=1         its first run alone, not every one */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/blob.h"
#include "runtime/cpu/exec.h"

enum { ELEMENT = 3 }; /* an f32 */

static const f8_step_phase *wanted; /* while an executor is made; NULL: none */
static uint32_t result;             /* which argument of the phase */
static f8_phase_fn real;
static atomic_int runs;

f8_status __real_f8_exec_create(const f8_plan *plan, const f8_exec_options *options, f8_exec **out,
                                f8_diag *diag);
f8_status __wrap_f8_exec_create(const f8_plan *plan, const f8_exec_options *options, f8_exec **out,
                                f8_diag *diag);
f8_phase_fn __real_f8_blob_phase(const f8_blob *blob, uint64_t entry);
f8_phase_fn __wrap_f8_blob_phase(const f8_blob *blob, uint64_t entry);

/* The phase of the step that has a result among its arguments; NULL: none has. */
static const f8_step_phase *find_phase(const f8_step *s)
{
    for (uint32_t p = s->n_phases; p-- > 0;)
        for (uint32_t a = s->phase[p].first_arg;
             a < (p + 1 < s->n_phases ? s->phase[p + 1].first_arg : s->n_args); a++)
            if (s->arg[a].space == F8_SPACE_OUTPUT) {
                result = a - s->phase[p].first_arg;
                return &s->phase[p];
            }
    return NULL;
}

static const f8_step_phase *find(const f8_plan *plan, const char *name)
{
    const f8_step_phase *found = NULL;
    for (uint32_t f = 0; name && f < plan->n_funcs; f++)
        for (uint32_t i = 0; i < plan->func[f].n_steps && !found; i++)
            if (!strcmp(plan->func[f].step[i].name, name))
                found = find_phase(&plan->func[f].step[i]);
    return found;
}

static void wrong(void *const *arg, const int64_t *ints, int64_t begin, int64_t end, void *scratch)
{
    const char *once = getenv("FP8C_TEST_FLIP_ONCE");
    real(arg, ints, begin, end, scratch);
    if (begin == 0 && (runs++ == 0 || !once))
        ((unsigned char *)arg[result])[4 * ELEMENT + 2] ^= 0x10; /* of the mantissa */
}

f8_status __wrap_f8_exec_create(const f8_plan *plan, const f8_exec_options *options, f8_exec **out,
                                f8_diag *diag)
{
    wanted = real ? NULL : find(plan, getenv("FP8C_TEST_FLIP_KERNEL"));
    const f8_status status = __real_f8_exec_create(plan, options, out, diag);
    wanted = NULL;
    return status;
}

f8_phase_fn __wrap_f8_blob_phase(const f8_blob *blob, uint64_t entry)
{
    const f8_phase_fn phase = __real_f8_blob_phase(blob, entry);
    if (!wanted || entry != wanted->entry)
        return phase;
    real = phase;
    return wrong;
}
