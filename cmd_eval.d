cmd_eval.o: frontend/cli/cmd_eval.c frontend/cli/cmd_calibrate.h \
  frontend/cli/cmd_data.h frontend/cli/cmd_corpus.h \
  frontend/cli/cmd_ranks.h frontend/cli/cmd_guard.h frontend/cli/cmd.h \
  frontend/fp8c.h ir/base/file.h ir/base/status.h ir/base/temporary.h \
  ir/base/type.h frontend/run/ranks.h frontend/cli/cmd_tokens.h \
  frontend/cli/cmd_rows.h frontend/cli/cmd_tensor_file.h \
  frontend/checkpoint/safetensors.h frontend/cli/cmd_npy.h \
  frontend/cli/cmd_observe.h frontend/cli/cmd_checkpoint.h \
  frontend/checkpoint/load.h frontend/checkpoint/checkpoint.h \
  frontend/checkpoint/weights.h
frontend/cli/cmd_calibrate.h:
frontend/cli/cmd_data.h:
frontend/cli/cmd_corpus.h:
frontend/cli/cmd_ranks.h:
frontend/cli/cmd_guard.h:
frontend/cli/cmd.h:
frontend/fp8c.h:
ir/base/file.h:
ir/base/status.h:
ir/base/temporary.h:
ir/base/type.h:
frontend/run/ranks.h:
frontend/cli/cmd_tokens.h:
frontend/cli/cmd_rows.h:
frontend/cli/cmd_tensor_file.h:
frontend/checkpoint/safetensors.h:
frontend/cli/cmd_npy.h:
frontend/cli/cmd_observe.h:
frontend/cli/cmd_checkpoint.h:
frontend/checkpoint/load.h:
frontend/checkpoint/checkpoint.h:
frontend/checkpoint/weights.h:
