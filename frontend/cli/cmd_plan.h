/* What the folder of a run has of `fp8c plan --json`. */
#ifndef F8_CMD_PLAN_H
#define F8_CMD_PLAN_H

#include "frontend/cli/cmd.h"

#define cli_memory_record f8_record_memory
#define cli_tensor_record f8_record_tensor_at

#endif
