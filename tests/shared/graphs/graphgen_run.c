/* Running a random graph: see graphgen.h. */
#include "tests/shared/graphs/graphgen.h"

#include <check.h>

#include "tests/shared/passes/primitive.h"
#include "tests/shared/passes/program_run.h"

void graphgen_run(f8_module *m, uint64_t seed, const f8_target *target, void **out)
{
    const f8_func *f = &m->func[0];
    void **in = F8_NEW_ARRAY(m->arena, void *, f->n_in);
    for (size_t i = 0; i < f->n_in; i++) {
        in[i] = f8_arena_array(m->arena, 1, (size_t)f8_type_bytes(&f->in[i].type));
        graphgen_fill(seed, f->in[i].name, &f->in[i].type, in[i]);
    }
    for (size_t i = 0; i < f->n_out; i++)
        out[i] = f8_arena_array(m->arena, 1, (size_t)f8_type_bytes(&f->out[i].type));
    f8_diag diag = {0};
    const f8_status status = target ? f8_program_run(f, target, (const void *const *)in, out, &diag)
                                    : test_reference_run(f, (const void *const *)in, out, &diag);
    ck_assert_msg(status == F8_OK,
                  "seed %llu: %s", (unsigned long long)seed, diag.text);
}
