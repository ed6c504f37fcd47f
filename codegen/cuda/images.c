/* Kernels to CUDA C, texts to cubins: see build.h.
 *
 * Texts are printed in order, on one thread. A batch is a run of texts that are compiled as one
 * image; it is full when it reaches a certain length. Images come in the order of batches. So the
 * plan's bytes depend neither on the number of threads, nor on timing, nor on which images the
 * cache had. The kernels of one batch share the functions they need. A kernel's symbol has the hash
 * of its description: equal kernels have equal text in every plan. */
#include "codegen/cuda/build.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/cache/cached.h"
#include "codegen/cuda/copy.h"
#include "codegen/cuda/scatter.h"
#include "ir/base/clock.h"
#include "runtime/cuda/device.h"

/* NVRTC takes 0.06 s of CPU time for a text of one line. 20000 of these characters are what all row
 * kernels share (divide.cuh, rows.cuh), so a batch has about four row kernels. Where kernels are
 * compiled fast, reading what they share takes most of the time: those batches are longer. */
enum { BATCH_CHARACTERS = 40000, FAST_BATCH_CHARACTERS = 120000 };

/* The texts [begin, end) of one image, and the result of compiling it. */
typedef struct batch {
    uint32_t begin, end;
    f8_text text;
    f8_nvrtc_result result;
    double seconds;
} batch;

typedef struct compilation {
    f8_build *b;
    f8_cuda_code **code;
    uint32_t n_codes;
    batch *batch;
    uint32_t *order; /* the order in which batches are compiled: what takes longest comes first */
    uint32_t n_batches;
    const char *compiler; /* the compiler's version and options, as f8_cuda_compiler gives them */
} compilation;

/* ---- texts ---- */

/* The kernel's name as a comment. Characters that could end it become spaces. */
static void add_comment(f8_text *t, const f8_kernel_source *u, bool multi)
{
    f8_text_add(t, "\n/* ");
    for (const char *s = u->name; *s; s++)
        f8_text_add(t, "%c", *s == '*' || *s == '/' || *s == '\\' || *s < ' ' ? ' ' : *s);
    f8_text_add(t, "%s */\n", multi ? ": many tensors" : "");
}

static f8_status emit_source(f8_build *b, const f8_kernel_source *u, f8_cuda_code *code,
                           const char *symbol, f8_text *t, f8_diag *d)
{
    code->parts.n = 1;
    switch (u->kind) {
    case F8_SOURCE_ROWS:
        return f8_cuda_rows_emit(t, b->facts, u->kernel, code->multi, symbol,
                                 &code->parts.launch[0], d);
    case F8_SOURCE_ATTENTION:
        F8_TRY(f8_cuda_attention_emit(t, b->facts, &u->attention, u->backward, symbol, &code->parts,
                                      d));
        for (int i = 0; i < code->parts.n;
             i++) /* tasks are sorted, the heaviest first: one block each */
            code->parts.launch[i].max_blocks = -1;
        return F8_OK;
    case F8_SOURCE_SCATTER:
        return f8_cuda_scatter_emit(t, u->dtype, symbol, &code->parts.launch[0], d);
    case F8_SOURCE_COPY:
        f8_cuda_copy_emit(t, u->copy, code->multi, symbol, &code->parts.launch[0]);
        return F8_OK;
    }
    return f8_fail(d, F8_ERR_INTERNAL, F8_NOWHERE, "a kernel of an unknown kind");
}

static void make_symbol(const f8_kernel_source *u, bool multi, char *to, size_t room)
{
    static const char *const kinds[] = {[F8_SOURCE_ROWS] = "rows",
                                        [F8_SOURCE_ATTENTION] = "attention",
                                        [F8_SOURCE_SCATTER] = "scatter",
                                        [F8_SOURCE_COPY] = "copy"};
    snprintf(to, room, "%s_%016" PRIx64 "%s", kinds[u->kind], u->hash, multi ? "_m" : "");
}

static uint32_t lines_of(const char *s)
{
    uint32_t n = 0;
    for (; s && *s; s++)
        n += *s == '\n';
    return n;
}

/* Prints a kernel at the end of its batch's text. */
static f8_status emit(f8_build *b, f8_cuda_code *code, f8_text *t)
{
    const f8_kernel_source *u = &b->source[code->source];
    f8_diag why = {0};
    char symbol[40];
    make_symbol(u, code->multi, symbol, sizeof symbol);
    if (!t->n)
        f8_cuda_text_begin(t, b->options->dependent_launch);
    code->begin = t->n;
    code->line = lines_of(t->s) + 1;
    add_comment(t, u, code->multi);
    const f8_status s = emit_source(b, u, code, symbol, t, &why);
    if (s != F8_OK)
        return f8_fail(b->diag, s, u->loc, "kernel '%s': %s", u->name, why.text);
    F8_TRY(f8_build_memory(b));
    code->end = t->n;
    code->lines = lines_of(t->s + code->begin);
    b->plan->n_kernels += (uint32_t)code->parts.n;
    return F8_OK;
}

static bool is_long(const compilation *p, uint32_t code)
{
    return p->b->source[p->code[code]->source].kind == F8_SOURCE_ATTENTION;
}

/* With PTX all texts are one image, which is compiled as always. */
static bool is_fast(const compilation *p, uint32_t code)
{
    return !p->b->options->want_texts &&
           f8_build_compiles_fast(&p->b->source[p->code[code]->source]);
}

/* Whether batch `a` ends before text `next`. Attention takes the compiler a second or two, so it is
 * a batch of its own. */
static bool is_full(const compilation *p, const batch *a, uint32_t next)
{
    const f8_build_options *o = p->b->options;
    if (next == p->n_codes)
        return true;
    if (o->want_texts)
        return false;
    if (is_long(p, next) || is_long(p, next - 1) || is_fast(p, next) != is_fast(p, next - 1))
        return true;
    if (o->batch)
        return a->end - a->begin >= o->batch;
    return a->text.n >= (is_fast(p, next - 1) ? FAST_BATCH_CHARACTERS : BATCH_CHARACTERS);
}

/* Attention first, then the long batches of what is compiled fast, then the others. */
static void order_batches(compilation *p)
{
    uint32_t n = 0;
    for (int turn = 0; turn < 3; turn++)
        for (uint32_t i = 0; i < p->n_batches; i++) {
            const uint32_t first = p->batch[i].begin;
            if (turn == (is_long(p, first) ? 0 : is_fast(p, first) ? 1 : 2))
                p->order[n++] = i;
        }
}

static f8_status emit_all(compilation *p)
{
    f8_build *b = p->b;
    for (uint32_t i = 0; i < p->n_codes; i++) {
        batch *a = &p->batch[p->n_batches];
        if (a->end == 0)
            *a = (batch){.begin = i, .end = i, .text = {.arena = b->arena}};
        p->code[i]->image = p->n_batches;
        F8_TRY(emit(b, p->code[i], &a->text));
        a->end = i + 1;
        if (is_full(p, a, i + 1))
            p->n_batches++;
    }
    order_batches(p);
    return F8_OK;
}

/* Lists the forms that steps launch and how often, in order of kernels. */
static f8_status list_codes(compilation *p)
{
    f8_build *b = p->b;
    p->code = F8_NEW_ARRAY(b->arena, f8_cuda_code *, 2 * b->n_sources + 1);
    p->batch = F8_NEW_ARRAY(b->arena, batch, 2 * b->n_sources + 1);
    p->order = F8_NEW_ARRAY(b->arena, uint32_t, 2 * b->n_sources + 1);
    f8_cuda_code *code = F8_NEW_ARRAY(b->arena, f8_cuda_code, 2 * b->n_sources + 1);
    if (!p->code || !p->batch || !p->order || !code)
        return f8_build_memory(b);
    for (uint32_t f = 0; f < b->plan->n_funcs; f++)
        for (uint32_t i = 0; i < b->plan->func[f].n_steps; i++)
            for (uint32_t k = 0; k < b->builders[f][i].n_launches; k++) {
                const f8_build_launch *l = &b->builders[f][i].launch[k];
                const bool multi = l->n_instances > 1;
                f8_cuda_code *c = &code[2 * l->source + multi];
                *c = (f8_cuda_code){
                    .source = l->source, .multi = multi, .launches = c->launches + 1};
                b->source[l->source].cuda[multi] = c;
            }
    for (uint32_t i = 0; i < 2 * b->n_sources; i++)
        if (code[i].launches)
            p->code[p->n_codes++] = &code[i];
    return F8_OK;
}

/* ---- compiling ---- */

static const char *batch_name(void *user, uint32_t index, uint32_t *n_kernels)
{
    const compilation *p = user;
    const batch *a = &p->batch[index];
    *n_kernels = 0;
    for (uint32_t i = a->begin; i < a->end; i++)
        *n_kernels += (uint32_t)p->code[i]->parts.n;
    return p->b->source[p->code[a->begin]->source].name;
}

/* The same name for every text: the name is part of the compiled code. */
static const char text_name[] = "fp8c.cu";

