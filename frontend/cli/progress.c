/* The progress line of a long call, and the log on stderr. */
#include <inttypes.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "frontend/cli/cli.h"
#include "ir/base/clock.h"
#include "ir/base/hash.h"
#include "ir/base/text.h"

enum { WIDTH = 79, WIDEST = 200, BAR = 20 };
static const double patience = 0.5, pace = 0.1; /* seconds before a line, between two lines */

/* ---- the line ---- */

static struct {
    bool wanted, tuning;
    int shown;          /* the columns of the line on the terminal; 0: there is none */
    double start, last; /* when the call began; when the line was last drawn */
} line;

/* Erases with spaces, so that no escape codes are needed. */
static void erase(void)
{
    if (line.shown)
        fprintf(stderr, "\r%*s\r", line.shown, "");
    line.shown = 0;
}

int cli_columns(void)
{
    struct winsize w;
    const bool known = !ioctl(STDERR_FILENO, TIOCGWINSZ, &w) && w.ws_col > 1;
    return known && w.ws_col - 1 < WIDEST ? w.ws_col - 1 : WIDTH;
}

static void show(const fp8c_progress *p)
{
    static const char full[BAR + 1] = "####################",
                                 none[BAR + 1] = "....................";
    char text[WIDEST + 1], left[40] = "";
    const int done = p->total > 0 ? (int)(BAR * p->done / p->total) : 0;
    if (p->seconds_left >= 0)
        snprintf(left, sizeof left, ", %.0f s left", p->seconds_left);
    snprintf(text, sizeof text, "%s [%s%s] %" PRId64 "/%" PRId64 "%s: %s", p->phase,
             full + BAR - done, none + done, p->done, p->total, left, p->item);
    f8_text_make_plain(text);
    const int n = (int)strnlen(text, (size_t)cli_columns());
    fprintf(stderr, "\r%.*s%*s", n, text, line.shown > n ? line.shown - n : 0, "");
    line.shown = n;
}

static int progress(void *user, const fp8c_progress *p)
{
    (void)user;
    const double time = f8_seconds_now();
    const bool tunes = !strcmp(p->phase, "tune");
    if (line.tuning && !tunes) /* the tuner compiles: keep the tuner's line */
        return cli_interrupted();
    line.tuning = tunes && p->done < p->total;
    const bool passes = !strcmp(p->phase, "passes"); /* a compile begins with this */
    const bool more = p->done < p->total;
    cli_ask(more);
    if (!line.start || (passes && p->done == 0))
        line.start = time;
    flockfile(stderr);
    if (!more || cli_interrupted())
        erase();
    else if (line.wanted && time - line.start > patience && time - line.last > pace) {
        show(p);
        line.last = time;
    }
    funlockfile(stderr);
    if (!more && !passes)
        line.start = 0;
    return cli_interrupted();
}

/* ---- the log ---- */

enum { MOST_SAID = 64 };

/* Whether this warning was shown before: `plan`, `train` and `tune` compile one module many times.
 * The caller holds stderr's lock. */
static bool was_said(const char *text)
{
    static uint64_t said[MOST_SAID];
    static int n;
    const uint64_t hash = f8_fnv(F8_FNV, text);
    for (int i = 0; i < n; i++)
        if (said[i] == hash)
            return true;
    if (n < MOST_SAID)
        said[n++] = hash;
    return false;
}

static void say(void *user, fp8c_log_level level, const char *text)
{
    (void)user;
    flockfile(stderr);
    if (level == FP8C_LOG_WARNING && was_said(text)) {
        funlockfile(stderr);
        return;
    }
    erase();
    cli_message("fp8c: %s%s", level == FP8C_LOG_WARNING ? "warning: " : "", text);
    funlockfile(stderr);
}

/* ---- the options of contexts ---- */

static fp8c_context_options options = {.struct_size = sizeof options};

void cli_watch(int32_t verbose, bool bar)
{
    options.log = say; /* always warnings; more with -v or FP8C_VERBOSE */
    options.verbose = verbose;
    options.progress = progress;
    line.wanted = bar && isatty(STDERR_FILENO);
}

const fp8c_context_options *cli_context_options(void)
{
    return &options;
}
