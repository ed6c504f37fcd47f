/* What `fp8c train` says of its runs: how far one is, the table, the spread over seeds. */
#ifndef F8_CMD_TRAIN_H
#define F8_CMD_TRAIN_H

#include "frontend/cli/cli.h"
#include "frontend/train/training.h"

/* Draws the line that says how far a run is on the terminal anew. The bar takes what the terminal
 * has left beside the figures. A line that is too long even so is cut: one that goes on in the next
 * row could not be drawn over.
 */
void cli_train_progress(const f8_training *r, const f8_train_step *f);

/* results: c->seeds results of --recipe, then as many of each --compare. */

/* Prints the table and what stands below it. tail: the steps whose mean is the final loss. */
void cli_train_print(const cli *c, const f8_train_result *results, int64_t tail,
                     const f8_data *data);

#endif
