/* Arenas that programs have in common: see fp8c.h. runtime/work.h has what they do. */
#include "frontend/arena.h"

f8_status f8_arena_of(const fp8c_context *ctx, const fp8c_arena *arena, f8_work **out,
                      f8_diag *diag)
{
    *out = arena ? arena->work : NULL;
    return !arena || arena->ctx == ctx
               ? F8_OK
               : f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "the arena is of another context");
}

fp8c_status fp8c_arena_create(fp8c_context *ctx, const fp8c_arena_options *options,
                              fp8c_arena **out)
{
    f8_diag diag = {0};
    fp8c_arena_options o = {.struct_size = sizeof o};
    *out = NULL;
    f8_status status = f8_api_options(&o, options, "fp8c_arena_options", &diag);
    if (status == F8_OK && !o.device_alloc != !o.device_free)
        status = f8_fail(&diag, F8_ERR_INPUT, F8_NOWHERE,
                         "device_alloc and device_free are a pair: give both or neither");
    fp8c_arena *a =
        status == F8_OK ? f8_api_new(ctx, sizeof *a, _Alignof(fp8c_arena), &diag) : NULL;
    if (!a)
        return f8_api_result(ctx, &diag, diag.status);
    a->ctx = ctx;
    status = f8_work_create(&ctx->allocator, &a->work, &diag);
    if (status != F8_OK) {
        f8_api_delete(ctx, a, sizeof *a);
        return f8_api_result(ctx, &diag, status);
    }
    a->work->device_alloc = o.device_alloc;
    a->work->device_free = o.device_free;
    a->work->device_user = o.device_user;
    *out = a;
    return FP8C_OK;
}

int64_t fp8c_arena_bytes(const fp8c_arena *arena)
{
    return f8_work_bytes(arena->work);
}

void fp8c_arena_destroy(fp8c_arena *arena)
{
    if (!arena)
        return;
    f8_work_release(arena->work);
    f8_api_delete(arena->ctx, arena, sizeof *arena);
}
