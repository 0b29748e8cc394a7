/*
 * A simulated NVIDIA driver: a libnvidia-ml.so.1 that the real nvidia-ml-py loads.
 *
 * The world is the text file that KERNEL_MATRIX_SIM_WORLD names. It is read anew at every call, so that a test changes
 * it (writes another file and renames it over) while programs run, and so that all programs see the same world.
 *
 *     driver 580.159.04          lines before the first "gpu" describe the host
 *     cuda 13000
 *     init !18                   a value "!N" answers with NVML's error code N
 *     gpu                        each "gpu" line begins the next device
 *     uuid GPU-0001
 *     compute 4242 4243          lists of PIDs; an empty list means: none
 *     power 71000
 *     lost !15                   everything about this device answers with this code
 *
 * A device's line that is absent answers "not supported" (3).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };
enum { HOST = -1, VALUE_SIZE = 1024 };

/* nvml.h's types, as far as they cross this boundary. */
typedef int nvmlReturn_t;
typedef struct device *nvmlDevice_t;
typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory;
    unsigned int gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

static int opened; /* nvmlInit calls not yet undone by nvmlShutdown */

static FILE *open_world(void) {
    const char *path = getenv("KERNEL_MATRIX_SIM_WORLD");
    FILE *world = path ? fopen(path, "re") : NULL;
    if (!world) {
        fprintf(stderr, "simulated NVML: KERNEL_MATRIX_SIM_WORLD names no readable file\n");
        abort();
    }
    return world;
}

/* Splits "key value…\n" in place; the value of a lone key is empty. */
static char *split(char *line) {
    line[strcspn(line, "\n")] = 0;
    char *space = strchr(line, ' ');
    if (!space) return line + strlen(line);
    *space = 0;
    return space + 1;
}

/* Copies what the world says under `key` of `device` (or HOST) into `value`; false when it says nothing. */
static int find(int device, const char *key, char value[VALUE_SIZE]) {
    FILE *world = open_world();
    char line[VALUE_SIZE];
    int section = HOST, found = 0;
    while (!found && fgets(line, sizeof line, world)) {
        const char *text = split(line);
        if (!strcmp(line, "gpu")) section++;
        found = section == device && !strcmp(line, key);
        if (found) strcpy(value, text);
    }
    fclose(world);
    return found;
}

static int count_devices(void) {
    FILE *world = open_world();
    char line[VALUE_SIZE];
    int count = 0;
    while (fgets(line, sizeof line, world)) {
        split(line);
        count += !strcmp(line, "gpu");
    }
    fclose(world);
    return count;
}

static nvmlDevice_t to_handle(int device) { return (nvmlDevice_t)(size_t)(device + 1); }
static int from_handle(nvmlDevice_t handle) { return (int)(size_t)handle - 1; }

/* Reads a field as the driver would answer for it. */
static nvmlReturn_t ask(int device, const char *key, char value[VALUE_SIZE]) {
    if (!opened) return UNINITIALIZED;
    if (device != HOST && find(device, "lost", value)) return atoi(value + 1);
    if (!find(device, key, value)) return NOT_SUPPORTED;
    return value[0] == '!' ? atoi(value + 1) : SUCCESS;
}

static nvmlReturn_t ask_number(int device, const char *key, unsigned long long *number) {
    char value[VALUE_SIZE];
    nvmlReturn_t code = ask(device, key, value);
    if (code == SUCCESS) *number = strtoull(value, NULL, 0);
    return code;
}

static nvmlReturn_t ask_unsigned(int device, const char *key, unsigned int *number) {
    unsigned long long wide = 0;
    nvmlReturn_t code = ask_number(device, key, &wide);
    if (code == SUCCESS) *number = (unsigned int)wide;
    return code;
}

static nvmlReturn_t ask_text(int device, const char *key, char *text, unsigned int length) {
    char value[VALUE_SIZE];
    nvmlReturn_t code = ask(device, key, value);
    if (code != SUCCESS) return code;
    if (strlen(value) >= length) return INSUFFICIENT_SIZE;
    strcpy(text, value);
    return SUCCESS;
}

