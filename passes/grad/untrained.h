/* What has no gradient, and perhaps should have one. */
#ifndef F8_UNTRAINED_H
#define F8_UNTRAINED_H

#include "ir/base/log.h"
#include "ir/ir.h"

/* Log a warning for each input of `forward` that is the weight of a linear: only parameters get
 * gradients. The module is as the text or the builder made it. */
f8_status f8_warn_of_weights(const f8_module *m, const f8_log *log, f8_diag *diag);

#endif
