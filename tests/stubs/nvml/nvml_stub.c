/* A libnvidia-ml.so.1 without hardware, for tests of the real binding.
 *
 * gcc -shared -fPIC -o libnvidia-ml.so.1 -Wl,-soname,libnvidia-ml.so.1 nvml_stub.c
 *
 * NVML_STUB_SCENARIO names a text file, read again when it was replaced, one "key value" a line. Most keys are of one
 * device (KEY.D), and those of a function may be of all (KEY.FUNCTION) or of one (KEY.FUNCTION.D):
 *   count N         devices (2)                          mig.D 1        two GPU instances, made anew with each higher number
 *   rc.FUNCTION R   returns R                            hang.FUNCTION  never returns
 *   die.FUNCTION    ends the process                     garbage.FUNCTION B   says OK and fills what it gives with bytes B
 *   lost.D 1        every call is "GPU is lost"          hang.D 1       every call hangs but for its handle, name and UUID
 *   xid.D X         XID X, told once                     unavailable.D 1   told once
 *   v1 1            old memory call only                 gpm.D 0        no GPM
 *   field.ID.D V    value of a field, -V: return code V  util.D sm.D tensor.D used_mib.D   values
 *   processes.D N   pids 4000, 4001, ...                 pid.D P        the first of them
 *   clients.D N     of the MPS server, pids 5000, ...    graphics.D N   pids 5500, ...
 *   sampled.D T     pid 6000 was seen at second T, beside a stale slot and one never written
 *   accounted.D N   accounting is on, pids 7000, ...     retired.D 1    pages wait for a reset
 * NVML_STUB_LOG, where set, gets one line a call: "FUNCTION DEVICE".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, TIMEOUT = 10, LOST = 15, CARDS = 16, GO_ON = -1 };

typedef struct { int index, instance; } device;
static device cards[CARDS], parts[CARDS][2];

static struct { char name[128]; long long value; } lines[512];
static int line_count;

static void load(const char *path) {
    static struct stat before;
    struct stat now;
    if (stat(path, &now)) { line_count = 0; return; }
    if (now.st_ino == before.st_ino && now.st_mtim.tv_nsec == before.st_mtim.tv_nsec && now.st_mtim.tv_sec == before.st_mtim.tv_sec) return;
    FILE *file = fopen(path, "r");
    if (!file) return;
    before = now;
    for (line_count = 0; line_count < 512 && fscanf(file, "%127s %lld", lines[line_count].name, &lines[line_count].value) == 2;) line_count++;
    fclose(file);
}

static long long scenario(const char *key, long long otherwise) {
    for (int i = line_count - 1; i >= 0; i--)
        if (!strcmp(lines[i].name, key)) return lines[i].value;
    return otherwise;
}

static long long of(const char *key, const device *d, long long otherwise) {
    char name[160];
    if (!line_count) return otherwise;
    snprintf(name, sizeof name, "%s.%d", key, d->index);
    return scenario(name, otherwise);
}

static long long asked(const char *key, const char *function, const device *d) {
    char name[128];
    if (!line_count) return GO_ON;
    snprintf(name, sizeof name, "%s.%s", key, function);
    long long everywhere = scenario(name, GO_ON);
    return d ? of(name, d, everywhere) : everywhere;
}

static int is_ours(const device *d) { return (d >= cards && d < cards + CARDS) || (d >= parts[0] && d < parts[0] + 2 * CARDS); }

/* GO_ON, or what the function returns at once. */
static int entered(const char *function, const device *d, void *given, size_t size) {
    static const char *path, *log_path;
    static int is_known;
    if (!is_known) { is_known = 1; path = getenv("NVML_STUB_SCENARIO"); log_path = getenv("NVML_STUB_LOG"); }
    if (d && !is_ours(d)) return INVALID;
    FILE *file = log_path ? fopen(log_path, "a") : NULL;
    if (file) { fprintf(file, "%s %d\n", function, d ? d->index : -1); fclose(file); }
    if (path) load(path);
    if (d && of("lost", d, 0)) return LOST;
    while (asked("hang", function, d) > 0) sleep(1);
    while (d && of("hang", d, 0) && !strstr(function, "GetName") && !strstr(function, "GetUUID") && !strstr(function, "GetHandle")) { sleep(1); load(path); }
    if (asked("die", function, d) > 0) _exit(1);
    long long byte = asked("garbage", function, d);
    if (byte >= 0) { if (given) memset(given, (int)byte, size); return OK; }
    return (int)asked("rc", function, d);
}