/* nvml.h's two-step protocol: a buffer too small is told the size; success without a buffer means "nobody". */
static nvmlReturn_t ask_processes(int device, const char *key, unsigned int *count, nvmlProcessInfo_t *infos) {
    char value[VALUE_SIZE], *rest = value, *end;
    nvmlReturn_t code = ask(device, key, value);
    if (code != SUCCESS) return code;
    unsigned int room = infos ? *count : 0, found = 0;
    for (;; rest = end, found++) {
        unsigned long pid = strtoul(rest, &end, 10);
        if (end == rest) break;
        if (found < room) infos[found] = (nvmlProcessInfo_t){.pid = (unsigned int)pid};
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

/* The library itself. */

nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    char value[VALUE_SIZE];
    (void)flags;
    if (find(HOST, "init", value)) return atoi(value + 1);
    opened++;
    return SUCCESS;
}

nvmlReturn_t nvmlShutdown(void) {
    if (!opened) return UNINITIALIZED;
    opened--;
    return SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t code) {
    (void)code;
    return "simulated error";
}

/* The host. */

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    return ask_text(HOST, "driver", version, length);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    return ask_unsigned(HOST, "cuda", (unsigned int *)version);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    if (!opened) return UNINITIALIZED;
    *count = (unsigned int)count_devices();
    return SUCCESS;
}

/* Devices. */

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *handle) {
    char value[VALUE_SIZE];
    if ((int)index >= count_devices()) return INVALID_ARGUMENT;
    *handle = to_handle((int)index);
    return ask((int)index, "uuid", value);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *handle) {
    char value[VALUE_SIZE];
    if (!opened) return UNINITIALIZED;
    for (int device = 0; device < count_devices(); device++) {
        if (!find(device, "uuid", value) || strcmp(value, uuid)) continue;
        *handle = to_handle(device);
        return ask(device, "uuid", value);
    }
    return NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t handle, char *uuid, unsigned int length) {
    return ask_text(from_handle(handle), "uuid", uuid, length);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t handle, char *name, unsigned int length) {
    return ask_text(from_handle(handle), "name", name, length);
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t handle, unsigned int *minor) {
    return ask_unsigned(from_handle(handle), "minor", minor);
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t handle, int *major, int *minor) {
    char value[VALUE_SIZE];
    nvmlReturn_t code = ask(from_handle(handle), "capability", value);
    if (code != SUCCESS) return code;
    return sscanf(value, "%d.%d", major, minor) == 2 ? SUCCESS : INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t handle, nvmlMemory_t *memory) {
    nvmlReturn_t code = ask_number(from_handle(handle), "memory", &memory->total);
    if (code == SUCCESS) code = ask_number(from_handle(handle), "memory_used", &memory->used);
    if (code == SUCCESS) memory->free = memory->total - memory->used;
    return code;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t handle, int type, unsigned int *megahertz) {
    static const char *const KEYS[] = {"clock_graphics", "clock_sm", "clock_memory", "clock_video"};
    if (type < 0 || type > 3) return INVALID_ARGUMENT;
    return ask_unsigned(from_handle(handle), KEYS[type], megahertz);
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t handle, unsigned int *milliwatts) {
    return ask_unsigned(from_handle(handle), "power", milliwatts);
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t handle, int sensor, unsigned int *celsius) {
    return sensor == 0 ? ask_unsigned(from_handle(handle), "temperature", celsius) : INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t handle, unsigned long long *millijoules) {
    return ask_number(from_handle(handle), "energy", millijoules);
}

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t handle, unsigned long long *bits) {
    return ask_number(from_handle(handle), "event_reasons", bits);
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t handle, unsigned long long *bits) {
    return ask_number(from_handle(handle), "throttle_reasons", bits);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t handle, unsigned int *count, nvmlProcessInfo_t *infos) {
    return ask_processes(from_handle(handle), "compute", count, infos);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t handle, unsigned int *count, nvmlProcessInfo_t *infos) {
    return ask_processes(from_handle(handle), "graphics", count, infos);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t handle, unsigned int *count, nvmlProcessInfo_t *infos) {
    return ask_processes(from_handle(handle), "mps", count, infos);
}
