/* What the files of fusion know of each node, and of the parts that kernels are made of. */
#ifndef F8_GROUPING_H
#define F8_GROUPING_H

#include "passes/unit/pass.h"
#include "passes/unit/rows.h"

typedef enum f8_group_role {
    F8_ROLE_CALC,   /* CONST, IOTA: computed wherever needed */
    F8_ROLE_MEMORY, /* lies in memory before the function starts */
    F8_ROLE_VIEW,   /* another value's storage under another type */
    F8_ROLE_ALIAS,  /* a RESHAPE that changes no matrix, of a value inside kernels */
    F8_ROLE_FUSED,  /* computed in row kernels */
    F8_ROLE_WHOLE,  /* a group of its own: GEMM, attention, scatter, copy */
    F8_ROLE_PROJECT /* a further result of a WHOLE */
} f8_group_role;

enum { F8_MAX_SOURCES = 6 };

/* What a later phase reads to have a value: the value itself (v[0] == it), or what it recomputes
 * the value from. */
typedef struct f8_sources {
    uint32_t n;
    f8_ref v[F8_MAX_SOURCES];
    double cost; /* bytes, written and read once */
    double work; /* operations per element, where it is recomputed */
} f8_sources;

/* When a value can be computed: `level` counts the GEMMs and other whole groups on the longest path
 * from the inputs, `stage` the barriers between phases since. */
typedef uint64_t f8_when;
#define F8_WHEN(level, stage) ((f8_when)(level) << 32 | (stage))
#define F8_LEVEL(when) ((uint32_t)((when) >> 32))

typedef struct f8_group_node {
    f8_group_role role;
    bool live;
    bool must;          /* something can only read it from memory */
    bool stored;        /* written to memory */
    bool joins;         /* a clone in the kernel of a sibling (sibling.c) */
    bool elementwise; /* recomputing it goes element by element, whatever the columns stand for */
    int64_t rows, cols; /* FUSED, ALIAS: the domain it is computed in */
    f8_when when;
    f8_sources sources;
    uint32_t part; /* FUSED, stored: the part that writes it, + 1 */
} f8_group_node;

/* The largest phase. Fusion changes no bit, so it may end anywhere, and compilers need more than
 * linear time for long functions: LLVM orders loads and stores in time that grows with the square
 * of their number. A phase of this size takes it one to two seconds. `work` is f8_op_work, summed
 * over nodes; a tanh has 27. `buffers` are the distinct values read and the values stored. The
 * largest phases of frontend/models/ have 2497 and 290 (mpt_1b under current: the scales of 96
 * weights). `words` are the parameters of a launch that the buffers take: an address each, and the
 * distance between rows if there are several. A launch on CUDA takes 511 (F8_MULTI_WORDS). Numbers
 * of rows, maps and tasks need some of them. */
enum { F8_PHASE_WORK = 2560, F8_PHASE_BUFFERS = 320, F8_PHASE_WORDS = 448 };

typedef struct f8_phase_size {
    double work;
    uint32_t buffers, words;
} f8_phase_size;

static inline f8_phase_size f8_phase_sum(f8_phase_size a, f8_phase_size b)
{
    return (f8_phase_size){a.work + b.work, a.buffers + b.buffers, a.words + b.words};
}

static inline bool f8_phase_fits(f8_phase_size a, f8_phase_size b)
{
    const f8_phase_size all = f8_phase_sum(a, b);
    return all.work <= F8_PHASE_WORK && all.buffers <= F8_PHASE_BUFFERS &&
           all.words <= F8_PHASE_WORDS;
}

/* A phase under construction: connected nodes of one domain and one moment. */
typedef struct f8_part {
    f8_when when;
    int64_t rows, cols;
    f8_ref *node, *out;
    uint32_t n_nodes, n_out;
    uint32_t piece; /* its number among the pieces of a part that was too large; 0 for others */
    f8_phase_size size;
    uint32_t kernel; /* index into the kernels */
    /* The number (f8_group_recomputed) of what it recomputes; 0: it also computes originals. */
    uint32_t recompute;
} f8_part;

typedef struct f8_kernel_plan {
    uint32_t *part;
    uint32_t n_parts;
    size_t part_room;
    uint32_t n_nodes;
    uint32_t recompute; /* as in its parts */
    f8_phase_size size; /* the sum over its parts */
} f8_kernel_plan;

typedef struct f8_grouping {
    f8_unit *unit;
    f8_func *func;
    f8_graph *g;
    bool share_kernels; /* as given to f8_group_function */
    f8_arena scratch;
    f8_view *view;
    f8_group_node *node;
    const f8_port **result; /* by ref: the port that it is the result of, for names */
    f8_part *part;
    size_t n_parts, part_room;
    f8_kernel_plan *kernel;
    size_t n_kernels, kernel_room;
} f8_grouping;

/* analyze.c: roles, what must be stored, domains, moments and sources. */
f8_status f8_group_analyze(f8_grouping *s);
/* The first moment at which all operands of r are available over r's domain. */
f8_when f8_group_operands_when(const f8_grouping *s, f8_ref r);
/* sink.c: the moment of each clone becomes the latest that its readers allow. */
f8_status f8_group_sink(f8_grouping *s);
/* sibling.c: by ref, the moment at which a clone would share a kernel with an original that reads
 * the same values; 0: none. Moves GEMMs that only results read to the moments of their operands. */
f8_status f8_group_siblings(f8_grouping *s, f8_when *sibling);
/* parts.c: what each moment's domain computes, split into connected parts of bounded size. */
f8_status f8_group_parts(f8_grouping *s);
/* kernels.c: parts into kernels, and everything into func->lowered. */
f8_status f8_group_kernels(f8_grouping *s);
f8_status f8_group_emit(f8_grouping *s);

/* Whether `n` can read operand `i` only from memory, whatever computes it. */
bool f8_group_memory_edge(const f8_grouping *s, f8_ref n, uint32_t i);

static inline bool f8_group_computed(const f8_group_node *n)
{
    return n->role == F8_ROLE_FUSED || n->role == F8_ROLE_ALIAS;
}

/* Values recomputed between the same two steps have one number, from 1; originals have 0. */
static inline uint32_t f8_group_recomputed(const f8_grouping *s, f8_ref r)
{
    return (uint32_t)(s->g->node[r].clone / F8_CLONE_RECOMPUTED); /* 30 bits */
}

/* Whether a FUSED node is only ever an output of its phase: a column sum, whose blocks are other
 * rows, and a transpose, whose rows are the phase's columns. */
static inline bool f8_group_output_only(const f8_grouping *s, f8_ref r)
{
    return f8_is_column_reduce(s->g, r) || s->g->node[r].op == F8_OP_TRANSPOSE;
}

/* Whether two values have the same domain and moment, so that one phase can compute both. */
static inline bool f8_group_same_home(const f8_grouping *s, f8_ref a, f8_ref b)
{
    const f8_group_node *x = &s->node[a], *y = &s->node[b];
    return x->when == y->when && x->rows == y->rows && x->cols == y->cols;
}

#endif
