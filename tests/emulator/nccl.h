/* The ranks of the NCCL stand-in, and how they exchange bytes: memory that threads and processes of
 * one machine share. Nothing here waits but f8_emu_join. */
#ifndef F8_EMU_NCCL_H
#define F8_EMU_NCCL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { F8_EMU_RANKS = 8, F8_EMU_ID = 128 };

/* GATHER and REDUCE: every rank reads all that a rank sends. GROUP and SCATTER: a part each. REDUCE
 * and SCATTER add f32. */
typedef enum f8_emu_exchange {
    F8_EMU_GATHER = 1,
    F8_EMU_GROUP,
    F8_EMU_REDUCE,
    F8_EMU_SCATTER
} f8_emu_exchange;

/* What a rank says of its operation. */
typedef struct f8_emu_post {
    int kind;
    uint64_t sends[F8_EMU_RANKS], receives[F8_EMU_RANKS]; /* bytes, by peer */
} f8_emu_post;

/* One rank of a communicator. */
typedef struct f8_emu_member {
    int rank, ranks;
    struct f8_emu_world *world;
    int file[F8_EMU_RANKS]; /* what each rank sends */
    int cancelled;          /* atomic; 1: f8_emu_join gives up */
} f8_emu_member;

/* A name for a communicator, as the bytes of an id: new, or of the address in NCCL_COMM_ID. */
bool f8_emu_world_name(char id[F8_EMU_ID]);
/* Waits until all ranks are here. An ncclResult_t, with the reason in `why`. */
int f8_emu_join(f8_emu_member *m, const char *id, int device, char *why, size_t room);
void f8_emu_leave_world(f8_emu_member *m);

/* Show the others operation `number`, with the bytes to be sent. false: not yet, as some still read
 * the one before. */
bool f8_emu_post_operation(f8_emu_member *m, uint64_t number, const f8_emu_post *post,
                           const void *const *from);
bool f8_emu_all_posted(const f8_emu_member *m, uint64_t number);
/* Whether the others' operations go with this one. */
bool f8_emu_fits(const f8_emu_member *m, const f8_emu_post *post, char *why, size_t room);
/* Read what the others send; of a sum to[0] alone. */
void f8_emu_take(f8_emu_member *m, uint64_t number, const f8_emu_post *post, void *const *to);
/* A rank that left, or whose process ended, before it posted the operation; -1: none. */
int f8_emu_gone(const f8_emu_member *m, uint64_t number);

#endif
