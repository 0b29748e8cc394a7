/*
 * A simulated NVIDIA driver: a libnvidia-ml.so.1 that the real nvidia-ml-py loads.
 *
 * THE WORLD is the text file that KERNEL_MATRIX_SIM_WORLD names. It is read anew at every call, so that a test changes
 * it (writes another file and renames it over) while programs run, and so that all programs see the same world.
 *
 *     driver 580.159.04          lines before the first "gpu" describe the host
 *     gpu                        each "gpu" line begins the next device
 *     uuid GPU-0001
 *     compute 4242 4243          a list; an empty one means: none
 *     power !999                 a value "!N" answers with NVML's error code N
 *
 * A device's line that is absent answers "not supported" (3). Clocks are MHz, powers mW, energy mJ, memory bytes,
 * counters ns.
 *
 *   host         driver  cuda (13000)  nvml (library's version)  init (!N: refuses to open)  unprivileged (1: every
 *                setting call answers "no permission")
 *   identity     uuid  name  serial  minor  capability (9.0)  architecture  brand  cores  vbios  pci_bus_id
 *                pci_device_id  numa_node  cpu_affinity (hexadecimal words, lowest first)
 *   links        bus_width  pcie_generation  pcie_generation_max  pcie_width  pcie_width_max
 *                links: for each device with another link than PCIe its place among the devices, the kind (nvlink,
 *                switch, pcie, host), with a minus if the two cannot access each other's memory, and the number of
 *                NVLinks: 1:nvlink:4 2:host-
 *                link_speed (MB/s of one NVLink)  far_ends (!N: what NVLinks lead to is not told)
 *   memory       memory  memory_used (without reserved)  memory_reserved (absent: only version 1 of the question)
 *   clocks       clock_graphics (absent: clock_sm)  clock_sm  clock_memory  clock_video: those the driver chooses;
 *                max_clock_*  default_clock_* (of the same four)  tdp_clock (what the symbolic pair locks to)
 *                memory_clocks (list, descending)  graphics_clocks_<memory clock> (list, descending)
 *   power, heat  power (average, for the old question)  power_instant  power_average  energy  power_limit
 *                power_limit_enforced  power_limit_default  power_limits (min max)  temperature  temperature_memory
 *                temperature_shutdown  temperature_slowdown  temperature_memory_max  temperature_gpu_max
 *   reasons      event_reasons  throttle_reasons (old name)  supported_event_reasons
 *                counter_sw_power_cap  counter_thermal  counter_sync_boost  counter_board_limit  counter_sw_thermal
 *                counter_hw_thermal  counter_power_brake
 *   modes        ecc (now pending)  ecc_corrected  ecc_uncorrected  ecc_corrected_total  ecc_uncorrected_total
 *                mig (now pending)  persistence  compute_mode  pstate  utilization (gpu memory)
 *   processes    compute  graphics  mps: lists of PIDs, each with its memory if wanted: 4242:1048576; one with a star,
 *                4242* or 4242:1048576*, is listed only while that process lives
 *   settings     sm_lockable  memory_lockable  (1: there are locked clocks; absent: not supported)
 *   faults       lost (!N: everything about this device answers N; 15 lost, 16 needs a reset, 999 fell off the bus)
 *                unprivileged (1)  lock (!N)  lock_memory (!N)  reset (!N)  set_compute_mode (!N): refused with N
 *                lock_ignored (1: reports success, and the clocks stay as the driver chose them)
 *                reset_ignored (1: reports success, and the lock stays)
 *                compute_mode_ignored (1: reports success, and the mode stays)
 *
 * THE STATE is what the library itself changes: locked ranges and compute modes, in <world>.state, one line
 * "uuid key values" each. It outlives the programs, as a driver that is kept loaded does. Programs change it one at a
 * time, under a lock on <world>.lock. A range clamps what the clocks are; without one they are the world's.
 *
 * THE LOG, <world>.log, gets one line "pid function uuid arguments -> code" for every call that would set or reset
 * anything, refused or not.
 *
 * THE LOOKS, <world>.looks, get one byte for every time that the list of computing processes was asked for.
 */
#define _GNU_SOURCE
#include <time.h>

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15, VERSION_MISMATCH = 25
};

#define WORLD_VARIABLE "KERNEL_MATRIX_SIM_WORLD"
#include "world.h"

