/* The CUDA target's part of building a plan: see build.h and codegen/plan/parts.h. */
#include "codegen/cuda/attention_choice.h"
#include "codegen/cuda/build.h"

#include <string.h>

#include "codegen/cuda/copy.h"
#include "codegen/cuda/report.h"
#include "codegen/cuda/scatter.h"
#include "runtime/cuda/cublaslt.h"
#include "runtime/cuda/cudnn_attention.h"

enum { ALIGN = 16 };

static f8_status begin(f8_build *b)
{
    if (!b->options->text_only && !b->options->no_code && !b->options->cuda)
        return f8_fail(b->diag, F8_ERR_INPUT, F8_NOWHERE,
                       "target %s: options.cuda has no NVRTC to compile with", b->facts->name);
    if (b->options->dependent_launch && b->facts->sm < 90)
        return f8_fail(
            b->diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
            "dependent_launch: %s has no programmatic dependent launch, sm_90a and later "
            "have",
            b->facts->name);
    b->plan->dependent_launch = b->options->dependent_launch;
    return F8_OK;
}

static int64_t rows_tasks(const f8_build *b, const f8_kernel *k, int64_t extent)
{
    return f8_cuda_rows_tasks(b->facts, k, extent);
}

static bool is_aligned(const f8_build *b, const f8_kernel *k, const f8_arg *arg,
                       const int64_t *ints)
{
    return f8_cuda_rows_are_aligned(b->facts, k, arg, ints);
}

static int64_t scatter_tasks(int64_t positions, int64_t columns)
{
    (void)columns;
    return f8_cuda_scatter_tasks(positions);
}

/* Reports a failure `why` that has no place in the text: adds the place of `r`, and what was being
 * built. */
static f8_status refuse(f8_build *b, f8_ref r, const char *what, const f8_diag *why)
{
    return f8_fail(b->diag, why->status, b->func->graph->loc[r], "%s of '%s' on %s: %s", what,
                   b->func->name, b->facts->name, why->text);
}

static f8_status check_attention(f8_build *b, f8_ref r, const f8_attention_desc *d)
{
    f8_diag why = {0};
    return f8_cuda_attention_supports(b->facts, d, &why) == F8_OK ? F8_OK
                                                                  : refuse(b, r, "attention", &why);
}

static bool attention_by_library(const f8_build *b, const f8_attention_desc *d, bool backward)
{
    f8_attention_algorithm a = b->options->attention;
    if (a == F8_ATTENTION_TABLE)
        a = f8_cuda_attention_choose(b->facts, d, backward);
    return a == F8_ATTENTION_CUDNN;
}

static f8_status library_attention(f8_build *b, f8_ref r, const f8_attention_desc *d, bool backward,
                                   f8_cudnn_attention_desc *out)
{
    f8_diag why = {0};
    if (f8_cuda_attention_by_cudnn(b->facts, d, backward, out, &why) != F8_OK)
        return refuse(b, r, "attention", &why);
    const int64_t bytes = f8_cudnn_attention_expected_workspace(b->facts->sm, out);
    if (bytes > b->plan->attention_workspace)
        b->plan->attention_workspace = bytes;
    return F8_OK;
}

static f8_status choose_gemm(f8_build *b, f8_ref r, f8_gemm_desc *d)
{
    const char *role = f8_attr_s(b->func->graph, r, F8_A_ROLE);
    f8_diag why = {0};
    d->algorithm = F8_GEMM_CUBLASLT;
    /* Scales finer than one for the tensor are chosen for accuracy, so fast accumulation would
     * defeat them; with blocks the library does not offer it. */
    d->fast_accumulate = f8_dtype_is_fp8(d->a) && f8_dtype_is_fp8(d->b) && role &&
                         !strcmp(role, "fprop") &&
                         f8_granularity_equal(d->scale_a, f8_per_tensor) &&
                         f8_granularity_equal(d->scale_b, f8_per_tensor);
    b->plan->gemm_workspace = (int64_t)(b->facts->sm >= 90 ? 32 : 4) << 20;
    if (f8_cublaslt_supports(b->facts, d, &why) == F8_OK)
        return F8_OK;
    const char *name = f8_attr_s(b->func->graph, r, F8_A_NAME);
    const char *what =
        name && *name ? f8_arena_printf(b->arena, "%s of '%s'", role, name) : "a matmul";
    return refuse(b, r, what ? what : "a matmul", &why);
}

