/*
 * A simulated CUDA driver: a libcuda.so.1 with devices of four SMs, that knows the core's kernels by their names.
 *
 * KERNEL_MATRIX_SIM_CUDA tells what goes wrong, "key=number" separated by spaces:
 *
 *     cuLaunchKernel=719   a function of this name answers with this error
 *     flip=17              bit 0 of this known answer is wrong
 *     stuck=5              this bit of the first word in memory is always set
 *     mhz=1980             SM clock of SM 0; each next SM is 1 MHz slower
 *     still=1              globaltimer stands still
 *     moved=2              this block ends on another SM than it began on
 *     free=1048576         bytes of free memory
 *     devices=2            number of devices, which is 1 otherwise
 *     compute_ns=250000    device time of the anchor that computes; every 71st run of a kernel takes ten times as long
 *     memory_ns=40000      of the one that copies
 *
 * Each call's name is written to the file KERNEL_MATRIX_SIM_CUDA_LOG, so that a test sees what was undone.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int CUresult;
typedef uint64_t CUdeviceptr;

enum { SMS = 4, KERNELS = 6, MULTIPROCESSOR_COUNT = 16, INVALID_DEVICE = 101, INVALID_PTX = 218, NOT_FOUND = 500, NOT_CURRENT = 201 };
static const char *const NAMES[KERNELS] = {"read_clocks",   "known_answers",  "write_pattern",
                                           "sum_pattern",   "anchor_compute", "anchor_copy"};
static int current; /* pushed contexts */
static uint64_t now_ns, launches;

/* The number behind "key=", or `otherwise`. */
static unsigned long long told(const char *key, unsigned long long otherwise) {
    const char *text = getenv("KERNEL_MATRIX_SIM_CUDA");
    size_t length = strlen(key);
    for (; text && *text; text = strchr(text, ' ') ? strchr(text, ' ') + 1 : NULL)
        if (!strncmp(text, key, length) && text[length] == '=') return strtoull(text + length + 1, NULL, 0);
    return otherwise;
}

static CUresult called(const char *function) {
    const char *path = getenv("KERNEL_MATRIX_SIM_CUDA_LOG");
    FILE *log = path ? fopen(path, "ae") : NULL;
    if (log) {
        fprintf(log, "%s\n", function);
        fclose(log);
    }
    return (CUresult)told(function, 0);
}

/* Most functions answer NOT_CURRENT outside a context, as the driver does. */
#define CALLED() do { CUresult code = called(__func__); if (code) return code; } while (0)
#define INSIDE() do { CALLED(); if (!current) return NOT_CURRENT; } while (0)

CUresult cuGetErrorName(CUresult code, const char **name) {
    *name = code == 719 ? "CUDA_ERROR_LAUNCH_FAILED" : code == 100 ? "CUDA_ERROR_NO_DEVICE" : NULL;
    return *name ? 0 : 1;
}

CUresult cuInit(unsigned int flags) { (void)flags; CALLED(); return 0; }
CUresult cuDeviceGet(int *device, int ordinal) {
    CALLED();
    *device = ordinal;
    return ordinal < (int)told("devices", 1) ? 0 : INVALID_DEVICE;
}
CUresult cuDevicePrimaryCtxRetain(void **context, int device) { (void)device; CALLED(); *context = &current; return 0; }
CUresult cuDevicePrimaryCtxRelease_v2(int device) { (void)device; CALLED(); return 0; }
CUresult cuCtxPushCurrent_v2(void *context) { CALLED(); current += context == &current; return 0; }
CUresult cuCtxPopCurrent_v2(void **context) { CALLED(); *context = &current; current--; return 0; }
CUresult cuStreamCreate(void **stream, unsigned int flags) { INSIDE(); *stream = &current; return flags == 1 ? 0 : 1; }
CUresult cuStreamDestroy_v2(void *stream) { (void)stream; CALLED(); return 0; }
CUresult cuStreamSynchronize(void *stream) { INSIDE(); return stream == &current ? 0 : 400; }