enum { CLOCK_GRAPHICS, CLOCK_SM, CLOCK_MEMORY, CLOCK_VIDEO, CLOCKS };
enum { DOUBLE, UNSIGNED_INT, UNSIGNED_LONG, UNSIGNED_LONG_LONG };
#define SYMBOLIC 0xffffff00u
#define LIMIT_TDP 0xffffff01u
#define LIMIT_UNLIMITED 0xffffff02u
#define MEMORY_V2 0x02000028u
#define TEMPERATURE_V1 0x0100000Cu

/* nvml.h's types, as far as they cross this boundary. */
typedef int nvmlReturn_t;
typedef struct device *nvmlDevice_t;
typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } nvmlMemory_v2_t;
typedef struct { unsigned int gpu, memory; } nvmlUtilization_t;
typedef struct { unsigned long long referenceTime, violationTime; } nvmlViolationTime_t;
typedef struct { unsigned int version, sensor; int temperature; } nvmlTemperature_t;
typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory;
    unsigned int gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;
typedef struct {
    char busIdLegacy[16];
    unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;
typedef struct {
    unsigned int fieldId, scopeId;
    long long timestamp, latencyUsec;
    unsigned int valueType;
    nvmlReturn_t nvmlReturn;
    union { double d; unsigned int ui; unsigned long long ull; } value;
} nvmlFieldValue_t;

static nvmlDevice_t to_handle(int device) { return (nvmlDevice_t)(size_t)(device + 1); }
static int from_handle(nvmlDevice_t handle) { return (int)(size_t)handle - 1; }

/* nvml.h's two-step protocol: a buffer too small is told the size; success without a buffer means "nobody". */
static nvmlReturn_t ask_processes(int device, const char *key, unsigned int *count, nvmlProcessInfo_t *infos) {
    char value[VALUE_SIZE], *rest = value;
    nvmlReturn_t code = ask(device, key, value);
    if (code != SUCCESS) return code;
    unsigned int room = infos ? *count : 0, found = 0;
    for (nvmlProcessInfo_t info = {0}; next_process(&rest, &info.pid, &info.usedGpuMemory); found++)
        if (found < room) infos[found] = info;
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

static nvmlReturn_t ask_compute_processes(int device, unsigned int *count, nvmlProcessInfo_t *infos) {
    nvmlReturn_t code = ask_processes(device, "compute", count, infos);
    note_look();
    return code;
}

/* The same protocol for lists of clocks. */
static nvmlReturn_t ask_list(int device, const char *key, unsigned int *count, unsigned int *numbers) {
    char value[VALUE_SIZE], *rest = value, *end;
    nvmlReturn_t code = ask(device, key, value);
    if (code != SUCCESS) return code;
    unsigned int room = numbers ? *count : 0, found = 0;
    for (;; rest = end, found++) {
        unsigned long number = strtoul(rest, &end, 10);
        if (end == rest) break;
        if (found < room) numbers[found] = (unsigned int)number;
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

/* Questions that one key answers. */

#define TEXT_OF_HOST(function, key) \
    nvmlReturn_t function(char *text, unsigned int length) { return ask_text(HOST, key, text, length); }
#define TEXT(function, key) \
    nvmlReturn_t function(nvmlDevice_t handle, char *text, unsigned int length) { \
        return ask_text(from_handle(handle), key, text, length); \
    }
#define NUMBER(function, key) \
    nvmlReturn_t function(nvmlDevice_t handle, unsigned int *number) { \
        return ask_unsigned(from_handle(handle), key, number); \
    }
#define WIDE_NUMBER(function, key) \
    nvmlReturn_t function(nvmlDevice_t handle, unsigned long long *number) { \
        return ask_number(from_handle(handle), key, number); \
    }
#define PAIR(function, key) \
    nvmlReturn_t function(nvmlDevice_t handle, unsigned int *first, unsigned int *second) { \
        return ask_pair(from_handle(handle), key, first, second); \
    }
#define PROCESSES(function, key) \
    nvmlReturn_t function(nvmlDevice_t handle, unsigned int *count, nvmlProcessInfo_t *infos) { \
        return ask_processes(from_handle(handle), key, count, infos); \
    }

TEXT_OF_HOST(nvmlSystemGetDriverVersion, "driver")
TEXT_OF_HOST(nvmlSystemGetNVMLVersion, "nvml")
TEXT(nvmlDeviceGetUUID, "uuid")
TEXT(nvmlDeviceGetName, "name")
TEXT(nvmlDeviceGetSerial, "serial")
TEXT(nvmlDeviceGetVbiosVersion, "vbios")
NUMBER(nvmlDeviceGetMinorNumber, "minor")
NUMBER(nvmlDeviceGetBrand, "brand")
NUMBER(nvmlDeviceGetArchitecture, "architecture")
NUMBER(nvmlDeviceGetNumGpuCores, "cores")
NUMBER(nvmlDeviceGetNumaNodeId, "numa_node")
NUMBER(nvmlDeviceGetMemoryBusWidth, "bus_width")
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_generation")
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_generation_max")
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width")
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max")
NUMBER(nvmlDeviceGetPowerUsage, "power")
NUMBER(nvmlDeviceGetPowerManagementLimit, "power_limit")
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, "power_limit_default")
NUMBER(nvmlDeviceGetEnforcedPowerLimit, "power_limit_enforced")
NUMBER(nvmlDeviceGetPersistenceMode, "persistence")
NUMBER(nvmlDeviceGetPerformanceState, "pstate")
WIDE_NUMBER(nvmlDeviceGetTotalEnergyConsumption, "energy")
WIDE_NUMBER(nvmlDeviceGetCurrentClocksEventReasons, "event_reasons")
WIDE_NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, "throttle_reasons")
WIDE_NUMBER(nvmlDeviceGetSupportedClocksEventReasons, "supported_event_reasons")
PAIR(nvmlDeviceGetPowerManagementLimitConstraints, "power_limits")
PAIR(nvmlDeviceGetEccMode, "ecc")
PAIR(nvmlDeviceGetMigMode, "mig")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, "graphics")
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, "mps")

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(
    nvmlDevice_t handle, unsigned int *count, nvmlProcessInfo_t *infos) {
    return ask_compute_processes(from_handle(handle), count, infos);
}

