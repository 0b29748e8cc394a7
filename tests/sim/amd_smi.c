/*
 * A simulated AMD driver: a libamd_smi.so with the functions that this program calls.
 *
 * World, state, log and looks are those of nvml.c, and the keys have the same names where they mean the same. The world
 * is named by KERNEL_MATRIX_SIM_AMD_WORLD. "!N" answers with AMD SMI's error code N. A line that is absent answers "not
 * supported" (2), or fills the field of a structure with ones, as the library does. Clocks are MHz, powers mW (the
 * library tells whole watts), energy mJ, memory bytes.
 *
 *   host         driver (6.12.12)  version (26 0 2: the library's)  init (!N: refuses to open)  unprivileged (1)
 *   identity     uuid  name  minor (of the render node)  pci (0000:65:00.0)  target (0x942)  compute_units
 *   links        links: as in nvml.c, with the kinds xgmi, pcie and host (from one CPU to another)
 *                link_speed (MB/s of one XGMI link)
 *   memory       memory  memory_used
 *   clocks       clock_sm  clock_memory  min_clock_sm  max_clock_sm  max_clock_memory
 *                stable_clock (what the level STABLE_STD locks to; absent: there is no such level)
 *   power, heat  power_instant  power_average  energy  power_limit  power_limit_default  power_limits (min max)
 *                temperature (hot spot)  temperature_edge
 *   reasons      counter_cycles  counter_prochot  counter_power  counter_socket_thermal  counter_vr_thermal
 *                counter_hbm_thermal: cycles of the firmware, and those of them under a limit; throttle_status (bits)
 *   modes        ecc  ecc_corrected  ecc_uncorrected  partition (SPX)  memory_partition (NPS1)  perf_level
 *                utilization (gpu memory)
 *   processes    compute
 *   settings     sm_lockable  memory_lockable  (1: clocks can be limited; absent: not supported)
 *   faults       metrics (!N: the table of measurements answers N)  lost  unprivileged  lock  lock_memory  reset
 *                lock_ignored (1: reports success and the level, and the clocks stay)
 *                level_ignored (1: reports success, and the level stays)
 *                reset_ignored (1: reports success, and the limits stay)
 *
 * A limit of the SM clock is a highest clock: "sm_locked 0 1900". The level of a device is one for both clocks, so that
 * setting one ends the other, as in the driver.
 */
#define _GNU_SOURCE
#include <stdint.h>

enum {
    SUCCESS = 0, INVALID_ARGUMENT = 1, NOT_SUPPORTED = 2, NO_PERMISSION = 10, OUT_OF_RESOURCES = 15, GPU_IS_LOST = 31,
    UNINITIALIZED = 32, INSUFFICIENT_SIZE = 41
};

#define WORLD_VARIABLE "KERNEL_MATRIX_SIM_AMD_WORLD"
#include "world.h"

enum { AUTO = 0, MANUAL = 3, STABLE_STD = 4, DETERMINISM = 8 };
enum { CLOCK_SM = 0, CLOCK_MEMORY = 4 };
enum { TEXT = 256 };
#define MICROJOULES_PER_COUNT 15.259f

