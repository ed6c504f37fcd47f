/* Lenders: memory that is lent as DLPack tensors, and again once it was given back. See fp8c.h.
 *
 * Any thread may give a tensor back, whatever it is doing. So giving back takes no lock: it pushes
 * the block on a list. The thread that has the lender takes the whole list at its next call. */
#include <stdatomic.h>
#include <string.h>

#include "frontend/api.h"

enum {
    BLOCK_ALIGN = 64,
    AGE = 64, /* an idle block that so many calls did not need is freed */
};

typedef struct block {
    fp8c_managed_tensor tensor; /* first */
    struct block *next;
    fp8c_lender *lender;
    size_t place, bytes; /* bytes: of `memory` */
    int64_t shape[FP8C_MAX_RANK], strides[FP8C_MAX_RANK];
    _Alignas(BLOCK_ALIGN) char memory[];
} block;

/* The blocks for one tensor of a call. */
typedef struct place {
    _Atomic(block *) back; /* given back since the last call */
    block *idle;           /* those given back since the last call are put first */
    int n_idle, least;     /* least: the least n_idle of the calls since `calls` was 0 */
    int calls;
} place;

struct fp8c_lender {
    fp8c_context *ctx;
    atomic_size_t holders; /* the owner until its destroy call, and each tensor that is lent */
    atomic_bool ended;     /* the owner has destroyed it: what is given back is freed */
    int64_t bytes;         /* of all blocks, lent or idle; the owner's thread alone counts them */
    size_t n;              /* tensors of a call */
    place place[];
};

static size_t lender_size(size_t n)
{
    return sizeof(fp8c_lender) + n * sizeof(place);
}

static void release(fp8c_lender *l)
{
    if (atomic_fetch_sub(&l->holders, 1) == 1)
        f8_api_delete(l->ctx, l, lender_size(l->n));
}

/* ---- blocks ---- */

static void free_block(fp8c_lender *l, block *b)
{
    const f8_allocator *al = &l->ctx->allocator;
    al->free(al->user, b, sizeof *b + b->bytes);
}

static void free_list(fp8c_lender *l, block *b)
{
    for (block *next; b; b = next) {
        next = b->next;
        free_block(l, b);
    }
}

/* The deleter of a tensor. Once the block is on the list, another thread may lend it again: it is
 * not read any more. */
static void give_back(fp8c_managed_tensor *tensor)
{
    block *b = (block *)tensor;
    fp8c_lender *l = b->lender;
    place *p = &l->place[b->place];
    b->next = atomic_load(&p->back);
    while (!atomic_compare_exchange_weak(&p->back, &b->next, b))
        ;
    if (atomic_load(&l->ended))
        free_list(l, atomic_exchange(&p->back, NULL));
    release(l);
}

static void take_back(place *p)
{
    for (block *b = atomic_exchange(&p->back, NULL), *next; b; b = next) {
        next = b->next;
        b->next = p->idle;
        p->idle = b;
        p->n_idle++;
    }
}

/* Free the last `n` blocks of the idle list: those that have waited longest. */
static void free_idle(fp8c_lender *l, place *p, int n)
{
    block **link = &p->idle;
    for (int i = n; i < p->n_idle; i++)
        link = &(*link)->next;
    for (block *b = *link; b; b = b->next)
        l->bytes -= (int64_t)b->bytes;
    free_list(l, *link);
    *link = NULL;
    p->n_idle -= n;
}

static block *new_block(fp8c_lender *l, size_t at, size_t bytes, f8_diag *diag)
{
    const f8_allocator *al = &l->ctx->allocator;
    block *b = al->alloc(al->user, sizeof *b + bytes, BLOCK_ALIGN);
    if (!b) {
        f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: %zu bytes were wanted",
                sizeof *b + bytes);
        return NULL;
    }
    *b = (block){.lender = l, .place = at, .bytes = bytes};
    l->bytes += (int64_t)bytes;
    return b;
}

/* A block of at least so many bytes. An idle one that is too small, because a dim has grown, is
 * freed, and a new one takes its place. */