/* Host and handles. */

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    return ask_unsigned(HOST, "cuda", (unsigned int *)version);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    if (!opened) return UNINITIALIZED;
    *count = (unsigned int)count_devices();
    return SUCCESS;
}

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

/* Identity. */

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t handle, int *major, int *minor) {
    char value[VALUE_SIZE];
    nvmlReturn_t code = ask(from_handle(handle), "capability", value);
    if (code != SUCCESS) return code;
    return sscanf(value, "%d.%d", major, minor) == 2 ? SUCCESS : INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t handle, nvmlPciInfo_t *pci) {
    int device = from_handle(handle);
    nvmlReturn_t code = ask_text(device, "pci_bus_id", pci->busId, sizeof pci->busId);
    if (code != SUCCESS) return code;
    if (sscanf(pci->busId, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device) != 3) return INVALID_ARGUMENT;
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", pci->domain & 0xffff, pci->bus & 0xff,
             pci->device & 0xff);
    return ask_unsigned(device, "pci_device_id", &pci->pciDeviceId);
}

nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t handle, unsigned int words, unsigned long *mask) {
    char value[VALUE_SIZE], *rest = value;
    nvmlReturn_t code = ask(from_handle(handle), "cpu_affinity", value);
    for (unsigned int word = 0; code == SUCCESS && word < words; word++) mask[word] = strtoul(rest, &rest, 16);
    return code;
}

/* Links. */

enum { CAPABILITY_NVLINK = 2, P2P_OK = 0, P2P_NOT_SUPPORTED = 5, HOST_BRIDGE = 30, SYSTEM = 50, NVLINKS = 18 };
enum { FAR_GPU = 0, FAR_SWITCH = 2, SWITCH = -1, INACTIVE = -2 };

static int is_nvlink(const link_t *link) { return !strcmp(link->kind, "nvlink") || !strcmp(link->kind, "switch"); }

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t one, nvmlDevice_t other, int capability, int *status) {
    link_t link;
    nvmlReturn_t code = find_link(from_handle(one), from_handle(other), &link);
    int can = capability == CAPABILITY_NVLINK ? is_nvlink(&link) : link.peer;
    *status = can ? P2P_OK : P2P_NOT_SUPPORTED;
    return code;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other, int *level) {
    link_t link;
    nvmlReturn_t code = find_link(from_handle(one), from_handle(other), &link);
    *level = strcmp(link.kind, "pcie") ? SYSTEM : HOST_BRIDGE;
    return code;
}

