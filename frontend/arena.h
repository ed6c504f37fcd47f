/* Arenas that programs have in common. Internal to frontend/. */
#ifndef F8_FRONTEND_ARENA_H
#define F8_FRONTEND_ARENA_H

#include "frontend/api.h"
#include "runtime/work.h"

struct fp8c_arena {
    fp8c_context *ctx;
    f8_work *work; /* programs hold it, too: it may outlive the arena */
};

/* NULL: NULL. F8_ERR_INPUT: it is of another context. */
f8_status f8_arena_of(const fp8c_context *ctx, const fp8c_arena *arena, f8_work **out,
                      f8_diag *diag);

#endif
