device.o: runtime/cuda/device.c runtime/cuda/internal.h \
  runtime/cuda/device.h ir/base/status.h ir/target.h \
  ir/num/scale_layout.h ir/num/granularity.h ir/base/type.h \
  runtime/cuda/api.h runtime/cuda/cudnn_api.h runtime/base/dynlib.h \
  ir/base/format.h
runtime/cuda/internal.h:
runtime/cuda/device.h:
ir/base/status.h:
ir/target.h:
ir/num/scale_layout.h:
ir/num/granularity.h:
ir/base/type.h:
runtime/cuda/api.h:
runtime/cuda/cudnn_api.h:
runtime/base/dynlib.h:
ir/base/format.h:
