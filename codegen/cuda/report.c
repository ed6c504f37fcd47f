/* Reading ptxas' report: see report.h. For every kernel the log has
 *
 *     ptxas info    : Compiling entry function 'k1' for 'sm_90a'
 *     ptxas info    : Function properties for k1
 *         0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
 *     ptxas info    : Used 32 registers, used 1 barriers, 1024 bytes smem
 *
 * Lines "Function properties" of the functions that the kernel calls come before or after its own.
 * Words are searched, not columns, and words that a later compiler adds between them are ignored.
 */
#include "codegen/cuda/report.h"

#include <ctype.h>
#include <string.h>

typedef struct line {
    const char *text;
    size_t n;
} line;

static const char *find(line l, const char *word)
{
    return memmem(l.text, l.n, word, strlen(word));
}

/* The number that stands before `word`; 0 when there is none. */
static int64_t number_before(line l, const char *word)
{
    const char *at = find(l, word);
    if (!at)
        return 0;
    while (at > l.text && at[-1] == ' ')
        at--;
    int64_t n = 0, scale = 1;
    for (; at > l.text && isdigit((unsigned char)at[-1]) && scale < (int64_t)1 << 50; scale *= 10)
        n += (*--at - '0') * scale;
    return n;
}

/* The function named after `word`, between quotes or to the end of the line, is `symbol`. */
static bool names(line l, const char *word, const char *symbol)
{
    const char *at = find(l, word);
    if (!at)
        return false;
    at += strlen(word);
    while (at < l.text + l.n && (*at == ' ' || *at == '\''))
        at++;
    const size_t n = strlen(symbol);
    const char *end = at + n;
    return end <= l.text + l.n && !memcmp(at, symbol, n) &&
           (end == l.text + l.n || (!isalnum((unsigned char)*end) && *end != '_'));
}

static void read_line(line l, f8_cuda_report *out)
{
    out->stack += number_before(l, "bytes stack frame");
    out->spill_stores += number_before(l, "bytes spill stores");
    out->spill_loads += number_before(l, "bytes spill loads");
    if (find(l, "registers") && find(l, "Used")) {
        out->registers = number_before(l, "registers");
        out->shared = number_before(l, "bytes smem");
    }
}

bool f8_cuda_report_read(const char *log, const char *symbol, f8_cuda_report *out)
{
    bool inside = false, found = false;
    *out = (f8_cuda_report){0};
    while (log && *log) {
        const line l = {log, strcspn(log, "\r\n")};
        if (find(l, "Compiling entry function"))
            inside = names(l, "Compiling entry function", symbol);
        found |= inside;
        if (inside)
            read_line(l, out);
        log += l.n;
        log += strspn(log, "\r\n");
    }
    return found && out->registers > 0;
}
