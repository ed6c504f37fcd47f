/* Attention by cuDNN, which a plan may choose in place of our own kernels (codegen/cuda/emit.h).
 *
 * A problem's graph (cudnn_graph.h) is given to cuDNN's backend API once, when the problem is
 * prepared. An engine is chosen that gives the same bits every time. A run only enqueues.
 *
 * The engine is the one that the caller fixes (a recorded choice). Else it is the first of the
 * library's own list (heuristics mode A) that carries no note of being nondeterministic, accepts
 * the problem and stays within the workspace. Nothing is timed. On compute capability 10.x one
 * engine is tried before the list: the native one for the backward, with the setting that makes its
 * bits repeat, which the list leaves out.
 *
 * The absence of the note proves nothing: with the graph that sums dq in any order no engine
 * carries it either (cuDNN 9.19). The form of the graph is what makes results reproducible. It
 * costs memory: outside compute capability 10.x the backward stores ds, B * H * T * T * 2 bytes, in
 * the workspace.
 *
 * Nothing here is shared between threads: one thread at a time uses an f8_cudnn and what was
 * prepared on it. */
#ifndef F8_CUDNN_ATTENTION_H
#define F8_CUDNN_ATTENTION_H

#include "runtime/cuda/cudnn.h"
#include "runtime/cuda/cudnn_graph.h"

/* ---- one problem ---- */

/* An engine and its settings: what decides the bits. */
enum { F8_CUDNN_MAX_KNOBS = 48 };
typedef struct f8_cudnn_engine {
    int64_t id;
    int n_knobs;
    struct {
        int type; /* CUDNN_KNOB_TYPE_ */
        int64_t value;
    } knob[F8_CUDNN_MAX_KNOBS];
} f8_cudnn_engine;

/* What restricts the choice of an engine. Zeroed or NULL: nothing does. */
typedef struct f8_cudnn_choice {
    const f8_cudnn_engine *fixed; /* take this one, or fail */
    int64_t workspace_limit;      /* bytes of f8_cudnn_attention_workspace; 0: any */
} f8_cudnn_choice;

typedef struct f8_cudnn_attention f8_cudnn_attention;

/* Whether this version of cuDNN takes the problem on this device; needs no library.
 * F8_ERR_UNSUPPORTED with the reason. Every engine may still refuse what passes this check. */
f8_status f8_cudnn_attention_supports(int version, int sm, const f8_cudnn_attention_desc *desc,
                                      f8_diag *diag);
/* About as many bytes of device memory as a run will use, before any library is at hand (see
 * f8_cudnn_attention_workspace). */
int64_t f8_cudnn_attention_expected_workspace(int sm, const f8_cudnn_attention_desc *desc);

/* F8_ERR_UNSUPPORTED when no reproducible engine takes the problem, with the reason the first had;
 * F8_ERR_LIBRARY when a call fails; F8_ERR_MEMORY. `c` outlives what was prepared. */
f8_status f8_cudnn_attention_prepare(const f8_cudnn *c, const f8_cudnn_attention_desc *desc,
                                     const f8_cudnn_choice *choice, const f8_allocator *allocator,
                                     f8_cudnn_attention **out, f8_diag *diag);
void f8_cudnn_attention_destroy(f8_cudnn_attention *a); /* may be NULL */

/* Bytes of device memory a run uses. */
int64_t f8_cudnn_attention_workspace(const f8_cudnn_attention *a);
const f8_cudnn_engine *f8_cudnn_attention_engine(const f8_cudnn_attention *a);
/* "cudnn 9.19.0 engine 3 k24=31 k14=2", with room for F8_CUDNN_TEXT bytes of it. */
enum { F8_CUDNN_TEXT = 256 };
void f8_cudnn_attention_text(const f8_cudnn_attention *a, char text[F8_CUDNN_TEXT]);

/* The arguments of runs, one object for each place that uses a prepared problem: device pointers q,
 * k, v, o, lse (for the backward also do, dq, dk, dv: nine), 16-byte aligned, and the workspace,
 * 256-byte aligned. f8_cudnn_destroy ends it, before the problem. F8_ERR_INPUT or F8_ERR_LIBRARY;
 * *out is then NULL. */
f8_status f8_cudnn_attention_bind(const f8_cudnn_attention *a, void *const *pointers,
                                  void *workspace, f8_cudnn_ref *out, f8_diag *diag);
/* Enqueue on a CUstream, which may be capturing: the problem then lives as long as the graph.
 * F8_ERR_LIBRARY. */
f8_status f8_cudnn_attention_run(const f8_cudnn_attention *a, f8_cudnn_ref arguments, void *stream,
                                 f8_diag *diag);

#endif
