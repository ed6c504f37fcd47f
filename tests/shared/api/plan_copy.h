/* For tests of plans as bytes: a program's plan, and copies of it made through bytes. */
#ifndef TEST_PLAN_COPY_H
#define TEST_PLAN_COPY_H

#include "frontend/program.h"
#include "runtime/plan_file.h"
#include "tests/shared/api/api.h"

static fp8c_context *ctx;
static fp8c_program *program;
static f8_arena arena;
static const f8_plan *plan;

static inline void setup(void)
{
    fp8c_compile_options o = recipe("delayed");
    o.no_device = 1;
    ctx = new_context();
    fp8c_module *m = parse(ctx, model);
    program = compile(ctx, m, &o);
    fp8c_module_destroy(m);
    plan = &program->now->plan;
    f8_arena_init(&arena, NULL);
}

static inline void teardown(void)
{
    f8_arena_end(&arena);
    fp8c_program_destroy(program);
    fp8c_context_destroy(ctx);
}

/* A copy through bytes, with the parts that are kept apart. */
static inline f8_plan copy(void)
{
    f8_wire w, r;
    f8_plan from = *plan, to = {0};
    f8_diag d = {0};
    f8_wire_begin_write(&w, &arena);
    f8_plan_wire(&w, &from);
    f8_wire_begin_read(&r, w.bytes, w.size, &arena, "the plan");
    f8_plan_wire(&r, &to);
    ck_assert_msg(f8_wire_end(&r, &d) == F8_OK, "%s", d.text);
    to.needs = plan->needs;
    to.constants = plan->constants;
    to.blob = plan->blob;
    for (uint32_t i = 0; i < to.n_images; i++)
        to.image[i].bytes = plan->image[i].bytes;
    return to;
}

#endif