/* amdsmi.h's types of the library's version 26, as far as they cross this boundary. */
typedef uint32_t amdsmi_status_t;
typedef void *amdsmi_processor_handle;
typedef struct { uint32_t major, minor, release; const char *build; } amdsmi_version_t;
typedef struct {
    char market_name[TEXT];
    uint32_t vendor_id;
    char vendor_name[TEXT];
    uint32_t subvendor_id;
    uint64_t device_id;
    uint32_t rev_id;
    char asic_serial[TEXT];
    uint32_t oam_id, num_of_compute_units;
    uint64_t target_graphics_version;
    uint32_t subsystem_id, reserved[21];
} amdsmi_asic_info_t;
typedef struct { char driver_version[TEXT], driver_date[TEXT], driver_name[TEXT]; } amdsmi_driver_info_t;
typedef struct { uint32_t drm_render, drm_card, hsa_id, hip_id; char hip_uuid[TEXT]; } amdsmi_enumeration_info_t;
typedef struct {
    uint32_t clk, min_clk, max_clk;
    uint8_t clk_locked, clk_deep_sleep;
    uint32_t reserved[4];
} amdsmi_clk_info_t;
typedef struct {
    uint64_t power_cap, default_power_cap, dpm_cap, min_power_cap, max_power_cap, reserved[3];
} amdsmi_power_cap_info_t;
typedef struct { uint64_t correctable_count, uncorrectable_count, deferred_count, reserved[5]; } amdsmi_error_count_t;
typedef struct {
    char name[TEXT];
    uint32_t pid;
    uint64_t mem;
    struct { uint64_t gfx, enc; uint32_t reserved[12]; } engine_usage;
    struct { uint64_t gtt_mem, cpu_mem, vram_mem; uint32_t reserved[10]; } memory_usage;
    char container_name[TEXT];
    uint32_t cu_occupancy, reserved[11];
} amdsmi_proc_info_t;
typedef struct {
    uint16_t structure_size;
    uint8_t format_revision, content_revision;
    uint16_t temperature_edge, temperature_hotspot, temperature_mem;
    uint16_t temperature_vrgfx, temperature_vrsoc, temperature_vrmem;
    uint16_t average_gfx_activity, average_umc_activity, average_mm_activity;
    uint16_t average_socket_power;
    uint64_t energy_accumulator, system_clock_counter;
    uint16_t average_gfxclk_frequency, average_socclk_frequency, average_uclk_frequency;
    uint16_t average_vclk0_frequency, average_dclk0_frequency, average_vclk1_frequency, average_dclk1_frequency;
    uint16_t current_gfxclk, current_socclk, current_uclk, current_vclk0, current_dclk0, current_vclk1, current_dclk1;
    uint32_t throttle_status;
    uint16_t current_fan_speed, pcie_link_width, pcie_link_speed;
    uint32_t gfx_activity_acc, mem_activity_acc;
    uint16_t temperature_hbm[4];
    uint64_t firmware_timestamp;
    uint16_t voltage_soc, voltage_gfx, voltage_mem;
    uint64_t indep_throttle_status;
    uint16_t current_socket_power, vcn_activity[4];
    uint32_t gfxclk_lock_status;
    uint16_t xgmi_link_width, xgmi_link_speed;
    uint64_t pcie_bandwidth_acc, pcie_bandwidth_inst;
    uint64_t pcie_l0_to_recov_count_acc, pcie_replay_count_acc, pcie_replay_rover_count_acc;
    uint64_t xgmi_read_data_acc[8], xgmi_write_data_acc[8];
    uint16_t current_gfxclks[8], current_socclks[4], current_vclk0s[4], current_dclk0s[4], jpeg_activity[32];
    uint32_t pcie_nak_sent_count_acc, pcie_nak_rcvd_count_acc;
    uint64_t accumulation_counter, prochot_residency_acc, ppt_residency_acc;
    uint64_t socket_thm_residency_acc, vr_thm_residency_acc, hbm_thm_residency_acc;
    uint16_t num_partition;
    uint64_t partitions[504]; /* amdsmi_gpu_xcp_metrics_t[8], of which nothing is read */
    uint32_t pcie_lc_perf_other_end_recovery;
    uint64_t vram_max_bandwidth;
    uint16_t xgmi_link_status[8];
} amdsmi_gpu_metrics_t;

/* Sizes by the name of the structure, for the test that compares them with those of the bindings. */
const struct { const char *name; uint64_t size; } simulated_sizes[] = {
    {"AsicInfo", sizeof(amdsmi_asic_info_t)},
    {"DriverInfo", sizeof(amdsmi_driver_info_t)},
    {"EnumerationInfo", sizeof(amdsmi_enumeration_info_t)},
    {"ClockInfo", sizeof(amdsmi_clk_info_t)},
    {"PowerCap", sizeof(amdsmi_power_cap_info_t)},
    {"ErrorCount", sizeof(amdsmi_error_count_t)},
    {"ProcessInfo", sizeof(amdsmi_proc_info_t)},
    {"GpuMetrics", sizeof(amdsmi_gpu_metrics_t)},
    {NULL, 0},
};