static f8_status copy(f8_build *b, const f8_place *from, const f8_place *to,
                      const f8_copy_axes *axes, f8_copy_kernel *out)
{
    f8_copy_desc *d = F8_NEW(b->arena, f8_copy_desc);
    if (!d)
        return f8_build_memory(b);
    f8_cuda_copy_describe(axes, from->offset % ALIGN, to->offset % ALIGN, d, out);
    out->source.copy = d;
    out->source.text = f8_cuda_copy_text(b->arena, d);
    return F8_OK;
}

static uint32_t most_instances(const f8_kernel_source *u)
{
    switch (u->kind) {
    case F8_SOURCE_ROWS: return f8_cuda_rows_most_instances(u->kernel);
    case F8_SOURCE_COPY: return f8_cuda_copy_most_instances(u->copy);
    default: return 1;
    }
}

/* ---- steps ---- */

/* The integers of a launch: those of each instance, followed by the running total of tasks. */
static int64_t fill_ints(const f8_build_launch *l, const int64_t *from, int64_t own_tasks,
                         int64_t *to)
{
    int64_t total = 0;
    for (uint32_t i = 0; i < l->n_instances; i++) {
        memcpy(to, from + i * l->n_ints, l->n_ints * sizeof *to);
        to += l->n_ints;
        total += own_tasks ? own_tasks : l->n_tasks[i];
        *to++ = total;
    }
    return total;
}

/* Whatever moved an argument since its kernel was chosen has kept its alignment. */
static f8_status check_aligned(f8_build *b, const f8_build_launch *l, const f8_step *s,
                               const int64_t *ints)
{
    const f8_kernel_source *u = &b->source[l->source];
    if (u->kind != F8_SOURCE_ROWS || !u->kernel->aligned)
        return F8_OK;
    for (uint32_t i = 0; i < l->n_instances; i++)
        if (!f8_cuda_rows_are_aligned(b->facts, u->kernel, s->arg + l->first_arg + i * l->n_args,
                                      ints + l->first_int + i * l->n_ints))
            return f8_fail(b->diag, F8_ERR_INTERNAL, u->loc,
                           "kernel '%s': a launch for aligned memory alone got other memory",
                           u->name);
    return F8_OK;
}

static f8_status fill_phase(f8_build *b, const f8_build_launch *l, const f8_cuda_code *code,
                            int part, const int64_t *from, f8_step *s)
{
    const f8_cuda_launch *kernel = &code->parts.launch[part];
    f8_step_phase *p = &s->phase[s->n_phases++];
    if (kernel->n_args != l->n_args || kernel->n_ints != l->n_ints)
        return f8_fail(b->diag, F8_ERR_INTERNAL, F8_NOWHERE,
                       "kernel '%s' takes %u + %u parameters, not %u + %u", kernel->symbol,
                       kernel->n_args, kernel->n_ints, l->n_args, l->n_ints);
    p->first_arg = l->first_arg;
    p->first_int = s->n_ints;
    p->n_tasks = fill_ints(l, from + l->first_int, code->parts.tasks[part], s->ints + s->n_ints);
    s->n_ints += l->n_instances * (l->n_ints + 1);
    p->launch = (f8_launch){.symbol = f8_arena_strdup(b->arena, kernel->symbol),
                            .image = code->image,
                            .threads = kernel->threads,
                            .shared = kernel->shared,
                            .n_instances = l->n_instances,
                            .n_args = l->n_args,
                            .n_ints = l->n_ints + 1,
                            .multi = code->multi,
                            .counts = l->tail_args > 0,
                            .max_blocks = kernel->max_blocks};
    p->choice = l->choice;
    p->bytes = l->bytes / code->parts.n;
    return F8_OK;
}

