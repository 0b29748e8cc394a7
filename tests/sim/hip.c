/*
 * A simulated HIP runtime, libamdhip64, and compiler, libhiprtc, with devices of four compute units.
 *
 * The compiler is the host's: kernels are compiled with g++ behind the text PRELUDE, and run here one thread after the
 * other. Device memory is the host's, and that of the virtual memory management a file for each allocation.
 *
 * KERNEL_MATRIX_SIM_HIP tells what goes wrong, "key=number" separated by spaces:
 *
 *     hipModuleLaunchKernel=719   a function of this name answers with this error
 *     lost=709            every function of the runtime does
 *     version=60443000    the runtime's version
 *     wrong=1             an imported handle is that of other memory
 *     flip=17             bit 0 of this known answer is wrong
 *     stuck=5             this bit of the first word in memory is always set
 *     mhz=2100            core clock of unit 0; each next unit is 1 MHz slower
 *     rate=100000         rate of the wall clock, kHz
 *     still=1             the wall clock stands still
 *     moved=2             this block ends on another unit than it began on
 *     gfx11=1             the counter of cycles has 20 bits, and the compiler says that the device is one of RDNA 3
 *     threads=1           only so many threads of a block run
 *     free=1048576        bytes of free memory
 *     devices=2           number of devices, which is 1 otherwise
 *     compute_ns=250000   device time of the anchor that computes; every 71st run of a kernel takes ten times as long
 *     memory_ns=40000     of the one that copies
 *
 * Each call's name is written to the file KERNEL_MATRIX_SIM_HIP_LOG, so that a test sees what was undone.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* hip_runtime_api.h, driver_types.h and hiprtc.h, as far as they cross this boundary. */
typedef int hipError_t;
typedef int hiprtcResult;
typedef void *hipDeviceptr_t;
typedef void *hipMemGenericAllocationHandle_t;
enum {
    hipSuccess = 0, hipErrorInvalidValue = 1, hipErrorOutOfMemory = 2, hipErrorNoDevice = 100,
    hipErrorNoBinaryForGpu = 209, hipErrorInvalidHandle = 400, hipErrorNotFound = 500, hipErrorLaunchFailure = 719,
    hipErrorNotSupported = 801
};
enum { hipDeviceAttributeMultiprocessorCount = 63, hipDeviceAttributeWallClockRate = 10017 };
enum { hipStreamNonBlocking = 1, hipEventDefault = 0, hipHostRegisterDefault = 0 };
enum { hipMemAllocationTypePinned = 1, hipMemLocationTypeDevice = 1, hipMemHandleTypePosixFileDescriptor = 1 };
enum { hipMemAccessFlagsProtReadWrite = 3, hipMemAllocationGranularityMinimum = 0 };
enum { HIPRTC_SUCCESS = 0, HIPRTC_ERROR_INVALID_INPUT = 3, HIPRTC_ERROR_COMPILATION = 6 };
typedef struct { int type, id; } hipMemLocation;
typedef struct {
    int type, requestedHandleType;
    hipMemLocation location;
    void *win32HandleMetaData;
    struct { unsigned char compressionType, gpuDirectRDMACapable; unsigned short usage; } allocFlags;
} hipMemAllocationProp;
typedef struct { hipMemLocation location; int flags; } hipMemAccessDesc;

/* Sizes by the name of the structure, for the test that compares them with those of the bindings. */
const struct { const char *name; uint64_t size; } simulated_sizes[] = {
    {"AllocationProperties", sizeof(hipMemAllocationProp)}, {"AccessDescription", sizeof(hipMemAccessDesc)}, {NULL, 0}
};

enum { UNITS = 4, GRANULARITY = 65536, FIRST_WITH_VALUES = 70100000, MOST_DESCRIPTORS = 4096 };