/* What the NVLink with this number leads to: a device, SWITCH or INACTIVE. All devices share the links to switches. */
static nvmlReturn_t find_far_end(nvmlDevice_t handle, unsigned int number, int *far) {
    link_t link;
    unsigned int from = 0, to_switch = 0;
    nvmlReturn_t code = SUCCESS;
    *far = INACTIVE;
    if (number >= NVLINKS) return INVALID_ARGUMENT;
    for (int other = 0; code == SUCCESS && other < count_devices(); other++) {
        if (other == from_handle(handle)) continue;
        code = find_link(from_handle(handle), other, &link);
        if (!strcmp(link.kind, "switch")) to_switch = link.lanes;
        if (strcmp(link.kind, "nvlink")) continue;
        if (from <= number && number < from + link.lanes) *far = other;
        from += link.lanes;
    }
    if (*far == INACTIVE && number < from + to_switch) *far = SWITCH;
    return code;
}

static nvmlReturn_t tell_far_end(nvmlDevice_t handle, unsigned int number, int *far) {
    char value[VALUE_SIZE];
    nvmlReturn_t code = find_far_end(handle, number, far);
    if (code == SUCCESS && *far == INACTIVE) return NOT_SUPPORTED;
    return code == SUCCESS && find(from_handle(handle), "far_ends", value) ? atoi(value + 1) : code;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t handle, unsigned int number, unsigned int *active) {
    int far;
    nvmlReturn_t code = find_far_end(handle, number, &far);
    *active = far != INACTIVE;
    return code;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t handle, unsigned int number, int *type) {
    int far;
    nvmlReturn_t code = tell_far_end(handle, number, &far);
    *type = far == SWITCH ? FAR_SWITCH : FAR_GPU;
    return code;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t handle, unsigned int number, nvmlPciInfo_t *pci) {
    int far;
    nvmlReturn_t code = tell_far_end(handle, number, &far);
    if (code != SUCCESS) return code;
    if (far != SWITCH) return nvmlDeviceGetPciInfo_v3(to_handle(far), pci);
    *pci = (nvmlPciInfo_t){.bus = 0xff};
    return SUCCESS;
}

/* Memory: what the driver keeps for itself counts as used in the first version of the question only. */

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t handle, nvmlMemory_t *memory) {
    unsigned long long reserved = 0;
    int device = from_handle(handle);
    nvmlReturn_t code = ask_number(device, "memory", &memory->total);
    if (code == SUCCESS) code = ask_number(device, "memory_used", &memory->used);
    if (code != SUCCESS) return code;
    ask_number(device, "memory_reserved", &reserved);
    memory->used += reserved;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t handle, nvmlMemory_v2_t *memory) {
    int device = from_handle(handle);
    if (memory->version != MEMORY_V2) return VERSION_MISMATCH;
    nvmlReturn_t code = ask_number(device, "memory", &memory->total);
    if (code == SUCCESS) code = ask_number(device, "memory_used", &memory->used);
    if (code == SUCCESS) code = ask_number(device, "memory_reserved", &memory->reserved);
    if (code == SUCCESS) memory->free = memory->total - memory->used - memory->reserved;
    return code;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t handle, int type, int counter, unsigned long long *count) {
    static const char *const KEYS[2][2] = {
        {"ecc_corrected", "ecc_corrected_total"},
        {"ecc_uncorrected", "ecc_uncorrected_total"},
    };
    if (type < 0 || type > 1 || counter < 0 || counter > 1) return INVALID_ARGUMENT;
    return ask_number(from_handle(handle), KEYS[type][counter], count);
}

/* Clocks. */

static const char *const CLOCK_NAMES[CLOCKS] = {"clock_graphics", "clock_sm", "clock_memory", "clock_video"};

