/* A libcuda.so.1 for a machine without a device, so that the real cuDNN can prepare plans there: it
 * finds every function it looks for, modules load and say nothing of themselves, and whatever needs
 * a device fails as the toolkit's own stub library does. */
#define FAILS(X)                                                              \
    X(cuInit)                                                                 \
    X(cuDriverGetVersion)                                                     \
    X(cuDeviceGet)                                                            \
    X(cuDeviceGetCount)                                                       \
    X(cuDeviceGetAttribute)                                                   \
    X(cuDevicePrimaryCtxRetain)                                               \
    X(cuDevicePrimaryCtxReset)                                                \
    X(cuDevicePrimaryCtxRelease)                                              \
    X(cuCtxGetCurrent)                                                        \
    X(cuCtxGetDevice)                                                         \
    X(cuCtxGetLimit)                                                          \
    X(cuCtxPushCurrent)                                                       \
    X(cuCtxPopCurrent)                                                        \
    X(cuGetErrorName)                                                         \
    X(cuGetErrorString)                                                       \
    X(cuLaunchKernel)                                                         \
    X(cuLaunchKernelEx)                                                       \
    X(cuLaunchCooperativeKernel)                                              \
    X(cuLibraryLoadFromFile)                                                  \
    X(cuLinkCreate)                                                           \
    X(cuLinkCreate_v2)                                                        \
    X(cuLinkAddData)                                                          \
    X(cuLinkAddData_v2)                                                       \
    X(cuLinkAddFile_v2)                                                       \
    X(cuLinkComplete)                                                         \
    X(cuLinkDestroy)                                                          \
    X(cuMemcpyDtoH_v2)                                                        \
    X(cuModuleLoadFatBinary)                                                  \
    X(cuModuleGetGlobal_v2)                                                   \
    X(cuFuncGetAttribute)                                                     \
    X(cuStreamGetCtx)                                                         \
    X(cuStreamSynchronize)

enum { ERROR_STUB_LIBRARY = 34 };
#define DEFINE_FAILS(name)                                                    \
    int name(void);                                                           \
    int name(void)                                                            \
    {                                                                         \
        return ERROR_STUB_LIBRARY;                                            \
    }
FAILS(DEFINE_FAILS)

#define WORKS(X)                                                              \
    X(cuLibraryUnload)                                                        \
    X(cuKernelSetAttribute)                                                   \
    X(cuFuncSetAttribute)                                                     \
    X(cuModuleUnload)                                                         \
    X(cuTensorMapEncodeTiled)
#define DEFINE_WORKS(name)                                                    \
    int name(void);                                                           \
    int name(void)                                                            \
    {                                                                         \
        return 0;                                                             \
    }
WORKS(DEFINE_WORKS)

/* Functions whose first argument is where a handle goes. */
#define HANDLES(X)                                                            \
    X(cuLibraryLoadData)                                                      \
    X(cuLibraryGetKernel)                                                     \
    X(cuModuleLoadData)                                                       \
    X(cuModuleLoadDataEx)                                                     \
    X(cuModuleGetFunction)
static int object;
#define DEFINE_HANDLES(name)                                                  \
    int name(void **out);                                                     \
    int name(void **out)                                                      \
    {                                                                         \
        *out = &object;                                                       \
        return 0;                                                             \
    }
HANDLES(DEFINE_HANDLES)

#define NUMBERS(X)                                                            \
    X(cuKernelGetAttribute, 0)                                                \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor, 1)                         \
    X(cuOccupancyMaxPotentialClusterSize, 8)
#define DEFINE_NUMBERS(name, number)                                          \
    int name(int *out);                                                       \
    int name(int *out)                                                        \
    {                                                                         \
        *out = number;                                                        \
        return 0;                                                             \
    }
NUMBERS(DEFINE_NUMBERS)