static const char PRELUDE[] =
    "#define __global__\n"
    "typedef struct { unsigned int x, y, z; } simulated_index;\n"
    "extern \"C\" {\n"
    "simulated_index threadIdx, blockIdx, blockDim, gridDim;\n"
    "unsigned long long simulated_ticks, simulated_cycles, simulated_step, simulated_mask, simulated_wall;\n"
    "unsigned long long simulated_counter;\n"
    "unsigned int simulated_moved, simulated_looks;\n"
    "}\n"
    "static inline unsigned long long wall_clock64() { return simulated_wall += simulated_ticks; }\n"
    "static inline long long clock64() { return (simulated_counter += simulated_cycles) & simulated_mask; }\n"
    "static inline unsigned int __smid() {\n"
    "    return blockIdx.x + (simulated_moved == blockIdx.x && simulated_looks++);\n"
    "}\n"
    "template <class T> static T atomicAdd(T *place, T more) { T old = *place; *place += more; return old; }\n";

static char device; /* what streams point to */
static uint64_t now_ns, launches;

/* The number behind "key=", or `otherwise`. */
static unsigned long long told(const char *key, unsigned long long otherwise) {
    const char *text = getenv("KERNEL_MATRIX_SIM_HIP");
    size_t length = strlen(key);
    for (; text && *text; text = strchr(text, ' ') ? strchr(text, ' ') + 1 : NULL)
        if (!strncmp(text, key, length) && text[length] == '=') return strtoull(text + length + 1, NULL, 0);
    return otherwise;
}

static int called(const char *function) {
    const char *path = getenv("KERNEL_MATRIX_SIM_HIP_LOG");
    FILE *log = path ? fopen(path, "ae") : NULL;
    if (log) {
        fprintf(log, "%s\n", function);
        fclose(log);
    }
    return (int)told(function, 0);
}

#define SAID() do { int code = called(__func__); if (code) return code; } while (0)
#define CALLED() do { SAID(); if (told("lost", 0)) return (hipError_t)told("lost", 0); } while (0)

const char *hipGetErrorName(hipError_t code) {
    return code == 709 ? "hipErrorContextIsDestroyed" : code == hipErrorLaunchFailure ? "hipErrorLaunchFailure"
         : code == hipErrorNotSupported ? "hipErrorNotSupported" : code == hipErrorNoDevice ? "hipErrorNoDevice" : NULL;
}

hipError_t hipRuntimeGetVersion(int *version) { CALLED(); *version = (int)told("version", 70200000); return 0; }
hipError_t hipInit(unsigned int flags) { CALLED(); return flags ? hipErrorInvalidValue : 0; }
hipError_t hipSetDevice(int ordinal) { CALLED(); return ordinal < (int)told("devices", 1) ? 0 : 101; }

hipError_t hipStreamCreateWithFlags(void **stream, unsigned int flags) {
    CALLED();
    *stream = &device;
    return flags == hipStreamNonBlocking ? 0 : hipErrorInvalidValue;
}

hipError_t hipStreamDestroy(void *stream) { CALLED(); return stream == &device ? 0 : hipErrorInvalidHandle; }
hipError_t hipStreamSynchronize(void *stream) { CALLED(); return stream == &device ? 0 : hipErrorInvalidHandle; }

hipError_t hipEventCreateWithFlags(uint64_t **event, unsigned int flags) {
    CALLED();
    *event = calloc(1, sizeof **event);
    return flags == hipEventDefault ? 0 : hipErrorInvalidValue;
}

hipError_t hipEventRecord(uint64_t *event, void *stream) {
    CALLED();
    *event = now_ns;
    return stream == &device ? 0 : hipErrorInvalidHandle;
}

hipError_t hipEventElapsedTime(float *milliseconds, const uint64_t *begin, const uint64_t *end) {
    CALLED();
    *milliseconds = (float)(*end - *begin) / 1e6f;
    return 0;
}

hipError_t hipEventSynchronize(uint64_t *event) { CALLED(); return event ? 0 : hipErrorInvalidValue; }
hipError_t hipEventDestroy(uint64_t *event) { CALLED(); free(event); return 0; }

hipError_t hipDeviceGetAttribute(int *value, int attribute, int ordinal) {
    CALLED();
    *value = attribute == hipDeviceAttributeMultiprocessorCount ? UNITS : (int)told("rate", 100000);
    int known = attribute == hipDeviceAttributeMultiprocessorCount || attribute == hipDeviceAttributeWallClockRate;
    return known && ordinal < (int)told("devices", 1) ? 0 : hipErrorInvalidValue;
}

/* Memory. */

hipError_t hipMemGetInfo(size_t *free_bytes, size_t *total) {
    CALLED();
    *total = 1 << 20;
    *free_bytes = told("free", *total);
    return 0;
}