CUresult cuEventCreate(uint64_t **event, unsigned int flags) {
    INSIDE();
    *event = calloc(1, sizeof **event);
    return flags == 0 ? 0 : 1;
}

CUresult cuEventRecord(uint64_t *event, void *stream) {
    INSIDE();
    *event = now_ns;
    return stream == &current ? 0 : 400;
}

CUresult cuEventElapsedTime(float *milliseconds, const uint64_t *begin, const uint64_t *end) {
    INSIDE();
    *milliseconds = (float)(*end - *begin) / 1e6f;
    return 0;
}

CUresult cuEventSynchronize(uint64_t *event) { INSIDE(); return event ? 0 : 1; }
CUresult cuEventDestroy_v2(uint64_t *event) { CALLED(); free(event); return 0; }

CUresult cuDeviceGetAttribute(int *value, int attribute, int device) {
    CALLED();
    *value = SMS;
    return attribute == MULTIPROCESSOR_COUNT && device < (int)told("devices", 1) ? 0 : 1;
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    INSIDE();
    *total = 1 << 20;
    *free_bytes = told("free", *total);
    return 0;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size) {
    INSIDE();
    *address = (CUdeviceptr)(uintptr_t)malloc(size);
    return 0;
}

CUresult cuMemFree_v2(CUdeviceptr address) {
    CALLED();
    free((void *)(uintptr_t)address);
    return 0;
}

CUresult cuMemHostRegister_v2(void *address, size_t size, unsigned int flags) {
    CALLED();
    return address && size && !flags ? 0 : 1;
}

CUresult cuMemHostUnregister(void *address) { CALLED(); return address ? 0 : 1; }

/* Virtual memory management, outside of any pushed context as torch calls it. A handle is a file's descriptor plus one. */
CUresult cuMemGetAllocationGranularity(size_t *granularity, const void *properties, int option) {
    (void)properties, (void)option;
    CALLED();
    *granularity = 65536;
    return 0;
}

CUresult cuMemCreate(uint64_t *handle, size_t size, const void *properties, unsigned long long flags) {
    (void)properties, (void)flags;
    CALLED();
    int file = memfd_create("simulated-device-memory", MFD_CLOEXEC);
    *handle = file + 1;
    return ftruncate(file, size) ? 2 : 0;
}

CUresult cuMemExportToShareableHandle(int *descriptor, uint64_t handle, int kind, unsigned long long flags) {
    CALLED();
    *descriptor = dup(handle - 1);
    return kind == 1 && !flags ? 0 : 1;
}

CUresult cuMemImportFromShareableHandle(uint64_t *handle, void *descriptor, int kind) {
    CALLED();
    *handle = dup((int)(intptr_t)descriptor) + 1;
    return kind == 1 && *handle ? 0 : 1;
}

CUresult cuMemRelease(uint64_t handle) { CALLED(); return close(handle - 1) ? 1 : 0; }

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr wish, uint64_t flags) {
    CALLED();
    *address = (CUdeviceptr)(uintptr_t)mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return size % 65536 || alignment || wish || flags ? 1 : 0;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
    CALLED();
    return munmap((void *)(uintptr_t)address, size) ? 1 : 0;
}

CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, uint64_t handle, unsigned long long flags) {
    CALLED();
    void *mapped = mmap((void *)(uintptr_t)address, size, PROT_NONE, MAP_SHARED | MAP_FIXED, handle - 1, offset);
    return mapped == MAP_FAILED || flags ? 1 : 0;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const void *access, size_t count) {
    (void)access;
    CALLED();
    return count != 1 || mprotect((void *)(uintptr_t)address, size, PROT_READ | PROT_WRITE) ? 1 : 0;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
    CALLED();
    void *left = mmap((void *)(uintptr_t)address, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return left == MAP_FAILED ? 1 : 0;
}

CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t size, void *stream) {
    INSIDE();
    memset((void *)(uintptr_t)address, value, size);
    return stream == &current ? 0 : 400;
}