/* The graphics clock is the SM clock unless the world says otherwise. */
static nvmlReturn_t ask_clock(int device, const char *prefix, int type, unsigned int *megahertz) {
    char key[64];
    if (type < 0 || type >= CLOCKS) return INVALID_ARGUMENT;
    snprintf(key, sizeof key, "%s%s", prefix, CLOCK_NAMES[type]);
    nvmlReturn_t code = ask_unsigned(device, key, megahertz);
    return code == NOT_SUPPORTED && type == CLOCK_GRAPHICS ? ask_clock(device, prefix, CLOCK_SM, megahertz) : code;
}

/* Keeps a clock within the range it is locked to, if it is and the device obeys. */
static void obey_lock(int device, int type, unsigned int *megahertz) {
    const char *key = type == CLOCK_MEMORY ? "memory_locked" : "sm_locked";
    char value[VALUE_SIZE];
    unsigned int low, high;
    if (type == CLOCK_VIDEO || flag(device, "lock_ignored") || !find_state(device, key, value)) return;
    if (sscanf(value, "%u %u", &low, &high) != 2) abort();
    if (*megahertz < low) *megahertz = low;
    if (*megahertz > high) *megahertz = high;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t handle, int type, unsigned int *megahertz) {
    nvmlReturn_t code = ask_clock(from_handle(handle), "", type, megahertz);
    if (code == SUCCESS) obey_lock(from_handle(handle), type, megahertz);
    return code;
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t handle, int type, unsigned int *megahertz) {
    return ask_clock(from_handle(handle), "max_", type, megahertz);
}

nvmlReturn_t nvmlDeviceGetDefaultApplicationsClock(nvmlDevice_t handle, int type, unsigned int *megahertz) {
    return ask_clock(from_handle(handle), "default_", type, megahertz);
}

nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t handle, int type, unsigned int *megahertz) {
    return ask_clock(from_handle(handle), "default_", type, megahertz);
}

nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t handle, int type, int id, unsigned int *megahertz) {
    enum { CURRENT, APPLICATION_TARGET, APPLICATION_DEFAULT, BOOST_MAX };
    switch (id) {
    case CURRENT: return nvmlDeviceGetClockInfo(handle, type, megahertz);
    case APPLICATION_TARGET:
    case APPLICATION_DEFAULT: return ask_clock(from_handle(handle), "default_", type, megahertz);
    case BOOST_MAX: return ask_clock(from_handle(handle), "max_", type, megahertz);
    default: return INVALID_ARGUMENT;
    }
}

nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t handle, unsigned int *count, unsigned int *clocks) {
    return ask_list(from_handle(handle), "memory_clocks", count, clocks);
}

static nvmlReturn_t ask_graphics_clocks(int device, unsigned int memory, unsigned int *count, unsigned int *clocks) {
    char key[64], value[VALUE_SIZE];
    snprintf(key, sizeof key, "graphics_clocks_%u", memory);
    nvmlReturn_t code = ask_list(device, key, count, clocks);
    return code == NOT_SUPPORTED && ask(device, "memory_clocks", value) == SUCCESS ? NOT_FOUND : code;
}

nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t handle, unsigned int memory, unsigned int *count,
                                                  unsigned int *clocks) {
    return ask_graphics_clocks(from_handle(handle), memory, count, clocks);
}

/* Telemetry. */

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t handle, int sensor, unsigned int *celsius) {
    return sensor == 0 ? ask_unsigned(from_handle(handle), "temperature", celsius) : INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t handle, nvmlTemperature_t *temperature) {
    if (temperature->version != TEMPERATURE_V1) return VERSION_MISMATCH;
    return nvmlDeviceGetTemperature(handle, (int)temperature->sensor, (unsigned int *)&temperature->temperature);
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t handle, int threshold, unsigned int *celsius) {
    static const char *const KEYS[] = {"temperature_shutdown", "temperature_slowdown", "temperature_memory_max",
                                       "temperature_gpu_max"};
    if (threshold < 0 || threshold > 3) return NOT_SUPPORTED;
    return ask_unsigned(from_handle(handle), KEYS[threshold], celsius);
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t handle, nvmlUtilization_t *percent) {
    return ask_pair(from_handle(handle), "utilization", &percent->gpu, &percent->memory);
}

nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t handle, int policy, nvmlViolationTime_t *time) {
    static const char *const KEYS[] = {"counter_sw_power_cap", "counter_thermal", "counter_sync_boost",
                                       "counter_board_limit"};
    if (policy < 0 || policy > 3) return NOT_SUPPORTED;
    time->referenceTime = 0;
    return ask_number(from_handle(handle), KEYS[policy], &time->violationTime);
}

