/* What a rank does in collectives, in a small file that outlives it: after a rank was killed, the
 * file says which collective it was in. The file is mapped, so a record costs no system call.
 * README.md, "Records of ranks", has the format. Nothing here prints. Internal to frontend/.
 *
 * The file has two places for records, which take turns: while one is written, the other is whole.
 * A record that is half written, by a process that runs or by one that was killed, is recognised.
 */
#ifndef F8_RANKS_H
#define F8_RANKS_H

#include <stdbool.h>
#include <stdint.h>

#include "ir/base/status.h"

enum { F8_RANK_TEXT = 160 };

typedef enum f8_rank_state {
    F8_RANK_WAITS, /* in the collective */
    F8_RANK_ENDED, /* behind it */
    F8_RANK_LEFT,  /* the process has done its work */
    F8_RANK_FAILED /* the process has failed, and says why */
} f8_rank_state;

/* A rank's last collective. */
typedef struct f8_rank_at {
    uint64_t number; /* of the collective, from 1: the same on all ranks. 0: there was none */
    f8_rank_state state;
    const char *op, *function, *name; /* of f8_rank_read: in `text` */
    int64_t bytes;
    int64_t step, micro_step; /* of the training, from 0; step -1: it has not begun */
    double time;              /* when it began, seconds since 1970 */
    char text[3][F8_RANK_TEXT];
} f8_rank_at;

/* A mapped file. All zeros: none. */
typedef struct f8_rank_file {
    uint8_t *bytes;
    uint32_t turn; /* the writer's: the record's number, of those that were written */
} f8_rank_file;

/* Makes a file, which must not be there, with a first line of `who`: the rank, its host and so on.
 * F8_ERR_IO. */
f8_status f8_rank_create(f8_rank_file *f, const char *path, const char *who, f8_diag *diag);
/* Maps a file that another process writes. F8_ERR_IO: it is not there; F8_ERR_INPUT: it is none. */
f8_status f8_rank_open(f8_rank_file *f, const char *path, f8_diag *diag);
void f8_rank_close(f8_rank_file *f);

/* The writer's calls; one thread at a time. The second changes the state of the last record. */
void f8_rank_write(f8_rank_file *f, const f8_rank_at *at);
void f8_rank_become(f8_rank_file *f, f8_rank_state state);

/* Gives what was written to the file system, for readers on other machines. */
void f8_rank_flush(const f8_rank_file *f);

/* The newest record that is whole. false: there is none. */
bool f8_rank_read(const f8_rank_file *f, f8_rank_at *out);
/* The first line, without its end, cut at `size`. */
void f8_rank_who(const f8_rank_file *f, char *who, size_t size);

#endif
