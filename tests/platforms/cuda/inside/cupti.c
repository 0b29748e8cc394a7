/*
 * A simulated CUPTI: records what the test says that the device ran, laid out as CUPTI 11 to 13 lay it out.
 *
 * Nothing is recorded of a kind that is not enabled. Each buffer takes `per_buffer` records, then another is asked for.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MEMCPY = 1, MEMSET = 2, MARKER = 5, KERNEL = 10, KINDS = 64, RECORD_BYTES = 144 };
enum { INVALID_PARAMETER = 1, NO_MORE_RECORDS = 12, MISALIGNED = 98, UNUSED_BUFFER = 99 };

typedef void (*request)(uint8_t **buffer, size_t *size, size_t *most_records);
typedef void (*complete)(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t filled);

static request lend;
static complete take_back;
static int enabled[KINDS], failing_kind = -1, flush_fails, per_buffer = 1000;
static uint8_t *buffer;
static size_t size, filled;

static void give_back(void) {
    if (buffer) take_back(NULL, 0, buffer, size, filled);
    buffer = NULL;
    filled = 0;
}

/* ---- what a test calls */

void sim_set(int records_per_buffer, int kind_that_fails, int fail_flush) {
    per_buffer = records_per_buffer;
    failing_kind = kind_that_fails;
    flush_fails = fail_flush;
}

int sim_enabled(void) {
    int count = 0;
    for (int kind = 0; kind < KINDS; kind++) count += enabled[kind];
    return count;
}

int sim_run(uint32_t kind, uint8_t copy_kind, uint64_t start_ns, uint64_t end_ns, const char *name) {
    if (!enabled[kind] && kind != MARKER) return 0;
    if (filled + RECORD_BYTES > size || filled >= (size_t)per_buffer * RECORD_BYTES) give_back();
    if (!buffer) {
        size_t most_records = 1;
        lend(&buffer, &size, &most_records);
        if (most_records) return UNUSED_BUFFER;
        if ((uintptr_t)buffer % 8) return MISALIGNED;
    }
    uint8_t *record = buffer + filled;
    memset(record, 0, RECORD_BYTES);
    memcpy(record, &kind, 4);
    if (kind != KERNEL) memcpy(record + 4, &copy_kind, 1);
    memcpy(record + 16, &start_ns, 8);
    memcpy(record + 24, &end_ns, 8);
    if (kind == KERNEL) memcpy(record + 104, &name, 8);
    filled += RECORD_BYTES;
    return 0;
}

/* ---- what CUPTI has */

int cuptiActivityRegisterCallbacks(request ask, complete done) {
    lend = ask;
    take_back = done;
    return 0;
}

int cuptiActivityEnable(uint32_t kind) {
    if ((int)kind == failing_kind) return INVALID_PARAMETER;
    enabled[kind] = 1;
    return 0;
}

int cuptiActivityDisable(uint32_t kind) {
    enabled[kind] = 0;
    return 0;
}

int cuptiActivityFlushAll(uint32_t flag) {
    if (flush_fails || flag != 1) return INVALID_PARAMETER;
    give_back();
    return 0;
}

int cuptiActivityGetNextRecord(uint8_t *of, size_t valid, uint8_t **record) {
    *record = *record ? *record + RECORD_BYTES : of;
    return *record < of + valid ? 0 : NO_MORE_RECORDS;
}
