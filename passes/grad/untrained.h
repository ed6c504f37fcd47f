/* What has no gradient, and perhaps should have one. */
#ifndef F8_UNTRAINED_H
#define F8_UNTRAINED_H

#include "ir/base/log.h"
#include "ir/ir.h"

/* Log a warning for each input of `forward` that is the weight of a linear, since only parameters
 * get gradients; and for each parameter that no gradient of the loss reaches, unless the patterns
 * `frozen` name it. The module is as the text or the builder made it. */
f8_status f8_warn_of_untrained(const f8_module *m, const char *frozen, const f8_log *log,
                               f8_diag *diag);

#endif
