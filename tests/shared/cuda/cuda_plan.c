/* See cuda_plan.h. */
#include "tests/shared/cuda/cuda_plan.h"
#include "tests/shared/suite.h"

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/shared/passes/compile.h"

void cuda_plan_lower(cuda_plan *b, const cuda_model *m)
{
    *b = (cuda_plan){0};
    f8_arena_init(&b->arena, NULL);
    size_t size = m->text ? strlen(m->text) : 0;
    char *text = m->text ? strdup(m->text) : f8_test_read(m->file, &size);
    ck_assert_ptr_nonnull(text);
    b->unit = (f8_unit){.arena = &b->arena, .diag = &b->diag};
    b->unit.options.recipe = f8_recipe_by_name(m->recipe);
    b->unit.options.target = m->target;
    b->unit.options.no_fuse = m->no_fuse;
    b->unit.options.inference = m->inference;
    b->unit.options.wgrad_branch = m->wgrad_branch;
    b->status = f8_parse(text, size, m->file, m->dims, m->n_dims, &b->arena, &b->diag,
                         &b->unit.module);
    if (b->status == F8_OK)
        b->status = f8_run_passes(&b->unit);
    free(text);
}

void cuda_plan_finish(cuda_plan *b, f8_build_options o)
{
    o.target = b->unit.options.target;
    o.stats = &b->stats;
    if (b->status == F8_OK)
        b->status = f8_build_plan(b->unit.module, &o, &b->arena, &b->plan, &b->diag);
}

void cuda_plan_build(cuda_plan *b, const char *model, const char *dim, const char *recipe,
                     const char *arch, f8_build_options o)
{
    char file[64], name[16] = "";
    f8_dim_override over = {name, 0};
    snprintf(file, sizeof file, "frontend/models/%s.f8", model);
    if (dim)
        ck_assert_int_eq(sscanf(dim, "%15[A-Z]=%" SCNd64, name, &over.value), 2);
    cuda_plan_lower(b, &(cuda_model){.file = file,
                                     .dims = &over,
                                     .n_dims = dim != NULL,
                                     .recipe = recipe,
                                     .target = f8_target_by_name(arch)});
    cuda_plan_finish(b, o);
}

void cuda_plan_end(cuda_plan *b)
{
    f8_arena_end(&b->arena);
}

bool cuda_plan_compiler(f8_cuda **cuda)
{
    const f8_cuda_paths paths = f8_cuda_paths_from_environment();
    f8_diag d = {0};
    int version;
    ck_assert_int_eq(f8_cuda_create(&paths, NULL, cuda, &d), F8_OK);
    if (f8_cuda_nvrtc(*cuda, &version, &d) == F8_OK)
        return true;
    ck_assert_int_eq(d.status, F8_ERR_LIBRARY);
    ck_assert_ptr_nonnull(strstr(d.text, "nvrtc"));
    test_skip("compiling with NVRTC", "%s (PyPI: nvidia-cuda-nvrtc)", d.text);
    return false;
}