static amdsmi_processor_handle to_handle(int device) { return (void *)(size_t)(device + 1); }
static int from_handle(amdsmi_processor_handle handle) { return (int)(size_t)handle - 1; }

/* The number under a key; all ones if the device does not tell it. */
static uint64_t told(int device, const char *key) {
    unsigned long long number = UINT64_MAX;
    return ask_number(device, key, &number) == SUCCESS ? number : UINT64_MAX;
}

static uint64_t told_in_thousands(int device, const char *key) {
    uint64_t number = told(device, key);
    return number == UINT64_MAX ? number : number / 1000;
}

/* The library itself. It does not count how often it is opened. */

amdsmi_status_t amdsmi_init(uint64_t flags) {
    char value[VALUE_SIZE];
    if (flags != 2) return INVALID_ARGUMENT; /* GPUs only */
    if (find(HOST, "init", value)) return (amdsmi_status_t)atoi(value + 1);
    opened = 1;
    return SUCCESS;
}

amdsmi_status_t amdsmi_shut_down(void) {
    opened = 0;
    return SUCCESS;
}

amdsmi_status_t amdsmi_get_lib_version(amdsmi_version_t *version) {
    char value[VALUE_SIZE];
    int code = ask(HOST, "version", value);
    if (code != SUCCESS) return (amdsmi_status_t)code;
    version->build = "simulated";
    int read = sscanf(value, "%u %u %u", &version->major, &version->minor, &version->release);
    return read == 3 ? SUCCESS : INVALID_ARGUMENT;
}

/* Each device has a socket of its own, whose handle is the device's, too. */
amdsmi_status_t amdsmi_get_socket_handles(uint32_t *count, void **sockets) {
    if (!opened) return UNINITIALIZED;
    uint32_t devices = (uint32_t)count_devices();
    *count = sockets && *count < devices ? *count : devices;
    for (uint32_t device = 0; sockets && device < *count; device++) sockets[device] = to_handle((int)device);
    return SUCCESS;
}

amdsmi_status_t amdsmi_get_processor_handles(void *socket, uint32_t *count, amdsmi_processor_handle *handles) {
    if (!opened) return UNINITIALIZED;
    if (handles && *count) handles[0] = socket;
    *count = 1;
    return SUCCESS;
}

/* Identity. */

amdsmi_status_t amdsmi_get_gpu_device_uuid(amdsmi_processor_handle handle, unsigned int *length, char *uuid) {
    return *length < 38 ? INVALID_ARGUMENT : (amdsmi_status_t)ask_text(from_handle(handle), "uuid", uuid, *length);
}

