/* Records of ranks: see ranks.h.
 *
 * A record is a line of text of RECORD bytes. It begins and ends with its number, of 8 bytes each,
 * which are stored and loaded as one word. The writer changes the number at the end first, then the
 * text, then the number at the beginning; a reader copies in the opposite order. So where the two
 * numbers are equal the text between them is theirs. */
#include "frontend/run/ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ir/base/file.h"
#include "ir/base/format.h"

enum {
    WHO = 512, /* bytes of the first line */
    RECORD = 512,
    RECORDS = 2,
    FILE_BYTES = WHO + RECORDS * RECORD,
    WORD = 8,
    STATE = WORD, /* where the state stands in a record */
    BODY = 2 * WORD,
    LAST = RECORD - WORD,
    NUMBERS = 0x7ffffff /* 27 bits: seven digits */
};

static const char state_word[][WORD + 1] = {"waits   ", "ended   ", "left    ", "failed  "};
static const char begin_of_file[] = "fp8c rank, format 1: ";

/* ---- words: whoever sees one also sees those that were stored before it ---- */

static uint64_t load_word(const uint8_t *at)
{
    return __atomic_load_n((const uint64_t *)(const void *)at, __ATOMIC_ACQUIRE);
}

static void store_word(uint8_t *at, const char *text)
{
    uint64_t word;
    memcpy(&word, text, WORD);
    __atomic_store_n((uint64_t *)(void *)at, word, __ATOMIC_RELEASE);
}

/* ---- files ---- */