static f8_status compile_batch(void *user, uint32_t index, f8_arena *arena, f8_diag *d)
{
    const compilation *p = user;
    const f8_build *b = p->b;
    batch *a = &p->batch[index];
    const double start = f8_seconds_now();
    const f8_status s = f8_cuda_compile(
        b->options->cuda, a->text.s, text_name, f8_cuda_header, "fp8c.cuh", b->facts->name,
        (f8_nvrtc_options){.want_ptx = b->options->want_texts, .fast = is_fast(p, a->begin)}, arena,
        &a->result, d);
    a->seconds = f8_seconds_now() - start;
    return s;
}

/* The kernel to blame: the one whose text has the place of the compiler's first error, or the one
 * that ptxas names. */
static const f8_cuda_code *culprit(const compilation *p, const batch *a, const char *log)
{
    const char *error = log ? strstr(log, "error") : NULL;
    if (!error)
        return p->code[a->begin];
    const char *line = error;
    while (line > log && line[-1] != '\n')
        line--;
    const char *open = strchr(line, '(');
    const long at = open && open < error && !strncmp(line, text_name, sizeof text_name - 1)
                        ? strtol(open + 1, NULL, 10)
                        : 0;
    for (uint32_t i = a->begin; i < a->end; i++)
        if (at >= p->code[i]->line && at < (long)(p->code[i]->line + p->code[i]->lines))
            return p->code[i];
    for (uint32_t i = a->end; i-- > a->begin;)
        if (strstr(line, p->code[i]->parts.launch[0].symbol))
            return p->code[i];
    return p->code[a->begin];
}

static f8_status failure(const compilation *p, uint32_t index, const f8_diag *why)
{
    f8_build *b = p->b;
    const batch *a = &p->batch[index];
    if (why->status != F8_ERR_INTERNAL)
        return f8_fail(b->diag, why->status, why->loc, "%s", why->text);
    const f8_cuda_code *code = culprit(p, a, a->result.log);
    const f8_kernel_source *u = &b->source[code->source];
    return f8_fail(b->diag, why->status, u->loc, "kernel '%s' (%s): %s", u->name,
                   code->parts.launch[0].symbol, why->text);
}

static f8_status take_image(f8_build *b, const batch *a, f8_image *to, f8_build_image *info)
{
    to->size = (int64_t)a->result.cubin_size;
    to->bytes = f8_arena_array(b->arena, a->result.cubin_size, 1);
    info->log = f8_arena_strdup(b->arena, a->result.log ? a->result.log : "");
    if (a->result.ptx)
        info->ptx = f8_arena_strdup(b->arena, a->result.ptx);
    if (!to->bytes || !info->log || (a->result.ptx && !info->ptx))
        return f8_build_memory(b);
    memcpy(to->bytes, a->result.cubin, a->result.cubin_size);
    return F8_OK;
}

static f8_status take_images(compilation *p)
{
    f8_build *b = p->b;
    b->plan->image = F8_NEW_ARRAY(b->arena, f8_image, p->n_batches);
    if (!b->plan->image)
        return f8_build_memory(b);
    for (uint32_t i = 0; i < p->n_batches; i++) {
        F8_TRY(take_image(b, &p->batch[i], &b->plan->image[i], &b->image[i]));
        /* They were compiled as one text: each counts an equal part of the time. */
        for (uint32_t k = p->batch[i].begin; k < p->batch[i].end; k++)
            p->code[k]->seconds = p->batch[i].seconds / (p->batch[i].end - p->batch[i].begin);
    }
    b->plan->n_images = p->n_batches;
    return F8_OK;
}

/* ---- in the cache ---- */

/* The cache's key of an image: all that the compiler is given, and which compiler it is. */
static const char *image_key(void *user, uint32_t i, f8_arena *arena)
{
    const compilation *p = user;
    char header[33];
    f8_hash_text(f8_hash_bytes(f8_cuda_header, strlen(f8_cuda_header)), header);
    return f8_arena_printf(arena, "cuda image\n%sarchitecture %s\nptx %d\nfast %d\nheader %s\n%s",
                           p->compiler, p->b->facts->name, p->b->options->want_texts,
                           is_fast(p, p->batch[i].begin), header, p->batch[i].text.s);
}

/* The value of an entry in the cache: this struct, then the cubin, the log and the PTX; the last
 * two end with NUL. */
typedef struct kept {
    uint64_t cubin, log, ptx; /* bytes; ptx 0: PTX was not asked for */
} kept;