static f8_status finish(f8_build *b, f8_step *s, const f8_step_builder *builder)
{
    uint32_t n_phases = 0, n_ints = 0;
    for (uint32_t i = 0; i < builder->n_launches; i++) {
        const f8_build_launch *l = &builder->launch[i];
        const uint32_t n = (uint32_t)b->source[l->source].cuda[l->n_instances > 1]->parts.n;
        n_phases += n;
        n_ints += n * l->n_instances * (l->n_ints + 1);
    }
    const int64_t *from = s->ints;
    s->phase = F8_NEW_ARRAY(b->arena, f8_step_phase, n_phases);
    s->ints = F8_NEW_ARRAY(b->arena, int64_t, n_ints);
    if (!s->phase || !s->ints)
        return f8_build_memory(b);
    s->n_ints = 0;
    for (uint32_t i = 0; i < builder->n_launches; i++) {
        const f8_build_launch *l = &builder->launch[i];
        const f8_cuda_code *code = b->source[l->source].cuda[l->n_instances > 1];
        F8_TRY(check_aligned(b, l, s, from));
        for (int part = 0; part < code->parts.n; part++)
            F8_TRY(fill_phase(b, l, code, part, from, s));
    }
    return F8_OK;
}

/* ---- statistics ---- */

static void fill_kernel(const f8_build *b, const f8_cuda_code *code, int part, f8_build_kernel *k)
{
    const f8_kernel_source *u = &b->source[code->source];
    const f8_cuda_launch *l = &code->parts.launch[part];
    *k = (f8_build_kernel){.name = u->name,
                           .text = u->text,
                           .hash = u->hash,
                           .launches = code->launches,
                           .seconds = code->seconds / code->parts.n,
                           .cuda = code->text,
                           .symbol = l->symbol,
                           .image = code->image,
                           .threads = l->threads,
                           .shared = l->shared,
                           .bulk = l->bulk,
                           .multi = code->multi};
    if (code->image < b->plan->n_images)
        k->reported = f8_cuda_report_read(b->image[code->image].log, l->symbol, &k->report);
}

static f8_status fill_stats(f8_build *b, f8_build_stats *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n_sources; i++)
        for (int form = 0; form < 2; form++)
            n += b->source[i].cuda[form] ? (uint32_t)b->source[i].cuda[form]->parts.n : 0;
    s->kernel = F8_NEW_ARRAY(b->arena, f8_build_kernel, n + 1);
    if (!s->kernel)
        return f8_build_memory(b);
    for (uint32_t i = 0; i < b->n_sources; i++)
        for (int form = 0; form < 2; form++)
            for (int part = 0; b->source[i].cuda[form] && part < b->source[i].cuda[form]->parts.n;
                 part++)
                fill_kernel(b, b->source[i].cuda[form], part, &s->kernel[s->n_kernels++]);
    s->image = b->image;
    s->n_images = b->n_images;
    for (uint32_t i = 0; i < b->plan->n_images; i++)
        s->code_bytes += b->plan->image[i].size;
    return F8_OK;
}

const f8_build_target f8_build_cuda = {
    .split_phases = true,
    .begin = begin,
    .rows_tasks = rows_tasks,
    .scatter_tasks = scatter_tasks,
    .check_attention = check_attention,
    .attention_by_library = attention_by_library,
    .library_attention = library_attention,
    .attention_workspace = f8_cuda_attention_workspace,
    .gemm = choose_gemm,
    .copy = copy,
    .check_steps = f8_cuda_check_steps,
    .most_instances = most_instances,
    .is_aligned = is_aligned,
    .takes_tail = f8_cuda_rows_takes_tail,
    .compile = f8_cuda_images,
    .finish = finish,
    .fill_stats = fill_stats,
};