static const struct { unsigned int id; const char *key; unsigned int type; } FIELDS[] = {
    {3, "ecc_corrected", UNSIGNED_LONG_LONG},
    {4, "ecc_uncorrected", UNSIGNED_LONG_LONG},
    {5, "ecc_corrected_total", UNSIGNED_LONG_LONG},
    {6, "ecc_uncorrected_total", UNSIGNED_LONG_LONG},
    {74, "counter_sw_power_cap", UNSIGNED_LONG_LONG},
    {75, "counter_thermal", UNSIGNED_LONG_LONG},
    {76, "counter_sync_boost", UNSIGNED_LONG_LONG},
    {77, "counter_board_limit", UNSIGNED_LONG_LONG},
    {82, "temperature_memory", UNSIGNED_INT},
    {83, "energy", UNSIGNED_LONG_LONG},
    {90, "link_speed", UNSIGNED_INT},
    {185, "power_average", UNSIGNED_INT},
    {186, "power_instant", UNSIGNED_INT},
    {189, "power_limit_default", UNSIGNED_INT},
    {190, "power_limit", UNSIGNED_INT},
    {269, "counter_sw_thermal", UNSIGNED_LONG_LONG},
    {270, "counter_hw_thermal", UNSIGNED_LONG_LONG},
    {271, "counter_power_brake", UNSIGNED_LONG_LONG},
};

static void answer_field(int device, nvmlFieldValue_t *field) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    field->timestamp = now.tv_sec * 1000000LL + now.tv_nsec / 1000;
    field->nvmlReturn = NOT_SUPPORTED;
    for (size_t i = 0; i < sizeof FIELDS / sizeof *FIELDS; i++) {
        if (FIELDS[i].id != field->fieldId) continue;
        unsigned long long number = 0;
        field->valueType = FIELDS[i].type;
        field->nvmlReturn = ask_number(device, FIELDS[i].key, &number);
        if (field->valueType == UNSIGNED_INT) field->value.ui = (unsigned int)number;
        else field->value.ull = number;
    }
}

/* The whole call fails only when the device does not answer at all; each field has a code of its own. */
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t handle, int count, nvmlFieldValue_t *fields) {
    char value[VALUE_SIZE];
    nvmlReturn_t code = ask(from_handle(handle), "uuid", value);
    for (int i = 0; code == SUCCESS && i < count; i++) answer_field(from_handle(handle), &fields[i]);
    return code;
}

/* Settings. */

/* The clock nearest to `megahertz` in the list; itself where there is no list. */
static unsigned int snap(const unsigned int *clocks, unsigned int count, unsigned int megahertz) {
    unsigned int best = count ? clocks[0] : megahertz;
    for (unsigned int i = 1; i < count; i++)
        if (abs((int)clocks[i] - (int)megahertz) < abs((int)best - (int)megahertz)) best = clocks[i];
    return best;
}

/* Turns a pair of limits as given into the range that is installed. */
static nvmlReturn_t to_range(int device, int type, unsigned int *low, unsigned int *high) {
    unsigned int memory[64], clocks[512], memories = 64, count = 512, tdp = 0;
    if (*low < SYMBOLIC && *high < SYMBOLIC) {
        if (*low > *high) return INVALID_ARGUMENT;
        if (ask_list(device, "memory_clocks", &memories, memory) != SUCCESS || !memories) return SUCCESS;
        if (type == CLOCK_SM && ask_graphics_clocks(device, memory[0], &count, clocks) != SUCCESS) return SUCCESS;
        const unsigned int *list = type == CLOCK_SM ? clocks : memory, length = type == CLOCK_SM ? count : memories;
        *low = snap(list, length, *low);
        *high = snap(list, length, *high);
        return SUCCESS;
    }
    int known = (*low == LIMIT_TDP || *low == LIMIT_UNLIMITED) && (*high == LIMIT_TDP || *high == LIMIT_UNLIMITED);
    if (!known || type != CLOCK_SM) return INVALID_ARGUMENT;
    nvmlReturn_t code = ask_unsigned(device, "tdp_clock", &tdp);
    *low = *low == LIMIT_TDP ? tdp : 0;
    *high = *high == LIMIT_TDP ? tdp : LIMIT_UNLIMITED;
    return code;
}

