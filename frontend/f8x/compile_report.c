/* Compile reports: see compile_report.h. */
#include "frontend/f8x/compile_report.h"

#include "codegen/cuda/text.h"
#include "passes/unit/cost.h"

/* ---- what was decided ---- */

static void keep_decisions(const f8_unit *u, f8_arena *arena, f8_compile_report *t)
{
    t->decision = F8_NEW_ARRAY(arena, f8_decision, u->n_decisions);
    for (; t->decision && t->n_decisions < u->n_decisions; t->n_decisions++) {
        f8_decision d = u->decision[t->n_decisions];
        d.linear = f8_arena_strdup(arena, d.linear);
        d.role = f8_arena_strdup(arena, d.role);
        d.a = f8_arena_strdup(arena, d.a);
        d.b = f8_arena_strdup(arena, d.b);
        d.scaling = f8_arena_strdup(arena, d.scaling);
        d.reason = f8_arena_strdup(arena, d.reason);
        t->decision[t->n_decisions] = d;
    }
}

static void keep_elements(const f8_unit *u, f8_arena *arena, f8_compile_report *t)
{
    t->elements = F8_NEW_ARRAY(arena, f8_elements, u->n_elements);
    for (; t->elements && t->n_elements < u->n_elements; t->n_elements++) {
        const f8_elements *from = &u->elements[t->n_elements];
        const char **name = F8_NEW_ARRAY(arena, const char *, (size_t)from->n);
        f8_recipe *recipe = F8_NEW_ARRAY(arena, f8_recipe, (size_t)from->n);
        bool *is_param = F8_NEW_ARRAY(arena, bool, (size_t)from->n);
        f8_element_alias *alias = F8_NEW_ARRAY(arena, f8_element_alias, (size_t)from->n_aliases);
        for (int64_t i = 0; name && recipe && is_param && i < from->n; i++) {
            name[i] = f8_arena_strdup(arena, from->name[i]);
            recipe[i] = from->recipe[i]; /* its name is one of the table's */
            is_param[i] = from->is_param[i];
        }
        for (int64_t i = 0; alias && i < from->n_aliases; i++)
            alias[i] = (f8_element_alias){from->alias[i].element,
                                          f8_arena_strdup(arena, from->alias[i].name)};
        t->elements[t->n_elements] =
            (f8_elements){from->var, from->n, name, recipe, is_param, alias, from->n_aliases};
    }
}

static void keep_stored(const f8_unit *u, f8_arena *arena, f8_compile_report *t)
{
    t->stored = F8_NEW_ARRAY(arena, f8_stored, u->n_stored);
    for (; t->stored && t->n_stored < u->n_stored; t->n_stored++) {
        f8_stored s = u->stored[t->n_stored];
        s.operand = f8_arena_strdup(arena, s.operand);
        t->stored[t->n_stored] = s; /* the recipe's name is one of the table's */
    }
}

/* The names, then NULL. */
static const char *const *keep_names(f8_arena *arena, const char *const *name, size_t n)
{
    const char **own = F8_NEW_ARRAY(arena, const char *, n + 1);
    for (size_t i = 0; own && i < n; i++)
        own[i] = f8_arena_strdup(arena, name[i]);
    if (own)
        own[n] = NULL;
    return own;
}

static void keep_watched(const f8_unit *u, f8_arena *arena, f8_compile_report *t)
{
    t->watched = F8_NEW_ARRAY(arena, f8_watched, u->n_watched);
    for (; t->watched && t->n_watched < u->n_watched; t->n_watched++) {
        f8_watched w = u->watched[t->n_watched];
        w.name = f8_arena_strdup(arena, w.name);
        w.linear = f8_arena_strdup(arena, w.linear);
        w.alias = keep_names(arena, w.alias, w.n_aliases);
        t->watched[t->n_watched] = w; /* the recipe's name is one of the table's */
    }
}

static void keep_times(const f8_unit *u, f8_arena *arena, f8_compile_report *t)
{
    t->time = F8_NEW_ARRAY(arena, f8_pass_time, u->n_times);
    for (; t->time && t->n_times < u->n_times; t->n_times++) {
        t->time[t->n_times] = u->time[t->n_times];
        t->time[t->n_times].name = f8_arena_strdup(arena, u->time[t->n_times].name);
    }
}

