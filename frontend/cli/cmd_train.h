/* What `fp8c train` says of its runs: how far one is, the table, the spread over seeds, a loss that
 * explodes. */
#ifndef F8_CMD_TRAIN_H
#define F8_CMD_TRAIN_H

#include "frontend/cli/cmd_data.h"

/* A run: one recipe with one seed. */
typedef struct cli_train_result {
    const char *recipe;
    uint64_t seed;
    double final_loss, heldout_loss, items_per_second; /* tokens or rows */
    fp8c_info info;
    fp8c_peak peak;                 /* of micro_step */
    fp8c_remat remat;
    char target[24];
    fp8c_device device;             /* its name is "" if there is none */
    int64_t fp8_gemms;              /* fp8_gemms: executed by the last micro-step */
    int64_t skipped;                /* steps whose gradient norm was not finite */
    int64_t done;                   /* steps */
    bool saved;                     /* the checkpoint is written */
} cli_train_result;

/* The last losses of a run. All fields are 0 before its first step. */
enum { CLI_LOSS_WINDOW = 32 };
typedef struct cli_loss_watch {
    double last[CLI_LOSS_WINDOW]; /* a ring */
    int64_t n;                    /* losses so far */
    double least;                 /* the least median of the window so far */
    bool exploded;
} cli_loss_watch;

/* Takes the next loss of a run. true, once a run, if the loss explodes: it is not finite, or it
 * exceeds the least median so far, m, by more than max(m / 2, 8 d). The medians are of the last 32
 * losses before each step, and d is the median of the distances of the last 32 from theirs. So a
 * run whose losses scatter much needs a larger jump. */
bool cli_loss_explodes(cli_loss_watch *w, double loss);

/* How far a run is. */
typedef struct cli_train_now {
    const char *recipe, *items; /* items: what the rate counts */
    int64_t step, steps, bytes; /* bytes: of memory */
    double loss, lr, rate, seconds_left;
    bool last;
} cli_train_now;

/* Draws the line on the terminal anew. The bar takes what the terminal has left beside the figures.
 * A line that is too long even so is cut: one that goes on in the next row could not be drawn over.
 */
void cli_train_progress(const cli_train_now *now);

/* results: c->seeds results of --recipe, then as many of each --compare. */

/* Writes a record `spread` for each recipe, if there are several seeds. */
void cli_train_record_spread(const cli *c, const cli_train_result *results, cli_json *json);
/* Prints the table and what stands below it. tail: the steps whose mean is the final loss. */
void cli_train_print(const cli *c, const cli_train_result *results, int64_t tail,
                     const cli_data *data);

#endif