hipError_t hipMalloc(void **address, size_t size) { CALLED(); *address = malloc(size); return 0; }
hipError_t hipFree(void *address) { CALLED(); free(address); return 0; }

hipError_t hipMemsetD8Async(hipDeviceptr_t address, unsigned char value, size_t size, void *stream) {
    CALLED();
    memset(address, value, size);
    return stream == &device ? 0 : hipErrorInvalidHandle;
}

hipError_t hipMemcpyDtoHAsync(void *target, hipDeviceptr_t address, size_t size, void *stream) {
    CALLED();
    memcpy(target, address, size);
    return stream == &device ? 0 : hipErrorInvalidHandle;
}

hipError_t hipHostRegister(void *address, size_t size, unsigned int flags) {
    CALLED();
    return address && size && flags == hipHostRegisterDefault ? 0 : hipErrorInvalidValue;
}

hipError_t hipHostUnregister(void *address) { CALLED(); return address ? 0 : hipErrorInvalidValue; }

/* Virtual memory management. A handle is a file's descriptor plus one. */

static int file_of(hipMemGenericAllocationHandle_t handle) { return (int)(intptr_t)handle - 1; }
static hipMemGenericAllocationHandle_t handle_of(int file) { return (void *)(intptr_t)(file + 1); }

static int is_ours(const hipMemAllocationProp *wanted) {
    hipMemAllocationProp ours = {
        .type = hipMemAllocationTypePinned,
        .requestedHandleType = hipMemHandleTypePosixFileDescriptor,
        .location = {.type = hipMemLocationTypeDevice},
    };
    return !memcmp(&ours, wanted, sizeof ours);
}

static int new_memory(size_t size) {
    int file = memfd_create("simulated-device-memory", MFD_CLOEXEC);
    return file >= 0 && !ftruncate(file, (off_t)size) ? file : -1;
}

hipError_t hipMemGetAllocationGranularity(size_t *granularity, const hipMemAllocationProp *wanted, int option) {
    CALLED();
    *granularity = GRANULARITY;
    return is_ours(wanted) && option == hipMemAllocationGranularityMinimum ? 0 : hipErrorInvalidValue;
}

hipError_t hipMemCreate(
    hipMemGenericAllocationHandle_t *handle, size_t size, const hipMemAllocationProp *wanted, unsigned long long flags) {
    CALLED();
    if (!is_ours(wanted) || size % GRANULARITY || flags) return hipErrorInvalidValue;
    *handle = handle_of(new_memory(size));
    return *handle ? 0 : hipErrorOutOfMemory;
}

hipError_t hipMemExportToShareableHandle(
    void *descriptor, hipMemGenericAllocationHandle_t handle, int kind, unsigned long long flags) {
    CALLED();
    *(int *)descriptor = dup(file_of(handle));
    return kind == hipMemHandleTypePosixFileDescriptor && !flags ? 0 : hipErrorInvalidValue;
}

hipError_t hipMemImportFromShareableHandle(hipMemGenericAllocationHandle_t *handle, void *descriptor, int kind) {
    struct stat status;
    CALLED();
    int by_value = told("version", 70200000) >= FIRST_WITH_VALUES;
    if (by_value != ((uintptr_t)descriptor < MOST_DESCRIPTORS)) return hipErrorInvalidValue;
    int file = by_value ? (int)(intptr_t)descriptor : *(int *)descriptor;
    if (kind != hipMemHandleTypePosixFileDescriptor || fstat(file, &status)) return hipErrorInvalidValue;
    *handle = handle_of(told("wrong", 0) ? new_memory((size_t)status.st_size) : dup(file));
    return *handle ? 0 : hipErrorInvalidValue;
}

hipError_t hipMemRelease(hipMemGenericAllocationHandle_t handle) {
    CALLED();
    return close(file_of(handle)) ? hipErrorInvalidValue : 0;
}

hipError_t hipMemAddressReserve(void **address, size_t size, size_t alignment, void *wish, unsigned long long flags) {
    CALLED();
    *address = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return size % GRANULARITY || alignment || wish || flags ? hipErrorInvalidValue : 0;
}

hipError_t hipMemAddressFree(void *address, size_t size) {
    CALLED();
    return munmap(address, size) ? hipErrorInvalidValue : 0;
}