static bool take_batch(void *user, uint32_t i, const f8_cache_value *value)
{
    const compilation *p = user;
    const uint8_t *bytes = value->bytes;
    kept k;
    if (value->size < sizeof k)
        return false;
    memcpy(&k, bytes, sizeof k);
    const uint64_t rest = value->size - sizeof k;
    if (!k.cubin || k.cubin > rest || !k.log || k.log > rest - k.cubin ||
        k.ptx != rest - k.cubin - k.log || !k.ptx != !p->b->options->want_texts)
        return false;
    const char *log = (const char *)bytes + sizeof k + k.cubin, *ptx = k.ptx ? log + k.log : NULL;
    if (log[k.log - 1] || (ptx && ptx[k.ptx - 1]))
        return false;
    p->batch[i].result = (f8_nvrtc_result){.cubin = (uint8_t *)bytes + sizeof k,
                                           .cubin_size = k.cubin,
                                           .log = (char *)log,
                                           .ptx = (char *)ptx};
    return true;
}

static f8_cache_value give_batch(void *user, uint32_t i, f8_arena *arena)
{
    const compilation *p = user;
    const f8_nvrtc_result *r = &p->batch[i].result;
    const char *log = r->log ? r->log : "";
    const kept k = {r->cubin_size, strlen(log) + 1, r->ptx ? strlen(r->ptx) + 1 : 0};
    const size_t size = sizeof k + k.cubin + k.log + k.ptx;
    uint8_t *bytes = f8_arena_array(arena, size, 1), *to = bytes;
    if (!bytes)
        return (f8_cache_value){0};
    memcpy(to, &k, sizeof k);
    memcpy(to += sizeof k, r->cubin, k.cubin);
    memcpy(to += k.cubin, log, k.log);
    if (k.ptx)
        memcpy(to + k.log, r->ptx, k.ptx);
    return (f8_cache_value){bytes, size};
}

static const f8_build_cached_calls calls = {.name = batch_name,
                                            .key = image_key,
                                            .take = take_batch,
                                            .make = compile_batch,
                                            .give = give_batch};

/* ---- all of them ---- */

static f8_status make_images(compilation *p, f8_build_cached *pieces)
{
    f8_build *b = p->b;
    f8_diag why = {0};
    uint32_t failed = 0;
    F8_TRY(f8_build_cached_find(pieces, b->options, b->diag));
    if (f8_build_cached_make(pieces, &failed, &why) != F8_OK)
        return failure(p, failed, &why);
    if (b->options->stats)
        b->options->stats->n_cached = f8_build_cached_found(pieces);
    return take_images(p);
}

static f8_status compile_all(compilation *p)
{
    f8_build *b = p->b;
    F8_TRY(
        f8_cuda_compiler(b->options->cuda, b->arena, &p->compiler, b->diag)); /* before threads */
    f8_build_cached pieces = {.calls = &calls,
                              .user = p,
                              .cache = b->options->cache,
                              .n = p->n_batches,
                              .order = p->order};
    const f8_status s = make_images(p, &pieces);
    f8_build_cached_end(&pieces);
    return s;
}

/* Keeps the texts of the images, for listings. */
static f8_status keep_texts(compilation *p)
{
    f8_build *b = p->b;
    b->n_images = p->n_batches;
    b->image = F8_NEW_ARRAY(b->arena, f8_build_image, p->n_batches);
    if (!b->image)
        return f8_build_memory(b);
    for (uint32_t i = 0; i < p->n_batches; i++) {
        char file[40];
        snprintf(file, sizeof file, "image_%03u.cu", i);
        b->image[i].cuda = p->batch[i].text.s;
        const char *whole =
            b->options->dump ? f8_cuda_text_whole(b->arena, b->image[i].cuda) : NULL;
        if (whole)
            b->options->dump(b->options->dump_user, file, whole);
    }
    for (uint32_t i = 0; i < p->n_codes && b->options->stats; i++) {
        f8_cuda_code *c = p->code[i];
        c->text =
            f8_arena_strndup(b->arena, p->batch[c->image].text.s + c->begin, c->end - c->begin);
    }
    return f8_build_memory(b);
}

f8_status f8_cuda_images(f8_build *b)
{
    compilation p = {.b = b};
    const double start = f8_seconds_now();
    F8_TRY(list_codes(&p));
    F8_TRY(emit_all(&p));
    F8_TRY(keep_texts(&p));
    if (p.n_codes && !b->options->text_only)
        F8_TRY(compile_all(&p));
    if (b->options->stats)
        b->options->stats->compile = f8_seconds_now() - start;
    return F8_OK;
}