#define ENTER(d, given, size) do { int code = entered(__func__, d, given, size); if (code != GO_ON) return code; } while (0)
#define GIVE(d, given, value) do { ENTER(d, given, sizeof *(given)); *(given) = (value); return OK; } while (0)
#define GIVE_CARD(d, given, value) do { ENTER(d, given, sizeof *(given)); if ((d)->instance) return NOT_SUPPORTED; *(given) = (value); return OK; } while (0)

int nvmlInitWithFlags(unsigned flags) {
    for (int i = 0; i < CARDS; i++) {
        cards[i] = (device){i, 0};
        parts[i][0] = (device){i, 1};
        parts[i][1] = (device){i, 2};
    }
    if (flags & 2) return OK; /* attaches to no card, so that none can make it hang */
    ENTER(NULL, NULL, 0);
    return OK;
}
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { return code == LOST ? "GPU is lost" : code == NOT_SUPPORTED ? "Not Supported" : "some error"; }
int nvmlDeviceGetCount_v2(unsigned *count) { GIVE(NULL, count, (unsigned)scenario("count", 2)); }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device **d) {
    if (index >= CARDS) return INVALID;
    GIVE(&cards[index], d, &cards[index]);
}

/* What only others ask. */
int nvmlSystemGetDriverVersion(char *text, unsigned size) { ENTER(NULL, text, size); snprintf(text, size, "580.65.06"); return OK; }
int nvmlSystemGetCudaDriverVersion(int *version) { GIVE(NULL, version, 13000); }
int nvmlDeviceGetPowerManagementLimit(device *d, unsigned *milliwatts) { GIVE(d, milliwatts, 700000); }
int nvmlDeviceGetFanSpeed(device *d, unsigned *percent) { (void)percent; ENTER(d, NULL, 0); return NOT_SUPPORTED; }
int nvmlDeviceGetPcieThroughput(device *d, int direction, unsigned *kib_per_second) { (void)direction; GIVE(d, kib_per_second, 102400); }

int nvmlDeviceGetUUID(device *d, char *text, unsigned size) {
    if (!d) return INVALID;
    ENTER(d, text, size);
    int life = d->instance ? (int)of("mig", d, 0) : 0;
    snprintf(text, size, life ? "MIG-%08d-0000-0000-%04d-00000000000%d" : "GPU-%08d-0000-0000-0000-000000000000", d->index, life - 1, d->instance);
    return OK;
}
int nvmlDeviceGetName(device *d, char *text, unsigned size) {
    if (!d) return INVALID;
    ENTER(d, text, size);
    snprintf(text, size, "NVIDIA H100 80GB HBM3%s", d->instance == 1 ? " MIG 3g.40gb" : "");
    return OK;
}
int nvmlDeviceGetAttributes_v2(device *d, unsigned *attributes) {
    ENTER(d, attributes, 40);
    memset(attributes, 0, 40);
    attributes[6] = attributes[7] = 4;
    *(unsigned long long *)(attributes + 8) = 40448;
    return OK;
}

int nvmlDeviceGetUtilizationRates(device *d, unsigned *percent) {
    ENTER(d, percent, 8);
    if (d->instance || of("mig", d, 0)) return NOT_SUPPORTED;
    percent[0] = (unsigned)of("util", d, 97);
    percent[1] = 41;
    return OK;
}
int nvmlDeviceGetEncoderUtilization(device *d, unsigned *percent, unsigned *period) { *period = 1000; GIVE_CARD(d, percent, 3); }
int nvmlDeviceGetDecoderUtilization(device *d, unsigned *percent, unsigned *period) { *period = 1000; GIVE_CARD(d, percent, 4); }
int nvmlDeviceGetPowerUsage(device *d, unsigned *milliwatts) { GIVE_CARD(d, milliwatts, 512345); }
int nvmlDeviceGetEnforcedPowerLimit(device *d, unsigned *milliwatts) { GIVE_CARD(d, milliwatts, 700000); }
int nvmlDeviceGetTotalEnergyConsumption(device *d, unsigned long long *millijoules) { GIVE_CARD(d, millijoules, 9000000001500ULL); }
int nvmlDeviceGetClockInfo(device *d, int type, unsigned *megahertz) { GIVE_CARD(d, megahertz, type == 1 ? 1980 : 2619); }
int nvmlDeviceGetTemperature(device *d, int sensor, unsigned *celsius) { (void)sensor; GIVE_CARD(d, celsius, 61); }
int nvmlDeviceGetCurrentClocksEventReasons(device *d, unsigned long long *bits) { GIVE_CARD(d, bits, (unsigned long long)of("throttle", d, 4)); }
int nvmlDeviceGetTotalEccErrors(device *d, int type, int counter, unsigned long long *count) { (void)type; (void)counter; GIVE_CARD(d, count, 2); }
int nvmlDeviceGetRetiredPagesPendingStatus(device *d, unsigned *is_pending) { GIVE_CARD(d, is_pending, (unsigned)of("retired", d, 0)); }

