/* What compiled kernels and the driver stand-in know of each other. Read by C (driver) and by C++
 * (kernels, through the stand-in fp8c.cuh), so it stays in what both have.
 *
 * The NVRTC stand-in cuts the compiler's object into pieces, one a kernel: the kernel and all that
 * it refers to. A piece lists the kernel's arrays in shared memory; the driver lays those out when
 * it loads the piece and writes their offsets back. Everything a thread does together with others
 * goes through the functions of f8_emu_context. */
#ifndef F8_EMU_IMAGE_H
#define F8_EMU_IMAGE_H

enum { F8_EMU_PIECE_VERSION = 5, F8_EMU_PAGE = 4096 };

/* The running thread, kept up to date by the driver at every switch. */
typedef struct f8_emu_context {
    int thread, threads;
    long long block, blocks;
    unsigned char *shared;  /* the block's shared memory: static arrays, by their offsets */
    unsigned char *dynamic; /* and the dynamic part */
    void (*await_before)(void);
    void (*sync)(void);
    void (*sync_warp)(void);
    unsigned (*shfl)(unsigned x, int lane);
    unsigned (*shfl_xor)(unsigned x, int mask);
    void (*fence)(void);
    unsigned (*count)(unsigned *counter, unsigned most);
    void (*mma_bf16)(float *d, const unsigned *a, const unsigned *b);
    void (*ldmatrix)(unsigned *r, const void *row, int transpose);
    void (*copy)(void *shared, const void *global, int bytes, int valid);
    void (*copy_commit)(void);
    void (*copy_wait)(int groups);
    void (*bulk_begin)(unsigned long long *barrier, int n);
    void (*bulk_expect)(unsigned long long *barrier, int bytes);
    void (*bulk_copy)(void *shared, const void *global, int bytes, unsigned long long *barrier);
    void (*bulk_wait)(unsigned long long *barrier, unsigned phase);
} f8_emu_context;

typedef struct f8_emu_kernel {
    const char *name, *body; /* body: the C++ function's own name, as in f8_emu_array */
    int threads;
    unsigned params; /* bytes */
    void (*run)(const void *params);
} f8_emu_kernel;

typedef struct f8_emu_array {
    const char *body;
    unsigned bytes;
    unsigned offset; /* written by the driver */
} f8_emu_array;

/* A kernel's memory is its code from the start of a page, then its data from the start of a page.
 * What refers to its own place is done. These follow the piece's head: the bytes of code, the bytes
 * of data, offsets in the memory (unsigned) of the arrays' f8_emu_array and of the addresses to
 * which the memory's own is added, and the functions that it calls. */
typedef struct f8_emu_piece {
    unsigned version, bytes; /* bytes: the head and what follows */
    unsigned code, data;     /* bytes of each */
    unsigned kernel,
        context; /* where its f8_emu_kernel is, and the f8_emu_context * of who runs it */
    unsigned n_arrays, n_addresses, n_functions;
    char orphan[92]; /* the function with an array in shared memory that is no kernel's; else empty
                      */
} f8_emu_piece;

typedef struct f8_emu_function {
    unsigned at; /* where its address goes */
    char name[60];
} f8_emu_function;

/* Before the pieces in what the NVRTC stand-in calls a cubin. */
typedef struct f8_emu_cubin {
    char magic[8]; /* F8_EMU_MAGIC */
    char arch[16]; /* "sm_90a" */
    int toolkit;   /* 13000 */
    int reserved;
    unsigned long long size, hash; /* of what follows: bytes, f8_emu_hash */
} f8_emu_cubin;

#define F8_EMU_MAGIC "f8emuobj"

#endif
