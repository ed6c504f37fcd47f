/* What a compiled text and the driver stand-in know of each other. Read by C (driver) and by C++
 * (kernels, through the stand-in fp8c.cuh), so it stays in what both have.
 *
 * A compiled text exports one f8_emu_image. It lists the kernels and, for each kernel, its arrays
 * in shared memory; the driver lays those out when it loads the image and writes their offsets
 * back. Everything a thread does together with others goes through the functions of f8_emu_context.
 */
#ifndef F8_EMU_IMAGE_H
#define F8_EMU_IMAGE_H

enum { F8_EMU_IMAGE_VERSION = 2 };

/* The running thread, kept up to date by the driver at every switch. */
typedef struct f8_emu_context {
    int thread, threads;
    long long block, blocks;
    unsigned char *shared;  /* the block's shared memory: static arrays, by their offsets */
    unsigned char *dynamic; /* and the dynamic part */
    void (*sync)(void);
    void (*sync_warp)(void);
    unsigned (*shfl)(unsigned x, int lane);
    unsigned (*shfl_xor)(unsigned x, int mask);
    void (*fence)(void);
    unsigned (*count)(unsigned *counter, unsigned most);
    void (*mma_bf16)(float *d, const unsigned *a, const unsigned *b);
    void (*ldmatrix)(unsigned *r, const void *row, int transpose);
    void (*copy16)(void *shared, const void *global, int valid);
    void (*copy_commit)(void);
    void (*copy_wait)(int groups);
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

typedef struct f8_emu_image {
    int version;
    f8_emu_context **context; /* written by the driver */
    f8_emu_kernel *const *kernel, *const *kernel_end;
    f8_emu_array *const *array, *const *array_end;
} f8_emu_image;

/* Before the bytes of the shared object in what the NVRTC stand-in calls a cubin. */
typedef struct f8_emu_cubin {
    char magic[8]; /* F8_EMU_MAGIC */
    char arch[16]; /* "sm_90a" */
    int toolkit;   /* 13000 */
    int reserved;
    unsigned long long size, hash; /* of what follows: bytes, f8_emu_hash */
} f8_emu_cubin;

#define F8_EMU_MAGIC "f8emuobj"

#endif