CUresult cuMemcpyDtoHAsync_v2(void *target, CUdeviceptr address, size_t size, void *stream) {
    INSIDE();
    memcpy(target, (void *)(uintptr_t)address, size);
    return stream == &current ? 0 : 400;
}

CUresult cuModuleLoadData(void **module, const char *ptx) {
    INSIDE();
    *module = strdup(ptx);
    return strstr(ptx, ".version") ? 0 : INVALID_PTX;
}

CUresult cuModuleUnload(void *module) { CALLED(); free(module); return 0; }

CUresult cuModuleGetFunction(void **function, void *module, const char *name) {
    INSIDE();
    char entry[64];
    snprintf(entry, sizeof entry, ".entry %s(", name);
    for (int kernel = 0; kernel < KERNELS; kernel++)
        if (!strcmp(NAMES[kernel], name) && strstr(module, entry)) {
            *function = (void *)&NAMES[kernel];
            return 0;
        }
    return NOT_FOUND;
}

static void read_clocks(unsigned int blocks, uint64_t *readings, uint64_t window_ns) {
    for (unsigned int block = 0; block < blocks; block++, readings += 7) {
        uint64_t mhz = told("mhz", 1000) - block;
        readings[0] = 5000000, readings[1] = 777;
        readings[2] = readings[0] + (told("still", 0) ? 0 : window_ns);
        readings[3] = readings[1] + window_ns * mhz / 1000;
        readings[4] = block, readings[5] = block + (told("moved", SMS) == block);
    }
}

static void known_answers(unsigned int words, uint32_t *answers, uint32_t rounds) {
    for (uint32_t i = 0; i < words; i++) {
        uint32_t x = i;
        for (uint32_t step = 0; step < rounds; step++) x = x * 1664525u + 1013904223u;
        answers[i] = x + (i & 0xffff) + rounds;
    }
    if (told("flip", words) < words) answers[told("flip", words)] ^= 1;
}

static void write_pattern(uint32_t *memory, uint32_t words, uint32_t mask) {
    for (uint32_t i = 0; i < words; i++) memory[i] = i ^ mask;
    if (told("stuck", 32) < 32) memory[0] |= 1u << told("stuck", 32);
}

static void sum_pattern(const uint32_t *memory, uint32_t words, uint64_t *total) {
    for (uint32_t i = 0; i < words; i++) *total += memory[i];
}

static void copy(const uint64_t *source, uint64_t *target, uint32_t words) {
    for (uint32_t i = 0; i < words; i++) target[i] = source[i];
}

static void take(uint64_t ns) { now_ns += launches++ % 71 ? ns : 10 * ns; }

CUresult cuLaunchKernel(const char **function, unsigned int blocks, unsigned int y, unsigned int z, unsigned int threads,
                        unsigned int ty, unsigned int tz, unsigned int shared, void *stream, void **arguments, void **extra) {
    INSIDE();
    if (y * z * ty * tz != 1 || shared || extra || stream != &current || threads != 256) return 1;
#define ADDRESS(n) ((void *)(uintptr_t)*(CUdeviceptr *)arguments[n])
#define U32(n) (*(uint32_t *)arguments[n])
    switch (function - NAMES) {
    case 0: read_clocks(blocks, ADDRESS(0), *(uint64_t *)arguments[2]); break;
    case 1: known_answers(blocks * threads, ADDRESS(0), U32(1)); break;
    case 2: write_pattern(ADDRESS(0), U32(1), U32(2)); break;
    case 3: sum_pattern(ADDRESS(0), U32(1), ADDRESS(2)); break;
    case 4: take(told("compute_ns", 250000)); break;
    case 5: copy(ADDRESS(0), ADDRESS(1), U32(2)); take(told("memory_ns", 40000)); break;
    }
    return 0;
}
