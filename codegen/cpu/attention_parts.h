/* What the forward and backward attention emitters share; for cpu_attention*.c only. */
#ifndef F8_CODEGEN_CPU_ATTENTION_PARTS_H
#define F8_CODEGEN_CPU_ATTENTION_PARTS_H

#include "codegen/cpu/attention.h"
#include "codegen/cpu/microkernel.h"

enum {
    F8_ATT_BLOCK = F8_MK_BLOCK,
    F8_ATT_SUPER = 4,  /* blocks of queries (or keys) one task takes */
    F8_ATT_GROUPS = F8_MK_BLOCK / F8_MK_LANES, /* vectors across a block */
};

/* The products, by what they are for. Scores are kept transposed, s[key][query]: softmax is then
 * vertical, and only q (and do) need transposing, once for a block of queries. */
typedef enum f8_att_product {
    F8_ATT_SCORES,   /* s[key][query] = k[key][:] qt[:][query], and v with do transposed; called
                        through f8_att_scores, which leaves out what no query sees */
    F8_ATT_OUT,      /* o[query][:] = o[query][:] * alpha[query] + s[:][query] v */
    F8_ATT_OUT_DIAG, /*   keys <= query */
    F8_ATT_DQ,       /* dq[query][:] += ds[:][query] k */
    F8_ATT_DQ_DIAG,  /*   keys <= query */
    F8_ATT_DKV,      /* dk[key][:] += ds[key][:] q, and dv with p and do */
    F8_ATT_DKV_DIAG, /*   queries >= key */
    F8_ATT_PRODUCTS,
} f8_att_product;

typedef struct f8_att {
    f8_llvm_module *m;
    const f8_attention_desc *desc;
    const char *symbol;
    int64_t blocks, padded;     /* blocks of T; D rounded up to whole vectors */
    LLVMTypeRef element;        /* of dtype, as bits */
    int64_t scratch;            /* bytes given out so far */
    LLVMValueRef product[F8_ATT_PRODUCTS][5]; /* by width in vectors */
    LLVMValueRef transpose, scores[2]; /* scores: [on the diagonal] */
} f8_att;

/* Build the functions for a product, before any phase is entered. */
void f8_att_make_product(f8_att *a, f8_att_product kind);
void f8_att_make_scores(f8_att *a);
LLVMValueRef f8_att_make_pack(f8_att *a, const char *name, int64_t stride);
LLVMValueRef f8_att_make_store(f8_att *a, const char *name, int64_t stride);

/* s[key][query] of rows k and transposed q, where key < keys and query < queries, rounded up to
 * whole tiles and vectors. On the diagonal, vectors of queries that all come before a key are
 * left as they were. */
void f8_att_scores(f8_att *a, bool diag, LLVMValueRef s, LLVMValueRef k, LLVMValueRef qt,
                   LLVMValueRef keys, LLVMValueRef queries);

/* Call a product (not F8_ATT_SCORES) over all padded columns. */
void f8_att_call(f8_att *a, f8_att_product kind, LLVMValueRef c, LLVMValueRef left,
                 LLVMValueRef right, LLVMValueRef rows, LLVMValueRef depth, LLVMValueRef factor);

/* Room for `count` f32 in scratch: its byte offset. */
int64_t f8_att_room(f8_att *a, int64_t count);
LLVMValueRef f8_att_floats(f8_att *a, LLVMValueRef scratch, int64_t offset);
/* base + index * stride + offset, in f32. */
LLVMValueRef f8_att_slice(f8_att *a, LLVMValueRef base, LLVMValueRef index, int64_t stride,
                          int64_t offset);
/* A vector of f32 at base + offset, in f32. */
LLVMValueRef f8_att_load16(f8_att *a, LLVMValueRef base, int64_t offset);
void f8_att_store16(f8_att *a, LLVMValueRef value, LLVMValueRef base, int64_t offset);
void f8_att_fill(f8_att *a, LLVMValueRef at, LLVMValueRef count, float value);

/* Element (batch, token, head, 0) of a tensor. */
LLVMValueRef f8_att_token(f8_att *a, LLVMValueRef base, int64_t stride, LLVMValueRef batch,
                          LLVMValueRef token, LLVMValueRef head);
/* lse + (batch * H + head) * T + token */
LLVMValueRef f8_att_lse(f8_att *a, LLVMValueRef base, LLVMValueRef batch, LLVMValueRef head,
                        LLVMValueRef token);
/* Tokens in block i: min(48, T - 48 i), and where it starts. */
LLVMValueRef f8_att_count(f8_att *a, LLVMValueRef block);
LLVMValueRef f8_att_start(f8_att *a, LLVMValueRef block);

/* Queries 16 group .. +15 of a block on the diagonal that may see key `key`: key <= query <
 * count. */
LLVMValueRef f8_att_visible(f8_att *a, int group, LLVMValueRef key, LLVMValueRef count);

/* Integer shorthands. */
LLVMValueRef f8_att_mul(f8_att *a, LLVMValueRef x, int64_t y);
LLVMValueRef f8_att_add(f8_att *a, LLVMValueRef x, int64_t y);
LLVMValueRef f8_att_div(f8_att *a, LLVMValueRef x, int64_t y);
LLVMValueRef f8_att_rem(f8_att *a, LLVMValueRef x, int64_t y);

void f8_att_forward(f8_att *a, f8_cpu_phase *phases, int *n_phases);
void f8_att_backward(f8_att *a, f8_cpu_phase *phases, int *n_phases);
/* Tasks and scratch of the phases alone: `a` needs no module. */
void f8_att_forward_sizes(f8_att *a, f8_cpu_phase *phases, int *n_phases);
void f8_att_backward_sizes(f8_att *a, f8_cpu_phase *phases, int *n_phases);

#endif