static block *take_block(fp8c_lender *l, size_t at, size_t bytes, f8_diag *diag)
{
    place *p = &l->place[at];
    take_back(p);
    block *b = p->idle;
    if (b) {
        p->idle = b->next;
        p->n_idle--;
    }
    if (b && b->bytes < bytes) {
        l->bytes -= (int64_t)b->bytes;
        free_block(l, b);
        b = NULL;
    }
    p->least = p->calls == 0 || p->n_idle < p->least ? p->n_idle : p->least;
    if (++p->calls == AGE) {
        free_idle(l, p, p->least);
        p->calls = 0;
    }
    return b ? b : new_block(l, at, bytes, diag);
}

/* ---- lending ---- */

static bool is_contiguous(const fp8c_tensor_view *v)
{
    int64_t stride = 1;
    for (int32_t i = v->ndim; v->strides && i-- > 0; stride *= v->shape[i])
        if (v->shape[i] > 1 && v->strides[i] != stride)
            return false;
    return true;
}

static f8_status bytes_of(const fp8c_tensor_view *v, size_t *bytes, f8_diag *diag)
{
    const int64_t bits = (int64_t)v->dtype.bits * v->dtype.lanes;
    int64_t n = bits / 8;
    bool possible =
        v->ndim >= 0 && v->ndim <= FP8C_MAX_RANK && v->device.type == 1 && n > 0 && bits % 8 == 0;
    for (int32_t i = 0; possible && i < v->ndim; i++)
        possible = v->shape[i] >= 0 && !__builtin_mul_overflow(n, v->shape[i], &n);
    if (!possible || n > INT64_MAX / 2 || (n > 0 && !is_contiguous(v)))
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "a lender lends contiguous tensors of at most %d axes in host memory, "
                       "whose elements are whole bytes",
                       FP8C_MAX_RANK);
    *bytes = (size_t)f8_aligned(n, BLOCK_ALIGN);
    return F8_OK;
}

/* The block as a tensor of v's dtype and shape. v->data becomes its address. */
static fp8c_managed_tensor *lend(block *b, fp8c_tensor_view *v)
{
    int64_t stride = 1;
    v->data = b->memory;
    v->byte_offset = 0;
    b->tensor = (fp8c_managed_tensor){.major = 1, .deleter = give_back, .tensor = *v};
    b->tensor.tensor.shape = b->shape;
    b->tensor.tensor.strides = b->strides;
    for (int32_t i = v->ndim; i-- > 0;) {
        b->shape[i] = v->shape[i];
        b->strides[i] = stride;
        (void)__builtin_mul_overflow(stride, v->shape[i], &stride); /* with no elements it may */
    }
    atomic_fetch_add_explicit(&b->lender->holders, 1, memory_order_relaxed);
    return &b->tensor;
}

fp8c_status fp8c_lender_lend(fp8c_lender *l, fp8c_tensor_view *const *views,
                             fp8c_managed_tensor **out)
{
    f8_diag diag = {0};
    size_t n = 0, bytes = 0;
    for (block *b; n < l->n && bytes_of(views[n], &bytes, &diag) == F8_OK; n++) {
        if (!(b = take_block(l, n, bytes, &diag)))
            break;
        out[n] = lend(b, views[n]);
    }
    while (diag.status != F8_OK && n-- > 0)
        give_back(out[n]);
    return f8_api_result(l->ctx, &diag, diag.status);
}

/* ---- life ---- */

fp8c_status fp8c_lender_create(fp8c_context *ctx, size_t n, fp8c_lender **out)
{
    f8_diag diag = {0};
    *out = NULL;
    fp8c_lender *l = n < SIZE_MAX / 2 / sizeof(place)
                         ? f8_api_new(ctx, lender_size(n), _Alignof(fp8c_lender), &diag)
                         : NULL;
    if (!l)
        return f8_api_result(ctx, &diag, diag.status == F8_OK ? F8_ERR_MEMORY : diag.status);
    l->ctx = ctx;
    l->n = n;
    atomic_store(&l->holders, 1);
    *out = l;
    return FP8C_OK;
}

int64_t fp8c_lender_bytes(fp8c_lender *l, int32_t trim)
{
    for (size_t i = 0; trim && i < l->n; i++) {
        take_back(&l->place[i]);
        free_idle(l, &l->place[i], l->place[i].n_idle);
    }
    return l->bytes;
}

void fp8c_lender_destroy(fp8c_lender *l)
{
    if (!l)
        return;
    atomic_store(&l->ended, true); /* before lists are taken: give_back frees what comes later */
    fp8c_lender_bytes(l, true);
    release(l);
}