/* ---- memory ---- */

static void keep_report(f8_arena *arena, f8_memory_report *r)
{
    r->at = f8_arena_strdup(arena, r->at);
    for (uint32_t i = 0; i < r->n_tensors; i++) {
        f8_memory_tensor *tensor = &r->tensor[i];
        tensor->name = f8_arena_strdup(arena, tensor->name);
        tensor->made = f8_arena_strdup(arena, tensor->made);
        tensor->read = f8_arena_strdup(arena, tensor->read);
    }
}

static f8_status keep_funcs(const f8_unit *u, f8_arena *arena, f8_compile_report *t)
{
    const f8_module *m = u->module;
    f8_progress_phase phase = f8_progress_begin(u->options.progress, "report", (int64_t)m->n_funcs);
    t->func = F8_NEW_ARRAY(arena, f8_compile_report_func, m->n_funcs);
    F8_TRY(f8_arena_status(arena, u->diag));
    for (size_t i = 0; i < m->n_funcs; i++) {
        const f8_func *f = &m->func[i];
        F8_TRY(f8_progress_at(&phase, (int64_t)i, f->name, u->diag));
        if (!f->lowered)
            continue; /* nor is it in the plan */
        f8_compile_report_func *to = &t->func[t->n_funcs++];
        F8_TRY(f8_memory_report_make(u, f, arena, &to->memory));
        keep_report(arena, &to->memory);
        to->positions = f->lowered->n_groups;
        to->arena_bytes = f->lowered->arena_bytes;
        for (uint32_t k = 0; k < f->lowered->n_groups; k++)
            to->seconds += f->lowered->group[k].seconds; /* f8_cost_note */
    }
    F8_TRY(f8_arena_status(arena, u->diag));
    return f8_progress_at(&phase, phase.total, "", u->diag);
}

/* ---- code ---- */

static void keep_kernels(const f8_build_stats *stats, f8_arena *arena, f8_compile_report *t)
{
    t->kernel = F8_NEW_ARRAY(arena, f8_build_kernel, stats->n_kernels);
    for (; t->kernel && t->n_kernels < stats->n_kernels; t->n_kernels++) {
        f8_build_kernel k = stats->kernel[t->n_kernels];
        k.name = f8_arena_strdup(arena, k.name);
        k.symbol = f8_arena_strdup(arena, k.symbol);
        k.text = k.cuda = NULL;
        t->kernel[t->n_kernels] = k;
    }
}

static void keep_images(const f8_build_stats *stats, f8_arena *arena, f8_compile_report *t)
{
    t->image = F8_NEW_ARRAY(arena, f8_build_image, stats->n_images);
    for (; t->image && t->n_images < stats->n_images; t->n_images++) {
        const f8_build_image *from = &stats->image[t->n_images];
        t->image[t->n_images] = (f8_build_image){.llvm = f8_arena_strdup(arena, from->llvm),
                                                 .cuda = f8_cuda_text_whole(arena, from->cuda),
                                                 .ptx = f8_arena_strdup(arena, from->ptx),
                                                 .log = f8_arena_strdup(arena, from->log)};
    }
}

f8_status f8_compile_report_make(const f8_unit *u, const f8_build_stats *stats, bool images,
                                 f8_arena *arena, f8_compile_report *out)
{
    *out = (f8_compile_report){.remat = u->remat, .linears = u->linears, .fp8_gemms = u->fp8_gemms};
    keep_decisions(u, arena, out);
    keep_elements(u, arena, out);
    keep_stored(u, arena, out);
    keep_watched(u, arena, out);
    keep_times(u, arena, out);
    F8_TRY(f8_arena_status(arena, u->diag));
    if (u->options.target->kind != F8_TARGET_REFERENCE)
        F8_TRY(keep_funcs(u, arena, out));
    if (stats && u->options.target->kind == F8_TARGET_CUDA)
        keep_kernels(stats, arena, out);
    if (stats && images)
        keep_images(stats, arena, out);
    return f8_arena_status(arena, u->diag);
}

const f8_elements *f8_elements_of(const f8_compile_report *t, int variable)
{
    for (size_t i = 0; i < t->n_elements; i++)
        if (t->elements[i].var == variable)
            return &t->elements[i];
    return NULL;
}
