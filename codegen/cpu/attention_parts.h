/* What the forward and backward emitters share; for attention.c, attention_grad.c and
 * attention_parts.c only. */
#ifndef F8_CODEGEN_CPU_ATTENTION_PARTS_H
#define F8_CODEGEN_CPU_ATTENTION_PARTS_H

#include "codegen/cpu/attention.h"
#include "codegen/cpu/microkernel.h"

enum {
    F8_ATT_BLOCK = F8_MK_BLOCK,
    F8_ATT_SUPER = 4,  /* blocks of queries (or keys) in one task */
    F8_ATT_GROUPS = F8_MK_BLOCK / F8_MK_LANES, /* vectors in one row of a block */
};

/* The products, by their purpose. Scores are kept transposed, s[key][query]: softmax then works
 * down the columns, and only q (and do) is transposed, once for each block of queries. */
typedef enum f8_att_product {
    /* s[key][query] = k[key][:] qt[:][query]; also v with do transposed. Called through
     * f8_att_scores, which leaves out what no query sees */
    F8_ATT_SCORES,
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
    /* numbers of blocks of T and of Tk; D rounded up to whole vectors */
    int64_t blocks, key_blocks, padded;
    LLVMTypeRef element;        /* dtype, as an integer of its bits */
    int64_t scratch;            /* bytes of scratch allocated so far */
    LLVMValueRef product[F8_ATT_PRODUCTS][5]; /* by width in vectors */
    LLVMValueRef transpose, scores[2], mask,
        drop; /* scores: [on the diagonal]; mask, drop: or NULL */
} f8_att;

/* Builds the functions of a product; called before a phase begins. */
void f8_att_make_product(f8_att *a, f8_att_product kind);
void f8_att_make_scores(f8_att *a);
LLVMValueRef f8_att_make_pack(f8_att *a, const char *name, int64_t stride);
LLVMValueRef f8_att_make_store(f8_att *a, const char *name, int64_t stride);

/* Computes s[key][query] from rows k and transposed q, for key < keys and query < queries, rounded
 * up to whole tiles and vectors. On the diagonal, vectors whose queries all come before a key are
 * not written. */
void f8_att_scores(f8_att *a, bool diag, LLVMValueRef s, LLVMValueRef k, LLVMValueRef qt,
                   LLVMValueRef keys, LLVMValueRef queries);

/* With a mask: s becomes scale * s + mask, or -Inf where a bool mask is false. `mask` is what
 * f8_att_mask_at gave. Lanes of no query keep what they are, or change: nobody reads them. Without a
 * mask nothing is emitted, and s stays to be scaled: f8_att_scale says by what. */
void f8_att_make_mask(f8_att *a);
void f8_att_mask(f8_att *a, LLVMValueRef s, LLVMValueRef mask, LLVMValueRef keys,
                 LLVMValueRef queries);
float f8_att_scale(const f8_att *a);
/* The mask's element (batch, head, first query, first key) of two blocks. */
LLVMValueRef f8_att_mask_at(f8_att *a, LLVMValueRef base, LLVMValueRef batch, LLVMValueRef head,
                            LLVMValueRef query_block, LLVMValueRef key_block);

/* With dropout: x[key][query] of two blocks becomes what dropout makes of it. `seed` is the
 * kernel's argument; the numbers of batch, head and blocks say where x is. Lanes of no query
 * change, too. Without dropout nothing is emitted. */
void f8_att_make_drop(f8_att *a);
void f8_att_drop(f8_att *a, LLVMValueRef x, LLVMValueRef seed, LLVMValueRef batch,
                 LLVMValueRef head, LLVMValueRef query_block, LLVMValueRef key_block);

/* Calls a product (not F8_ATT_SCORES) for all padded columns. */
void f8_att_call(f8_att *a, f8_att_product kind, LLVMValueRef c, LLVMValueRef left,
                 LLVMValueRef right, LLVMValueRef rows, LLVMValueRef depth, LLVMValueRef factor);

/* Allocates scratch for `count` f32. Returns its byte offset. */
int64_t f8_att_room(f8_att *a, int64_t count);
LLVMValueRef f8_att_floats(f8_att *a, LLVMValueRef scratch, int64_t offset);
/* base + index * stride + offset, in f32. */
LLVMValueRef f8_att_slice(f8_att *a, LLVMValueRef base, LLVMValueRef index, int64_t stride,
                          int64_t offset);
/* The vector of f32 at base + offset; offset counts f32. */
LLVMValueRef f8_att_load16(f8_att *a, LLVMValueRef base, int64_t offset);
void f8_att_store16(f8_att *a, LLVMValueRef value, LLVMValueRef base, int64_t offset);
void f8_att_fill(f8_att *a, LLVMValueRef at, LLVMValueRef count, float value);

/* The address of element (batch, token, head, 0) of a tensor of queries, or of keys. */
LLVMValueRef f8_att_token(f8_att *a, LLVMValueRef base, int64_t stride, LLVMValueRef batch,
                          LLVMValueRef token, LLVMValueRef head);
LLVMValueRef f8_att_key(f8_att *a, LLVMValueRef base, int64_t stride, LLVMValueRef batch,
                        LLVMValueRef key, LLVMValueRef head);
/* The first row of lse, of one head, at `token`. With an f32 mask that is top, and rest lies T
 * elements behind. */
LLVMValueRef f8_att_lse(f8_att *a, LLVMValueRef base, LLVMValueRef batch, LLVMValueRef head,
                        LLVMValueRef token);
/* The number of queries of block i, min(48, T - 48 i), of keys, and the first of either. */
LLVMValueRef f8_att_count(f8_att *a, LLVMValueRef block);
LLVMValueRef f8_att_key_count(f8_att *a, LLVMValueRef block);
LLVMValueRef f8_att_start(f8_att *a, LLVMValueRef block);

/* On the diagonal the triangles read rows of s up to a query's number: with fewer keys than queries
 * the rows from `keys` on, which hold nothing, become zeros. Else nothing is emitted. */
void f8_att_zero_rows(f8_att *a, LLVMValueRef s, LLVMValueRef keys, LLVMValueRef queries);

/* The queries 16 group .. 16 group + 15 of a block on the diagonal that may see key `key`: key <=
 * query < count. */
LLVMValueRef f8_att_visible(f8_att *a, int group, LLVMValueRef key, LLVMValueRef count);

/* Shorthands for integers. */
LLVMValueRef f8_att_mul(f8_att *a, LLVMValueRef x, int64_t y);
LLVMValueRef f8_att_add(f8_att *a, LLVMValueRef x, int64_t y);
LLVMValueRef f8_att_div(f8_att *a, LLVMValueRef x, int64_t y);
LLVMValueRef f8_att_rem(f8_att *a, LLVMValueRef x, int64_t y);

void f8_att_forward(f8_att *a, f8_cpu_phase *phases, int *n_phases);
void f8_att_backward(f8_att *a, f8_cpu_phase *phases, int *n_phases);
/* Only tasks and scratch of the phases; `a` needs no module. */
void f8_att_forward_sizes(f8_att *a, f8_cpu_phase *phases, int *n_phases);
void f8_att_backward_sizes(f8_att *a, f8_cpu_phase *phases, int *n_phases);

#endif
