/*
 * What the simulated drivers share: the world that they tell, the state that programs set, the log and the looks. What
 * these are is told at the head of nvml.c.
 *
 * The including file defines before it the name WORLD_VARIABLE of the environment's variable, and its library's codes
 * SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, INSUFFICIENT_SIZE and GPU_IS_LOST.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wunused-function" /* each driver needs some of these */

enum { HOST = -1, VALUE_SIZE = 4096, PATH_SIZE = 4096 };

static int opened; /* openings of the library that are not yet undone */

/* The world. */

static const char *world_path(void) {
    const char *path = getenv(WORLD_VARIABLE);
    if (path) return path;
    fprintf(stderr, "simulated driver: " WORLD_VARIABLE " is not set\n");
    abort();
}

static void beside_world(const char *suffix, char path[PATH_SIZE]) {
    snprintf(path, PATH_SIZE, "%s%s", world_path(), suffix);
}

static FILE *open_world(void) {
    FILE *world = fopen(world_path(), "re");
    if (world) return world;
    fprintf(stderr, "simulated driver: %s cannot be read\n", world_path());
    abort();
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

static int flag(int device, const char *key) {
    char value[VALUE_SIZE];
    return find(device, key, value) && strcmp(value, "0");
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

/* Reads a field as the driver would answer for it. */
static int ask(int device, const char *key, char value[VALUE_SIZE]) {
    if (!opened) return UNINITIALIZED;
    if (device != HOST && find(device, "lost", value)) return atoi(value + 1);
    if (find(device, key, value)) return value[0] == '!' ? atoi(value + 1) : SUCCESS;
    return device == HOST || find(device, "uuid", value) ? NOT_SUPPORTED : GPU_IS_LOST;
}

static int ask_number(int device, const char *key, unsigned long long *number) {
    char value[VALUE_SIZE];
    int code = ask(device, key, value);
    if (code == SUCCESS) *number = strtoull(value, NULL, 0);
    return code;
}

static int ask_unsigned(int device, const char *key, unsigned int *number) {
    unsigned long long wide = 0;
    int code = ask_number(device, key, &wide);
    if (code == SUCCESS) *number = (unsigned int)wide;
    return code;
}

static int ask_pair(int device, const char *key, unsigned int *first, unsigned int *second) {
    char value[VALUE_SIZE];
    int code = ask(device, key, value);
    if (code != SUCCESS) return code;
    return sscanf(value, "%u %u", first, second) == 2 ? SUCCESS : INVALID_ARGUMENT;
}

static int ask_text(int device, const char *key, char *text, unsigned int length) {
    char value[VALUE_SIZE];
    int code = ask(device, key, value);
    if (code != SUCCESS) return code;
    if (strlen(value) >= length) return INSUFFICIENT_SIZE;
    strcpy(text, value);
    return SUCCESS;
}

/* The link from one device to another. */
typedef struct { char kind[16]; unsigned int lanes; int peer; } link_t;

/* Reads the link from `device` to `other`: PCIe with access to each other's memory, unless the world says otherwise. */
static int find_link(int device, int other, link_t *link) {
    char value[VALUE_SIZE], *token, *rest = value;
    int said = find(device, "links", value);
    int code = ask(device, said ? "links" : "uuid", value), to;
    *link = (link_t){"pcie", 0, 1};
    while (said && code == SUCCESS && (token = strtok_r(rest, " ", &rest))) {
        link_t found = {"", 0, 1};
        if (sscanf(token, "%d:%15[^:]:%u", &to, found.kind, &found.lanes) < 2) return INVALID_ARGUMENT;
        size_t last = strlen(found.kind) - 1;
        found.peer = found.kind[last] != '-';
        if (!found.peer) found.kind[last] = 0;
        if (to == other) *link = found;
    }
    return code;
}

static int lives(unsigned int pid) {
    char path[64], state = 'Z';
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    FILE *stat = fopen(path, "re");
    if (!stat) return 0;
    if (fscanf(stat, "%*d (%*[^)]) %c", &state) != 1) state = 'Z';
    fclose(stat);
    return state != 'Z' && state != 'X';
}

/* Reads the next entry of a list of processes, without those that are listed while they live and do not; false at the
 * end. */
static int next_process(char **rest, unsigned int *pid, unsigned long long *bytes) {
    for (char *end;; *rest = end) {
        *pid = (unsigned int)strtoul(*rest, &end, 10);
        *bytes = 0;
        if (end == *rest) return 0;
        if (*end == ':') *bytes = strtoull(end + 1, &end, 10);
        if (*end == '*' && end++ && !lives(*pid)) continue;
        *rest = end;
        return 1;
    }
}

static void note_look(void) {
    char path[PATH_SIZE];
    beside_world(".looks", path);
    int looks = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (looks < 0 || write(looks, "x", 1) != 1) abort();
    close(looks);
}

/* The state. */

/* Whether `line`, "uuid key values", is about this key of this device; `*values` is then its rest. */
static int is_about(const char *line, const char *uuid, const char *key, const char **values) {
    char start[VALUE_SIZE];
    size_t length = (size_t)snprintf(start, sizeof start, "%s %s ", uuid, key);
    *values = line + length;
    return !strncmp(line, start, length);
}

static int find_state(int device, const char *key, char value[VALUE_SIZE]) {
    char path[PATH_SIZE], uuid[VALUE_SIZE], line[VALUE_SIZE];
    const char *values;
    int found = 0;
    beside_world(".state", path);
    FILE *state = find(device, "uuid", uuid) ? fopen(path, "re") : NULL;
    while (state && !found && fgets(line, sizeof line, state)) {
        found = is_about(line, uuid, key, &values);
        if (found) strcpy(value, values);
    }
    if (state) fclose(state);
    return found;
}

/* Makes the state say `value` under `key`, or nothing (null): whole, or not at all if this program is killed. */
static void change_state(int device, const char *key, const char *value) {
    char lock_path[PATH_SIZE], path[PATH_SIZE], aside[PATH_SIZE], uuid[VALUE_SIZE], line[VALUE_SIZE];
    const char *values;
    beside_world(".lock", lock_path);
    beside_world(".state", path);
    beside_world(".state.new", aside);
    int lock = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    flock(lock, LOCK_EX);
    FILE *before = fopen(path, "re"), *after = fopen(aside, "we");
    if (lock < 0 || !after || !find(device, "uuid", uuid)) abort();
    while (before && fgets(line, sizeof line, before))
        if (!is_about(line, uuid, key, &values)) fputs(line, after);
    if (value) fprintf(after, "%s %s %s\n", uuid, key, value);
    if (before) fclose(before);
    fclose(after);
    rename(aside, path);
    close(lock);
}

/* The log: one line per call that would change something; hands the call's code on. */
__attribute__((format(printf, 4, 5)))
static int logged(int code, int device, const char *function, const char *format, ...) {
    char path[PATH_SIZE], uuid[VALUE_SIZE] = "-", arguments[64] = "", line[PATH_SIZE * 2];
    va_list given;
    va_start(given, format);
    vsnprintf(arguments, sizeof arguments, format, given);
    va_end(given);
    find(device, "uuid", uuid);
    beside_world(".log", path);
    int length = snprintf(line, sizeof line, "%d %s %s%s -> %d\n", getpid(), function, uuid, arguments, code);
    int log = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (log < 0 || write(log, line, (size_t)length) != length) abort();
    close(log);
    return code;
}

/* Why a setting call is refused, or success; `able` says that the device has the setting, `refusal` with what it
 * fails. */
static int permit(int device, const char *able, const char *refusal) {
    char value[VALUE_SIZE];
    int code = ask(device, able, value);
    if (code != SUCCESS) return code;
    if (flag(HOST, "unprivileged") || flag(device, "unprivileged")) return NO_PERMISSION;
    return find(device, refusal, value) && value[0] == '!' ? atoi(value + 1) : SUCCESS;
}