static const char *limit_name(unsigned int limit, char name[16]) {
    if (limit == LIMIT_TDP) return "tdp";
    if (limit == LIMIT_UNLIMITED) return "unlimited";
    snprintf(name, 16, "%u", limit);
    return name;
}

static nvmlReturn_t lock_clocks(nvmlDevice_t handle, const char *function, int type, unsigned int low, unsigned int high) {
    int device = from_handle(handle), memory = type == CLOCK_MEMORY;
    unsigned int from = low, to = high;
    char value[32], first[16], second[16];
    nvmlReturn_t code = permit(device, memory ? "memory_lockable" : "sm_lockable", memory ? "lock_memory" : "lock");
    if (code == SUCCESS) code = to_range(device, type, &from, &to);
    snprintf(value, sizeof value, "%u %u", from, to);
    if (code == SUCCESS) change_state(device, memory ? "memory_locked" : "sm_locked", value);
    return logged(code, device, function, " %s %s", limit_name(low, first), limit_name(high, second));
}

static nvmlReturn_t reset_clocks(nvmlDevice_t handle, const char *function, int type) {
    int device = from_handle(handle), memory = type == CLOCK_MEMORY;
    nvmlReturn_t code = permit(device, memory ? "memory_lockable" : "sm_lockable", "reset");
    if (code == SUCCESS && !flag(device, "reset_ignored"))
        change_state(device, memory ? "memory_locked" : "sm_locked", NULL);
    return logged(code, device, function, "%s", "");
}

nvmlReturn_t nvmlDeviceSetGpuLockedClocks(nvmlDevice_t handle, unsigned int low, unsigned int high) {
    return lock_clocks(handle, __func__, CLOCK_SM, low, high);
}

nvmlReturn_t nvmlDeviceSetMemoryLockedClocks(nvmlDevice_t handle, unsigned int low, unsigned int high) {
    return lock_clocks(handle, __func__, CLOCK_MEMORY, low, high);
}

nvmlReturn_t nvmlDeviceResetGpuLockedClocks(nvmlDevice_t handle) { return reset_clocks(handle, __func__, CLOCK_SM); }

nvmlReturn_t nvmlDeviceResetMemoryLockedClocks(nvmlDevice_t handle) {
    return reset_clocks(handle, __func__, CLOCK_MEMORY);
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t handle, unsigned int *mode) {
    char value[VALUE_SIZE];
    nvmlReturn_t code = ask_unsigned(from_handle(handle), "compute_mode", mode);
    if (code == SUCCESS && find_state(from_handle(handle), "compute_mode", value)) *mode = (unsigned int)atoi(value);
    return code;
}

nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t handle, unsigned int mode) {
    int device = from_handle(handle);
    char value[16];
    nvmlReturn_t code = permit(device, "compute_mode", "set_compute_mode");
    if (code == SUCCESS && mode > 3) code = INVALID_ARGUMENT;
    snprintf(value, sizeof value, "%u", mode);
    if (code == SUCCESS && !flag(device, "compute_mode_ignored")) change_state(device, "compute_mode", value);
    return logged(code, device, __func__, " %u", mode);
}

/* Settings that nobody is meant to touch: refused, and in the log for all to see. */

#define UNTOUCHED(function, ...) \
    nvmlReturn_t function(nvmlDevice_t handle, ##__VA_ARGS__) { \
        return logged(NOT_SUPPORTED, from_handle(handle), __func__, "%s", ""); \
    }

UNTOUCHED(nvmlDeviceResetApplicationsClocks)
UNTOUCHED(nvmlDeviceSetApplicationsClocks, unsigned int memory __attribute__((unused)), unsigned int graphics __attribute__((unused)))
UNTOUCHED(nvmlDeviceSetPersistenceMode, unsigned int mode __attribute__((unused)))
UNTOUCHED(nvmlDeviceSetPowerManagementLimit, unsigned int milliwatts __attribute__((unused)))
UNTOUCHED(nvmlDeviceSetEccMode, unsigned int mode __attribute__((unused)))
UNTOUCHED(nvmlDeviceSetMigMode, unsigned int mode __attribute__((unused)), nvmlReturn_t *activation __attribute__((unused)))
