/* Files of tokens as one long stream: the bytes of texts, and the token files that others write. */
#ifndef F8_TOKENS_H
#define F8_TOKENS_H

#include "frontend/train/data/options.h"
#include "ir/base/hash.h"
#include "ir/base/status.h"

/* How a file holds its tokens. It is found out in this order:
 *     .npy        the name ends in .npy, or the file begins like one: u1, u2, u4, i4 or i8, of any
 *                 shape, in C order
 *     llm.c       256 i32, of which the first three are a magic number, a version and the number of
 *                 tokens; then the tokens. 20240520 and version 1: u16. 20240801 and version 7: u32
 *     nanoGPT     the name ends in .bin: u16 without a header
 *     text        anything else: each byte is a token
 * All are little-endian. Sources: numpy.lib.format; llm.c, dev/data/data_common.py; nanoGPT,
 * data/openwebtext/prepare.py. */
typedef struct f8_token_shard {
    char *path;
    const uint8_t *bytes; /* the whole file: mapped, or in memory if it is no regular file */
    size_t size;
    bool mapped;
    uint64_t device, inode; /* of the mapped file */
    size_t data;            /* where the tokens begin, in bytes */
    int width;              /* bytes of a token: 1, 2, 4 or 8 */
    bool is_signed;
    uint64_t first, n; /* the place of its first token in the stream, and how many it has */
} f8_token_shard;

typedef struct f8_tokens {
    f8_token_shard *shard;
    size_t n_shards;
    uint64_t n;      /* tokens in all */
    bool text;       /* every shard is a text: the tokens are bytes */
    char shown[320]; /* the files, for messages: "a.bin" or "a.bin and 3 more" */
} f8_tokens;

/* Opens n files in the order given. A path with * is a pattern unless a file has that name: it
 * stands for all files that match, in the order of their names. options->tokens says what all files
 * hold: NULL leaves it to each. "u16" and "u32": the tokens have this type, whatever the name is; a
 * header must agree. "bytes": a text, whatever it is. Fails if a file can't be read or is no such
 * file, a pattern matches nothing, or one of several files is empty. diag->file may be memory of
 * `t`. Close it in any case. */
f8_status f8_tokens_open(f8_tokens *t, const char *const *files, size_t n,
                         const f8_data_options *options, f8_diag *diag);
void f8_tokens_close(f8_tokens *t); /* all zeros is fine */
/* Whether all tokens are in [0, vocabulary); adds to count[id] for each. It reads everything once.
 * *hash becomes that of all tokens as i32, so it is the same however files hold them. If a token is
 * not, the message names the file, the offset in bytes and the token. F8_ERR_CANCELLED: `stop` said
 * so. */
f8_status f8_tokens_count(const f8_tokens *t, int64_t vocabulary, const f8_stop *stop,
                          uint64_t *count, f8_hash *hash, f8_diag *diag);
/* Copies tokens [at, at + n) of the stream to `to`. Fails if a file became shorter since it was
 * opened. */
f8_status f8_tokens_get(const f8_tokens *t, uint64_t at, int32_t *to, uint64_t n, f8_diag *diag);

#endif
