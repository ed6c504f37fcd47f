/* The passes of quantization. */
#ifndef F8_SCALING_H
#define F8_SCALING_H

#include "passes/unit/pass.h"

/* Weights stored as FP8, where the options ask for it. */
f8_status f8_pass_serve(f8_unit *u);
/* Samples of operands, where options.calibrate asks for them. */
f8_status f8_pass_calibrate(f8_unit *u);
/* FP8: amax, scales, quantize, scaled_matmul, histories. */
f8_status f8_pass_scaling(f8_unit *u);
/* Codes of weights that update writes and the steps read. */
f8_status f8_pass_codes(f8_unit *u);

#endif