static unsigned long long used(device *d) { return (unsigned long long)(d->instance ? 1000 * d->instance : of("used_mib", d, 39449)) << 20; }
static unsigned long long total(device *d) { return (unsigned long long)(d->instance ? 40448 : 81559) << 20; }
int nvmlDeviceGetMemoryInfo(device *d, unsigned long long *memory) {
    ENTER(d, memory, 24);
    memory[0] = total(d);
    memory[2] = used(d) + (551ULL << 20);
    memory[1] = memory[0] - memory[2];
    return OK;
}
int nvmlDeviceGetMemoryInfo_v2(device *d, void *info) {
    ENTER(d, info, 40);
    if (scenario("v1", 0) || *(unsigned *)info != 0x02000028) return 25;
    unsigned long long *memory = (unsigned long long *)info + 1;
    memory[0] = total(d);
    memory[1] = 551ULL << 20;
    memory[3] = used(d);
    memory[2] = memory[0] - memory[1] - memory[3];
    return OK;
}

typedef struct { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; } process;
static int listed(unsigned running, unsigned first, unsigned next, unsigned *count, process *list) {
    if (running > *count || (running && !list)) { *count = running; return TOO_SMALL; }
    for (unsigned i = 0; i < running; i++) list[i] = (process){i ? next + i : first, ~0ULL, ~0u, ~0u};
    *count = running;
    return OK;
}
int nvmlDeviceGetComputeRunningProcesses_v3(device *d, unsigned *count, process *list) {
    ENTER(d, count, sizeof *count);
    return listed((unsigned)of("processes", d, 2), (unsigned)of("pid", d, 4000), 4000, count, list);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(device *d, unsigned *count, process *list) {
    ENTER(d, count, sizeof *count);
    return listed((unsigned)of("graphics", d, 0), 5500, 5500, count, list);
}
int nvmlDeviceGetMPSComputeRunningProcesses_v3(device *d, unsigned *count, process *list) {
    ENTER(d, count, sizeof *count);
    return listed((unsigned)of("clients", d, 0), 5000, 5000, count, list);
}

typedef struct { unsigned pid; unsigned long long at; unsigned sm, memory, encoder, decoder; } utilization;
int nvmlDeviceGetProcessUtilization(device *d, utilization *list, unsigned *count, unsigned long long last_seen) {
    ENTER(d, count, sizeof *count);
    unsigned long long at = 1000000ULL * (unsigned long long)of("sampled", d, 0);
    if (d->instance) return NOT_SUPPORTED;
    if (at <= last_seen) return NOT_FOUND;
    if (!list || *count < 3) { *count = 3; return TOO_SMALL; }
    list[0] = (utilization){6000, at, 50, 10, 0, 0};
    list[1] = (utilization){6001, 17, 50, 10, 0, 0};
    list[2] = (utilization){6002, at, 4294770496u, 0, 0, 0};
    *count = 3;
    return OK;
}
int nvmlDeviceGetAccountingMode(device *d, unsigned *mode) { GIVE_CARD(d, mode, of("accounted", d, 0) > 0); }
int nvmlDeviceGetAccountingPids(device *d, unsigned *count, unsigned *pids) {
    ENTER(d, count, sizeof *count);
    unsigned known = (unsigned)of("accounted", d, 0);
    if (known > *count || !pids) { *count = known; return TOO_SMALL; }
    for (unsigned i = 0; i < known; i++) pids[i] = 7000 + i;
    *count = known;
    return OK;
}

typedef struct { unsigned id, scope; long long at, latency; unsigned type, code; union { unsigned long long whole; unsigned small; } value; } field;
int nvmlDeviceGetFieldValues(device *d, int count, field *fields) {
    ENTER(d, &fields->at, (size_t)count * sizeof *fields - 8);
    if (d->instance) return NOT_SUPPORTED;
    for (int i = 0; i < count; i++) {
        char key[32];
        snprintf(key, sizeof key, "field.%u", fields[i].id);
        unsigned id = fields[i].id;
        long long known = id == 82 ? 72 : id == 94 ? 5 : id == 142 ? 3 : id == 143 || id == 145 || id == 230 ? 0 : -NOT_SUPPORTED;
        long long value = of(key, d, known);
        fields[i].code = value < 0 ? (unsigned)-value : OK;
        fields[i].type = value >> 32 ? 3 : 1;
        fields[i].value.whole = (unsigned long long)value;
    }
    return OK;
}

int nvmlDeviceGetMigMode(device *d, unsigned *now, unsigned *later) { *later = 0; GIVE_CARD(d, now, of("mig", d, 0) > 0); }
int nvmlDeviceGetMaxMigDeviceCount(device *d, unsigned *count) { GIVE_CARD(d, count, 7); }
int nvmlDeviceGetMigDeviceHandleByIndex(device *d, unsigned index, device **part) {
    ENTER(d, part, sizeof *part);
    if (index != 0 && index != 3) return NOT_FOUND;
    *part = &parts[d->index][index == 3];
    return OK;
}
int nvmlDeviceGetGpuInstanceId(device *d, unsigned *instance) { if (!d) return INVALID; GIVE(d, instance, (unsigned)d->instance); }

typedef struct { device *d; int instance; } sample;
int nvmlGpmQueryDeviceSupport(device *d, unsigned *support) { ENTER(d, support, 8); support[1] = (unsigned)of("gpm", d, 1); return OK; }
int nvmlGpmSampleAlloc(sample **s) { ENTER(NULL, NULL, 0); *s = calloc(1, sizeof **s); return OK; }
int nvmlGpmSampleFree(sample *s) { free(s); return OK; }
int nvmlGpmSampleGet(device *d, sample *s) { if (!s) return INVALID; *s = (sample){d, 0}; ENTER(d, NULL, 0); return of("mig", d, 0) ? NOT_SUPPORTED : OK; }
int nvmlGpmMigSampleGet(device *d, unsigned instance, sample *s) { if (!s) return INVALID; *s = (sample){d, (int)instance}; ENTER(d, NULL, 0); return OK; }
typedef struct { unsigned id, code; double value; char *names[3]; } metric;
typedef struct { unsigned version, count; sample *first, *second; metric metrics[]; } request;
int nvmlGpmMetricsGet(request *r) {
    ENTER(r->first->d, r->metrics, r->count * sizeof *r->metrics);
    if (r->first == r->second) return INVALID;
    static const struct { unsigned id; double value; } known[] = {
        {1, 90.5}, {3, 44}, {10, 25.25}, {11, 1}, {12, 22}, {13, 33}, {20, 100}, {21, 100}, {60, 200}, {61, 300}};
    for (unsigned i = 0; i < r->count; i++) {
        metric *m = &r->metrics[i];
        m->code = NOT_SUPPORTED;
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            if (known[k].id == m->id) { m->code = OK; m->value = known[k].value; }
        if (m->id == 2) { m->code = OK; m->value = r->first->instance ? 10.0 * r->first->instance : (double)of("sm", r->first->d, 63); }
        if (m->id == 5) { m->code = OK; m->value = (double)of("tensor", r->first->d, 17); }
    }
    return OK;
}

static int told[CARDS], refused[CARDS], is_registered[CARDS];
int nvmlEventSetCreate(void **set) { ENTER(NULL, set, sizeof *set); *set = told; return OK; }
int nvmlDeviceGetSupportedEventTypes(device *d, unsigned long long *types) { GIVE_CARD(d, types, 0x4008); }
int nvmlDeviceRegisterEvents(device *d, unsigned long long types, void *set) { (void)types; (void)set; ENTER(d, NULL, 0); is_registered[d->index] = 1; return OK; }
int nvmlEventSetFree(void *set) { (void)set; return OK; }
int nvmlEventSetWait_v2(void *set, void *event, unsigned milliseconds) {
    struct { device *d; unsigned long long type, value; unsigned gpu_instance, compute_instance; } *e = event;
    (void)set; (void)milliseconds;
    ENTER(NULL, event, sizeof *e);
    for (int i = 0; line_count && i < CARDS; i++) {
        if (!is_registered[i]) continue;
        long long xid = told[i] ? 0 : of("xid", &cards[i], 0), gone = refused[i] ? 0 : of("unavailable", &cards[i], 0);
        if (!xid && !gone) continue;
        *(xid ? &told[i] : &refused[i]) = 1;
        e->d = &cards[i]; e->type = xid ? 0x8 : 0x4000; e->value = (unsigned long long)xid;
        e->compute_instance = ~0u;
        e->gpu_instance = (unsigned)of("xid_instance", &cards[i], -1);
        return OK;
    }
    return TIMEOUT;
}