static f8_status map(f8_rank_file *f, int fd, const char *path, bool writes, f8_diag *diag)
{
    void *at =
        mmap(NULL, FILE_BYTES, writes ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return f8_file_fail(diag, F8_ERR_IO, path, "can't map it: %s", f8_errno_text(errno));
    *f = (f8_rank_file){.bytes = at};
    return F8_OK;
}

/* Blanks, and a newline where each line ends: the last word of a record ends with it. */
static void fill(uint8_t bytes[FILE_BYTES], const char *who)
{
    char line[WHO];
    memset(bytes, ' ', FILE_BYTES);
    snprintf(line, sizeof line, "%s%s", begin_of_file, who);
    memcpy(bytes, line, strlen(line));
    bytes[WHO - 1] = '\n';
    for (int i = 1; i <= RECORDS; i++)
        bytes[WHO + i * RECORD - 1] = '\n';
}

f8_status f8_rank_create(f8_rank_file *f, const char *path, const char *who, f8_diag *diag)
{
    uint8_t bytes[FILE_BYTES];
    *f = (f8_rank_file){0};
    const int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return f8_file_fail(diag, F8_ERR_IO, path, "can't make it: %s", f8_errno_text(errno));
    fill(bytes, who);
    /* written, not only mapped: on a full disk this fails, and a store would end the process */
    f8_status status = write(fd, bytes, sizeof bytes) == (ssize_t)sizeof bytes
                           ? map(f, fd, path, true, diag)
                           : f8_file_fail(diag, F8_ERR_IO, path, "can't write it: %s",
                                          f8_errno_text(errno ? errno : ENOSPC));
    close(fd);
    if (status != F8_OK)
        unlink(path);
    return status;
}

f8_status f8_rank_open(f8_rank_file *f, const char *path, f8_diag *diag)
{
    struct stat s;
    *f = (f8_rank_file){0};
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return f8_file_fail(diag, F8_ERR_IO, path, "can't open it: %s", f8_errno_text(errno));
    f8_status status = fstat(fd, &s) || s.st_size != FILE_BYTES
                           ? f8_file_fail(diag, F8_ERR_INPUT, path, "it is no record of a rank")
                           : map(f, fd, path, false, diag);
    close(fd);
    if (status == F8_OK && memcmp(f->bytes, begin_of_file, sizeof begin_of_file - 1)) {
        f8_rank_close(f);
        status = f8_file_fail(diag, F8_ERR_INPUT, path, "it is no record of a rank");
    }
    return status;
}

void f8_rank_close(f8_rank_file *f)
{
    if (f->bytes)
        munmap(f->bytes, FILE_BYTES);
    *f = (f8_rank_file){0};
}

/* ---- writing ---- */

static uint8_t *record(const f8_rank_file *f, uint32_t turn)
{
    return f->bytes + WHO + turn % RECORDS * RECORD;
}

/* A word: blanks separate the fields. */
static const char *word(const char *text, char to[F8_RANK_TEXT])
{
    snprintf(to, F8_RANK_TEXT, "%s", text && *text ? text : "-");
    for (char *p = to; *p; p++)
        *p = *p == ' ' ? '_' : *p;
    return to;
}

void f8_rank_write(f8_rank_file *f, const f8_rank_at *at)
{
    char number[WORD + 1], body[LAST - BODY + 1], op[F8_RANK_TEXT], function[F8_RANK_TEXT];
    if (!f->bytes)
        return;
    f->turn++;
    uint8_t *to = record(f, f->turn);
    const int n =
        f8_format(body, sizeof body,
                  "number=%llu step=%lld.%lld op=%.20s bytes=%lld time=%.3f function=%.48s "
                  "name=%.*s",
                  (unsigned long long)at->number, (long long)at->step, (long long)at->micro_step,
                  word(at->op, op), (long long)at->bytes, at->time, word(at->function, function),
                  F8_RANK_TEXT - 1, at->name ? at->name : "-");
    const size_t length = n < 0 ? 0 : (size_t)n < sizeof body ? (size_t)n : sizeof body - 1;
    memset(body + length, ' ', sizeof body - length);
    snprintf(number, sizeof number, "%07x\n", (unsigned)(f->turn & NUMBERS));
    store_word(to + LAST, number);
    store_word(to + STATE, state_word[at->state]);
    for (int i = BODY; i < LAST; i += WORD)
        store_word(to + i, body + (i - BODY));
    number[WORD - 1] = ' ';
    store_word(to, number);
}

void f8_rank_become(f8_rank_file *f, f8_rank_state state)
{
    if (f->bytes && f->turn)
        store_word(record(f, f->turn) + STATE, state_word[state]);
}

void f8_rank_flush(const f8_rank_file *f)
{
    if (f->bytes)
        msync(f->bytes, FILE_BYTES, MS_SYNC); /* if it fails, the others know less */
}

/* ---- reading ---- */

/* A copy of the record in one of the two places; false: it is half written, or there is none. */
static bool copy_record(const f8_rank_file *f, uint32_t place, char text[RECORD + 1])
{
    const uint8_t *from = record(f, place);
    for (int i = 0; i < RECORD; i += WORD) {
        const uint64_t word = load_word(from + i);
        memcpy(text + i, &word, WORD);
    }
    text[RECORD] = 0;
    return text[0] != ' ' && !memcmp(text, text + LAST, WORD - 1);
}

/* The value behind KEY=, up to the next blank. */
static const char *value(const char *text, const char *key, char to[F8_RANK_TEXT])
{
    char with[24];
    snprintf(with, sizeof with, " %s=", key);
    const char *at = strstr(text, with);
    at = at ? at + strlen(with) : "";
    const size_t n = strcspn(at, " \n");
    snprintf(to, F8_RANK_TEXT, "%.*s", (int)n, at);
    return to;
}

/* The name is last, and may have blanks inside. */
static const char *name_in(const char *text, char to[F8_RANK_TEXT])
{
    const char *at = strstr(text, " name=");
    at = at ? at + strlen(" name=") : "";
    size_t n = strlen(at);
    while (n && at[n - 1] == ' ')
        n--;
    snprintf(to, F8_RANK_TEXT, "%.*s", (int)n, at);
    return to;
}

static bool read_record(char text[RECORD + 1], f8_rank_at *out)
{
    char field[F8_RANK_TEXT], *end;
    text[LAST] = 0;
    text[BODY - 1] = ' '; /* before the first key */
    *out = (f8_rank_at){.number = strtoull(value(text, "number", field), NULL, 10)};
    int state = 0;
    while (state < 4 && memcmp(text + STATE, state_word[state], WORD - 1))
        state++;
    if (state == 4)
        return false;
    out->state = (f8_rank_state)state;
    out->step = strtoll(value(text, "step", field), &end, 10);
    out->micro_step = *end == '.' ? strtoll(end + 1, NULL, 10) : 0;
    out->bytes = strtoll(value(text, "bytes", field), NULL, 10);
    out->time = f8_number(value(text, "time", field));
    out->op = value(text, "op", out->text[0]);
    out->function = value(text, "function", out->text[1]);
    out->name = name_in(text, out->text[2]);
    return true;
}

/* Both places may be half written: one by the process, while the reader was in the other. */
enum { TRIES = 100 };

bool f8_rank_read(const f8_rank_file *f, f8_rank_at *out)
{
    char text[RECORD + 1];
    bool found = false;
    for (int tries = 0; f->bytes && tries < TRIES && !found; tries++)
        for (uint32_t i = 0; i < RECORDS; i++) {
            f8_rank_at at;
            if (!copy_record(f, i, text) || !read_record(text, &at))
                continue;
            if (found && at.number < out->number)
                continue;
            *out = at;
            out->op = out->text[0];
            out->function = out->text[1];
            out->name = out->text[2];
            found = true;
        }
    return found;
}

void f8_rank_who(const f8_rank_file *f, char *who, size_t size)
{
    size_t n = WHO - 1;
    const char *line = (const char *)f->bytes + sizeof begin_of_file - 1;
    n -= sizeof begin_of_file - 1;
    while (n && line[n - 1] == ' ')
        n--;
    snprintf(who, size, "%.*s", (int)n, line);
}
