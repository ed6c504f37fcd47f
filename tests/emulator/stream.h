/* Streams and graphs of the driver stand-in: what stream.c and graph.c share. */
#ifndef F8_EMU_STREAM_H
#define F8_EMU_STREAM_H

#include "tests/emulator/driver.h"

#include <pthread.h>
#include <time.h>

enum { F8_EMU_LANES = 16 }; /* streams that take part in one capture */

typedef enum work_kind {
    WORK_KERNEL,
    WORK_COPY,
    WORK_SET,
    WORK_CALL,
    WORK_EVENT,
    WORK_WAIT
} work_kind;

typedef struct work {
    work_kind kind;
    f8_emu_kernel_call kernel;
    struct {
        void *to;
        const void *from;
        size_t bytes;
        unsigned value;
        int width; /* bytes of `value` */
    } move;
    int (*call)(const void *data);
    void *data; /* owned: CALL */
    CUevent event;
    CUstream awaited; /* WAIT: this stream's work before `until` */
    uint64_t until;
    /* of a graph: which of the streams that took part in its capture did it, 0 the first; WAIT: 1 +
     * the index of the work that it waits for, 0: none */
    int lane;
    size_t after;
} work;

struct CUgraph_st {
    f8_emu_object object;
    work *work;
    size_t n, room;
};

/* Before its own fields the same as a graph: f8_emu_graph_clear takes all three. */
struct CUgraphExec_st {
    struct CUgraph_st graph;
};

struct CUstream_st {
    struct CUgraph_st captured;
    bool apart;              /* CU_STREAM_NON_BLOCKING: not ordered with CU_STREAM_LEGACY */
    int status, mode;        /* CUstreamCaptureStatus, CUstreamCaptureMode */
    pthread_t owner;         /* who began the capture */
    CUstream origin;         /* the stream whose capture it joined by an event; NULL: none's */
    int lane, n_lanes;       /* n_lanes: of the stream that began the capture */
    uint64_t capture;        /* the number of its capture, or of its last */
    struct CUgraph_st queue; /* lazy: work from number `first` on, of which `next` is the first that
                                is not done */
    uint64_t first;
    size_t next;
};

struct CUevent_st {
    f8_emu_object object;
    struct timespec at;
    bool recorded;
    CUstream
        stream; /* lazy: where it was recorded last, behind work number `until`; NULL: nowhere */
    uint64_t until;
    uint64_t capture; /* recorded in this capture last, behind its first `node` works; 0: in none */
    size_t node;
};

/* Both take over or free what the work owns on failure: false, out of memory. append_copy copies
 * kernels' parameters and data of calls. */
bool f8_emu_append(struct CUgraph_st *g, const work *w);
bool f8_emu_append_copy(struct CUgraph_st *g, const work *from);
void f8_emu_work_free(work *w);

/* Appends copies of what a graph does to `to`, in an order that its edges allow (README.md,
 * FP8C_EMULATOR_GRAPH). */
bool f8_emu_graph_play(struct CUgraph_st *to, const struct CUgraph_st *from);
/* Whether the first stream's last work comes after all that others did for it. */
bool f8_emu_graph_is_joined(const struct CUgraph_st *g);

#endif
