/* What `fp8c train` says of its runs: how far one is, the table, the spread over seeds. */
#ifndef F8_CMD_TRAIN_H
#define F8_CMD_TRAIN_H

#include "frontend/cli/cli.h"
#include "frontend/train/training.h"

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
void cli_train_record_spread(const cli *c, const f8_train_result *results, cli_json *json);
/* Prints the table and what stands below it. tail: the steps whose mean is the final loss. */
void cli_train_print(const cli *c, const f8_train_result *results, int64_t tail,
                     const f8_data *data);

#endif