hipError_t hipMemMap(
    void *address, size_t size, size_t offset, hipMemGenericAllocationHandle_t handle, unsigned long long flags) {
    CALLED();
    void *mapped = mmap(address, size, PROT_NONE, MAP_SHARED | MAP_FIXED, file_of(handle), (off_t)offset);
    return mapped == MAP_FAILED || flags ? hipErrorInvalidValue : 0;
}

hipError_t hipMemSetAccess(void *address, size_t size, const hipMemAccessDesc *access, size_t count) {
    CALLED();
    int on_device = access->location.type == hipMemLocationTypeDevice && access->location.id == 0;
    if (count != 1 || !on_device || access->flags != hipMemAccessFlagsProtReadWrite) return hipErrorInvalidValue;
    return mprotect(address, size, PROT_READ | PROT_WRITE) ? hipErrorInvalidValue : 0;
}

hipError_t hipMemUnmap(void *address, size_t size) {
    CALLED();
    void *left = mmap(address, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return left == MAP_FAILED ? hipErrorInvalidValue : 0;
}

/* Modules: shared libraries that the simulated compiler has made. */

typedef struct { void *module, *entry; const char *name; } function;

static size_t size_of_library(const void *image) {
    const Elf64_Ehdr *head = image;
    return memcmp(head->e_ident, ELFMAG, SELFMAG) ? 0 : head->e_shoff + (size_t)head->e_shentsize * head->e_shnum;
}

hipError_t hipModuleLoadData(void **module, const void *image) {
    char path[64];
    size_t size = size_of_library(image);
    CALLED();
    int file = memfd_create("simulated-module", MFD_CLOEXEC);
    if (!size || write(file, image, size) != (ssize_t)size) return hipErrorNoBinaryForGpu;
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!*module) fprintf(stderr, "%s\n", dlerror());
    close(file);
    return *module ? 0 : hipErrorNoBinaryForGpu;
}

hipError_t hipModuleUnload(void *module) { CALLED(); return dlclose(module) ? hipErrorInvalidHandle : 0; }

hipError_t hipModuleGetFunction(void **found, void *module, const char *name) {
    CALLED();
    function *made = malloc(sizeof *made); /* kept until the process ends, as programs here are short */
    *made = (function){module, dlsym(module, name), strdup(name)};
    *found = made;
    return made->entry ? 0 : hipErrorNotFound;
}

static void set_number(void *module, const char *name, uint64_t number) {
    *(uint64_t *)dlsym(module, name) = number;
}

/* Clocks of one unit, as the kernels read them. */
static void set_clocks(void *module, unsigned int block) {
    enum { STEP_US = 20 };
    uint64_t rate_khz = told("rate", 100000), mhz = told("mhz", 1000) - block;
    set_number(module, "simulated_ticks", told("still", 0) ? 0 : STEP_US * rate_khz / 1000);
    set_number(module, "simulated_cycles", STEP_US * mhz);
    set_number(module, "simulated_mask", told("gfx11", 0) ? 0xfffff : UINT64_MAX);
    *(unsigned int *)dlsym(module, "simulated_moved") = (unsigned int)told("moved", UINT32_MAX);
}

/* Runs all threads; every parameter is an address or a whole number, so that each fits a register of integers. */
static void run(const function *of, unsigned int blocks, unsigned int threads, void **arguments) {
    typedef struct { unsigned int x, y, z; } index;
    typedef void (*entry)(uint64_t, uint64_t, uint64_t, uint64_t);
    uint64_t values[4] = {0};
    int count = !strcmp(of->name, "read_clocks") ? 4 : !strcmp(of->name, "anchor_compute") ? 2
              : !strcmp(of->name, "known_answers") ? 2 : 3;
    for (int n = 0; n < count; n++) values[n] = *(uint64_t *)arguments[n];
    index *thread = dlsym(of->module, "threadIdx"), *block = dlsym(of->module, "blockIdx");
    *(index *)dlsym(of->module, "blockDim") = (index){threads, 1, 1};
    *(index *)dlsym(of->module, "gridDim") = (index){blocks, 1, 1};
    unsigned int running = (unsigned int)told("threads", threads);
    for (*block = (index){0, 0, 0}; block->x < blocks; block->x++) {
        set_clocks(of->module, block->x);
        for (*thread = (index){0, 0, 0}; thread->x < threads && thread->x < running; thread->x++) {
            *(unsigned int *)dlsym(of->module, "simulated_looks") = 0;
            ((entry)of->entry)(values[0], values[1], values[2], values[3]);
        }
    }
}