amdsmi_status_t amdsmi_get_gpu_device_bdf(amdsmi_processor_handle handle, uint64_t *bdf) {
    char value[VALUE_SIZE];
    unsigned int domain, bus, device, function;
    int code = ask(from_handle(handle), "pci", value);
    if (code != SUCCESS) return (amdsmi_status_t)code;
    if (sscanf(value, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4) return INVALID_ARGUMENT;
    *bdf = (uint64_t)domain << 16 | bus << 8 | device << 3 | function;
    return SUCCESS;
}

amdsmi_status_t amdsmi_get_gpu_enumeration_info(amdsmi_processor_handle handle, amdsmi_enumeration_info_t *info) {
    memset(info, 0xff, sizeof *info);
    return (amdsmi_status_t)ask_unsigned(from_handle(handle), "minor", &info->drm_render);
}

amdsmi_status_t amdsmi_get_gpu_asic_info(amdsmi_processor_handle handle, amdsmi_asic_info_t *info) {
    int device = from_handle(handle);
    memset(info, 0xff, sizeof *info);
    int code = ask_text(device, "name", info->market_name, TEXT);
    info->target_graphics_version = told(device, "target");
    info->num_of_compute_units = (uint32_t)told(device, "compute_units");
    return (amdsmi_status_t)code;
}

amdsmi_status_t amdsmi_get_gpu_driver_info(amdsmi_processor_handle handle, amdsmi_driver_info_t *info) {
    char value[VALUE_SIZE];
    memset(info, 0, sizeof *info);
    strcpy(info->driver_date, "2015/01/01");
    strcpy(info->driver_name, "amdgpu");
    int code = ask(from_handle(handle), "uuid", value);
    return (amdsmi_status_t)(code == SUCCESS ? ask_text(HOST, "driver", info->driver_version, TEXT) : code);
}

/* Links. */

enum { PCIE = 1, XGMI = 2 };

amdsmi_status_t amdsmi_topo_get_link_type(
    amdsmi_processor_handle one, amdsmi_processor_handle other, uint64_t *hops, uint32_t *type) {
    link_t link;
    int code = find_link(from_handle(one), from_handle(other), &link);
    int is_xgmi = !strcmp(link.kind, "xgmi");
    *type = is_xgmi ? XGMI : PCIE;
    *hops = is_xgmi ? 1 : strcmp(link.kind, "host") ? 2 : 3;
    return (amdsmi_status_t)code;
}

amdsmi_status_t amdsmi_is_P2P_accessible(amdsmi_processor_handle one, amdsmi_processor_handle other, _Bool *accessible) {
    link_t link;
    int code = find_link(from_handle(one), from_handle(other), &link);
    *accessible = link.peer;
    return (amdsmi_status_t)code;
}

amdsmi_status_t amdsmi_get_minmax_bandwidth_between_processors(
    amdsmi_processor_handle one, amdsmi_processor_handle other, uint64_t *least, uint64_t *most) {
    link_t link;
    unsigned long long speed = 0;
    int code = find_link(from_handle(one), from_handle(other), &link);
    if (code == SUCCESS) code = ask_number(from_handle(one), "link_speed", &speed);
    if (code != SUCCESS) return (amdsmi_status_t)code;
    *least = speed;
    *most = speed * link.lanes;
    return strcmp(link.kind, "xgmi") ? NOT_SUPPORTED : SUCCESS;
}

/* Questions that one key answers. */

#define VRAM_NUMBER(function, key) \
    amdsmi_status_t function(amdsmi_processor_handle handle, int memory, uint64_t *number) { \
        unsigned long long wide = 0; \
        int code = memory == 0 ? ask_number(from_handle(handle), key, &wide) : NOT_SUPPORTED; \
        *number = wide; \
        return (amdsmi_status_t)code; \
    }
#define TEXT_OF(function, key) \
    amdsmi_status_t function(amdsmi_processor_handle handle, char *text, uint32_t length) { \
        return (amdsmi_status_t)ask_text(from_handle(handle), key, text, length); \
    }

VRAM_NUMBER(amdsmi_get_gpu_memory_total, "memory")
VRAM_NUMBER(amdsmi_get_gpu_memory_usage, "memory_used")
TEXT_OF(amdsmi_get_gpu_compute_partition, "partition")
TEXT_OF(amdsmi_get_gpu_memory_partition, "memory_partition")

amdsmi_status_t amdsmi_get_gpu_ecc_enabled(amdsmi_processor_handle handle, uint64_t *blocks) {
    unsigned long long on = 0;
    int code = ask_number(from_handle(handle), "ecc", &on);
    *blocks = on ? 1 | 1 << 2 : 1 << 2; /* block 1 is the memory; another one is always on */
    return (amdsmi_status_t)code;
}

amdsmi_status_t amdsmi_get_gpu_total_ecc_count(amdsmi_processor_handle handle, amdsmi_error_count_t *count) {
    unsigned long long corrected = 0, uncorrected = 0;
    memset(count, 0, sizeof *count);
    int code = ask_number(from_handle(handle), "ecc_corrected", &corrected);
    if (code == SUCCESS) code = ask_number(from_handle(handle), "ecc_uncorrected", &uncorrected);
    count->correctable_count = corrected;
    count->uncorrectable_count = uncorrected;
    return (amdsmi_status_t)code;
}

amdsmi_status_t amdsmi_get_power_cap_info(
    amdsmi_processor_handle handle, uint32_t sensor, amdsmi_power_cap_info_t *info) {
    unsigned int low, high;
    unsigned long long limit = 0;
    int device = from_handle(handle);
    memset(info, 0xff, sizeof *info);
    int code = sensor == 0 ? ask_number(device, "power_limit", &limit) : NOT_SUPPORTED;
    if (code == SUCCESS) code = ask_pair(device, "power_limits", &low, &high);
    if (code != SUCCESS) return (amdsmi_status_t)code;
    info->power_cap = limit * 1000;
    info->default_power_cap = told(device, "power_limit_default") * 1000;
    info->min_power_cap = low * 1000ull;
    info->max_power_cap = high * 1000ull;
    return SUCCESS;
}

/* The size of the list is told, whether or not the buffer holds it. */
amdsmi_status_t amdsmi_get_gpu_process_list(amdsmi_processor_handle handle, uint32_t *count, amdsmi_proc_info_t *list) {
    char value[VALUE_SIZE], *rest = value;
    unsigned int pid, found = 0, room = *count;
    unsigned long long bytes;
    note_look();
    int code = ask(from_handle(handle), "compute", value);
    if (code != SUCCESS) return (amdsmi_status_t)code;
    if (room && !list) return INVALID_ARGUMENT;
    for (; next_process(&rest, &pid, &bytes); found++) {
        if (found >= room) continue;
        memset(&list[found], 0xff, sizeof *list);
        strcpy(list[found].name, "N/A");
        list[found].pid = pid;
        list[found].mem = bytes;
    }
    *count = found;
    return room && found > room ? OUT_OF_RESOURCES : SUCCESS;
}

/* Clocks and telemetry. */

/* A clock within the limits that are set, if the device obeys. */
static uint16_t limited(int device, const char *key, const char *limits) {
    char value[VALUE_SIZE];
    uint64_t megahertz = told(device, key), low, high;
    int obeys = megahertz != UINT64_MAX && !flag(device, "lock_ignored") && find_state(device, limits, value);
    if (!obeys) return (uint16_t)megahertz;
    if (sscanf(value, "%lu %lu", &low, &high) != 2) abort();
    return (uint16_t)(megahertz < low ? low : megahertz > high ? high : megahertz);
}

amdsmi_status_t amdsmi_get_clock_info(amdsmi_processor_handle handle, int clock, amdsmi_clk_info_t *info) {
    int device = from_handle(handle), memory = clock == CLOCK_MEMORY;
    memset(info, 0xff, sizeof *info);
    if (!memory && clock != CLOCK_SM) return INVALID_ARGUMENT;
    int code = ask_unsigned(device, memory ? "max_clock_memory" : "max_clock_sm", &info->max_clk);
    info->min_clk = (uint32_t)told(device, memory ? "min_clock_memory" : "min_clock_sm");
    info->clk = memory ? limited(device, "clock_memory", "memory_locked") : limited(device, "clock_sm", "sm_locked");
    return (amdsmi_status_t)code;
}

amdsmi_status_t amdsmi_get_gpu_metrics_info(amdsmi_processor_handle handle, amdsmi_gpu_metrics_t *metrics) {
    char value[VALUE_SIZE];
    unsigned int busy;
    int device = from_handle(handle), code = ask(device, "metrics", value);
    if (code == NOT_SUPPORTED && !find(device, "metrics", value)) code = ask(device, "uuid", value);
    if (code != SUCCESS) return (amdsmi_status_t)code;
    memset(metrics, 0xff, sizeof *metrics);
    metrics->temperature_hotspot = (uint16_t)told(device, "temperature");
    metrics->temperature_edge = (uint16_t)told(device, "temperature_edge");
    metrics->current_gfxclk = limited(device, "clock_sm", "sm_locked");
    metrics->current_uclk = limited(device, "clock_memory", "memory_locked");
    metrics->current_socket_power = (uint16_t)told_in_thousands(device, "power_instant");
    metrics->average_socket_power = (uint16_t)told_in_thousands(device, "power_average");
    metrics->indep_throttle_status = told(device, "throttle_status");
    metrics->accumulation_counter = told(device, "counter_cycles");
    metrics->prochot_residency_acc = told(device, "counter_prochot");
    metrics->ppt_residency_acc = told(device, "counter_power");
    metrics->socket_thm_residency_acc = told(device, "counter_socket_thermal");
    metrics->vr_thm_residency_acc = told(device, "counter_vr_thermal");
    metrics->hbm_thm_residency_acc = told(device, "counter_hbm_thermal");
    if (ask_pair(device, "utilization", &busy, (unsigned int[1]){0}) == SUCCESS)
        metrics->average_gfx_activity = (uint16_t)busy;
    return SUCCESS;
}

amdsmi_status_t amdsmi_get_energy_count(
    amdsmi_processor_handle handle, uint64_t *count, float *resolution, uint64_t *at) {
    unsigned long long millijoules = 0;
    int code = ask_number(from_handle(handle), "energy", &millijoules);
    *count = (uint64_t)((double)millijoules * 1000 / MICROJOULES_PER_COUNT);
    *resolution = MICROJOULES_PER_COUNT;
    *at = 0;
    return (amdsmi_status_t)code;
}

/* Settings. */

amdsmi_status_t amdsmi_get_gpu_perf_level(amdsmi_processor_handle handle, uint32_t *level) {
    char value[VALUE_SIZE];
    int code = ask_unsigned(from_handle(handle), "perf_level", level);
    if (code == SUCCESS && find_state(from_handle(handle), "perf_level", value)) *level = (uint32_t)atoi(value);
    return (amdsmi_status_t)code;
}

/* Enters a level; each ends the limits of the one before. */
static void enter(int device, unsigned int level) {
    char value[16];
    if (flag(device, "level_ignored")) return;
    snprintf(value, sizeof value, "%u", level);
    change_state(device, "sm_locked", NULL);
    change_state(device, "memory_locked", NULL);
    change_state(device, "perf_level", level == AUTO ? NULL : value);
}

static void limit(int device, const char *key, uint64_t low, uint64_t high) {
    char value[64];
    snprintf(value, sizeof value, "%lu %lu", low, high);
    if (!flag(device, "level_ignored")) change_state(device, key, value);
}

amdsmi_status_t amdsmi_set_gpu_perf_level(amdsmi_processor_handle handle, uint32_t level) {
    int device = from_handle(handle);
    unsigned int stable = 0;
    int code = permit(device, "sm_lockable", level == AUTO ? "reset" : "lock");
    if (code == SUCCESS && level == STABLE_STD) code = ask_unsigned(device, "stable_clock", &stable);
    if (code == SUCCESS && level != AUTO && level != STABLE_STD) code = INVALID_ARGUMENT;
    if (code == SUCCESS && !(level == AUTO && flag(device, "reset_ignored"))) enter(device, level);
    if (code == SUCCESS && level == STABLE_STD) limit(device, "sm_locked", stable, stable);
    return (amdsmi_status_t)logged(code, device, __func__, " %u", level);
}

/* Refuses a clock out of range after it has entered the level, as the driver does. */
amdsmi_status_t amdsmi_set_gpu_perf_determinism_mode(amdsmi_processor_handle handle, uint64_t megahertz) {
    int device = from_handle(handle);
    int code = permit(device, "sm_lockable", "lock");
    if (code == SUCCESS) {
        enter(device, DETERMINISM);
        if (megahertz > told(device, "max_clock_sm") || megahertz < told(device, "min_clock_sm")) code = INVALID_ARGUMENT;
    }
    if (code == SUCCESS) limit(device, "sm_locked", 0, megahertz);
    return (amdsmi_status_t)logged(code, device, __func__, " %lu", megahertz);
}

amdsmi_status_t amdsmi_set_gpu_clk_limit(amdsmi_processor_handle handle, int clock, int highest, uint64_t megahertz) {
    int device = from_handle(handle);
    int code = permit(device, "memory_lockable", "lock_memory");
    if (code == SUCCESS && (clock != CLOCK_MEMORY || highest != 1)) code = INVALID_ARGUMENT;
    if (code == SUCCESS) {
        enter(device, MANUAL);
        limit(device, "memory_locked", 0, megahertz);
    }
    return (amdsmi_status_t)logged(code, device, __func__, " %d %d %lu", clock, highest, megahertz);
}