static void take(uint64_t ns) { now_ns += launches++ % 71 ? ns : 10 * ns; }

hipError_t hipModuleLaunchKernel(
    const function *of, unsigned int blocks, unsigned int y, unsigned int z, unsigned int threads, unsigned int ty,
    unsigned int tz, unsigned int shared, void *stream, void **arguments, void **extra) {
    CALLED();
    if (y * z * ty * tz != 1 || shared || extra || stream != &device || threads != 256) return hipErrorInvalidValue;
    run(of, blocks, threads, arguments);
    uint32_t *memory = *(uint32_t **)arguments[0];
    if (!strcmp(of->name, "known_answers") && told("flip", UINT64_MAX) != UINT64_MAX) memory[told("flip", 0)] ^= 1;
    if (!strcmp(of->name, "write_pattern") && told("stuck", 32) < 32) memory[0] |= 1u << told("stuck", 0);
    if (!strcmp(of->name, "anchor_compute")) take(told("compute_ns", 250000));
    if (!strcmp(of->name, "anchor_copy")) take(told("memory_ns", 40000));
    return 0;
}

/* The compiler. */

typedef struct { char *text, *code; size_t size; } program;

hiprtcResult hiprtcCreateProgram(
    program **made, const char *text, const char *name, int count, const char **headers, const char **names) {
    SAID();
    if (!name || count || headers || names) return HIPRTC_ERROR_INVALID_INPUT;
    *made = calloc(1, sizeof **made);
    (*made)->text = strdup(text);
    return HIPRTC_SUCCESS;
}

static char *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "re");
    struct stat status;
    if (!file || fstat(fileno(file), &status)) return NULL;
    char *bytes = malloc((size_t)status.st_size + 1);
    *size = fread(bytes, 1, (size_t)status.st_size, file);
    fclose(file);
    return bytes;
}

hiprtcResult hiprtcCompileProgram(program *of, int count, const char **options) {
    char folder[] = "/tmp/simulated-hiprtc-XXXXXX", command[512], source[64], library[64];
    SAID();
    if (count || options || !mkdtemp(folder)) return HIPRTC_ERROR_INVALID_INPUT;
    snprintf(source, sizeof source, "%s/kernels.cpp", folder);
    snprintf(library, sizeof library, "%s/kernels.so", folder);
    FILE *file = fopen(source, "we");
    fprintf(file, "%s%s", PRELUDE, of->text);
    fclose(file);
    snprintf(command, sizeof command, "g++ -shared -fPIC -O2 -Wall -Wextra -Werror -Wl,-Bsymbolic %s -o %s %s",
             told("gfx11", 0) ? "-D__GFX11__" : "", library, source);
    if (!system(command)) of->code = read_file(library, &of->size);
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command) || !of->code ? HIPRTC_ERROR_COMPILATION : HIPRTC_SUCCESS;
}

static const char LOG[] = "a first line\nerror: simulated\n";

hiprtcResult hiprtcGetProgramLogSize(program *of, size_t *size) {
    SAID();
    *size = sizeof LOG;
    return of ? HIPRTC_SUCCESS : HIPRTC_ERROR_INVALID_INPUT;
}

hiprtcResult hiprtcGetProgramLog(program *of, char *log) {
    SAID();
    memcpy(log, LOG, sizeof LOG);
    return of ? HIPRTC_SUCCESS : HIPRTC_ERROR_INVALID_INPUT;
}

hiprtcResult hiprtcGetCodeSize(program *of, size_t *size) { SAID(); *size = of->size; return HIPRTC_SUCCESS; }
hiprtcResult hiprtcGetCode(program *of, char *code) { SAID(); memcpy(code, of->code, of->size); return HIPRTC_SUCCESS; }

hiprtcResult hiprtcDestroyProgram(program **of) {
    SAID();
    free((*of)->text);
    free((*of)->code);
    free(*of);
    return HIPRTC_SUCCESS;
}
