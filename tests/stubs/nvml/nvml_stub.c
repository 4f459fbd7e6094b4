/* A libnvidia-ml.so.1 without hardware, for tests of the real binding.
 *
 * gcc -shared -fPIC -o libnvidia-ml.so.1 -Wl,-soname,libnvidia-ml.so.1 nvml_stub.c
 *
 * NVML_STUB_SCENARIO names a text file that is read again on every call, one "key value" a line:
 *   count N            devices (2)                       mig.D 1            device D has two GPU instances
 *   rc.FUNCTION R      FUNCTION returns R everywhere     rc.FUNCTION.D R    ... on device D only
 *   lost.D 1           every call on D is "GPU is lost"  hang.D 1           every call on D hangs but for its handle, name and UUID
 *   xid.D X            D reports XID X, once             v1 1               old memory call only
 *   util.D / sm.D / tensor.D / processes.D / used_mib.D  values
 * NVML_STUB_LOG, where set, gets one line a call: "FUNCTION DEVICE".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, TIMEOUT = 10, LOST = 15 };

typedef struct { int index, instance; } device;
static device cards[16], parts[16][2];

static long long scenario(const char *key, long long otherwise) {
    const char *path = getenv("NVML_STUB_SCENARIO");
    FILE *file = path ? fopen(path, "r") : NULL;
    char name[128];
    long long value, found = otherwise;
    if (!file) return otherwise;
    while (fscanf(file, "%127s %lld", name, &value) == 2)
        if (!strcmp(name, key)) found = value;
    fclose(file);
    return found;
}

static long long of(const char *key, const device *d, long long otherwise) {
    char name[160];
    snprintf(name, sizeof name, "%s.%d", key, d->index);
    return scenario(name, otherwise);
}

static int entered(const char *function, const device *d) {
    const char *path = getenv("NVML_STUB_LOG");
    FILE *file = path ? fopen(path, "a") : NULL;
    char key[160];
    if (file) { fprintf(file, "%s %d\n", function, d ? d->index : -1); fclose(file); }
    snprintf(key, sizeof key, "rc.%s", function);
    if (!d) return (int)scenario(key, OK);
    if (of("lost", d, 0)) return LOST;
    while (of("hang", d, 0) && !strstr(function, "GetName") && !strstr(function, "GetUUID") && !strstr(function, "GetHandle")) sleep(1);
    int code = (int)of(key, d, -1);
    return code >= 0 ? code : (int)scenario(key, OK);
}

#define ENTER(d) do { int code = entered(__func__, d); if (code) return code; } while (0)
#define ENTER_CARD(d) do { ENTER(d); if ((d)->instance) return NOT_SUPPORTED; } while (0)

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    for (int i = 0; i < 16; i++) {
        cards[i] = (device){i, 0};
        parts[i][0] = (device){i, 1};
        parts[i][1] = (device){i, 2};
    }
    ENTER(NULL);
    return OK;
}
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { return code == LOST ? "GPU is lost" : code == NOT_SUPPORTED ? "Not Supported" : "some error"; }
int nvmlDeviceGetCount_v2(unsigned *count) { ENTER(NULL); *count = (unsigned)scenario("count", 2); return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device **d) { *d = &cards[index]; ENTER(*d); return OK; }

int nvmlDeviceGetUUID(device *d, char *text, unsigned size) {
    ENTER(d);
    snprintf(text, size, d->instance ? "MIG-%08d-0000-0000-0000-00000000000%d" : "GPU-%08d-0000-0000-0000-000000000000", d->index, d->instance);
    return OK;
}
int nvmlDeviceGetName(device *d, char *text, unsigned size) {
    ENTER(d);
    snprintf(text, size, "NVIDIA H100 80GB HBM3%s", d->instance == 1 ? " MIG 3g.40gb" : "");
    return OK;
}
int nvmlDeviceGetAttributes_v2(device *d, unsigned *attributes) {
    ENTER(d);
    memset(attributes, 0, 40);
    attributes[6] = attributes[7] = 4;
    *(unsigned long long *)(attributes + 8) = 40448;
    return OK;
}

int nvmlDeviceGetUtilizationRates(device *d, unsigned *percent) {
    ENTER_CARD(d);
    if (of("mig", d, 0)) return NOT_SUPPORTED;
    percent[0] = (unsigned)of("util", d, 97);
    percent[1] = 41;
    return OK;
}
int nvmlDeviceGetEncoderUtilization(device *d, unsigned *percent, unsigned *period) { ENTER_CARD(d); *percent = 3; *period = 1000; return OK; }
int nvmlDeviceGetDecoderUtilization(device *d, unsigned *percent, unsigned *period) { ENTER_CARD(d); *percent = 4; *period = 1000; return OK; }
int nvmlDeviceGetPowerUsage(device *d, unsigned *milliwatts) { ENTER_CARD(d); *milliwatts = 512345; return OK; }
int nvmlDeviceGetEnforcedPowerLimit(device *d, unsigned *milliwatts) { ENTER_CARD(d); *milliwatts = 700000; return OK; }
int nvmlDeviceGetTotalEnergyConsumption(device *d, unsigned long long *millijoules) { ENTER_CARD(d); *millijoules = 9000000001500ULL; return OK; }
int nvmlDeviceGetClockInfo(device *d, int type, unsigned *megahertz) { ENTER_CARD(d); *megahertz = type == 1 ? 1980 : 2619; return OK; }
int nvmlDeviceGetTemperature(device *d, int sensor, unsigned *celsius) { (void)sensor; ENTER_CARD(d); *celsius = 61; return OK; }
int nvmlDeviceGetCurrentClocksEventReasons(device *d, unsigned long long *bits) { ENTER_CARD(d); *bits = 4; return OK; }
int nvmlDeviceGetTotalEccErrors(device *d, int type, int counter, unsigned long long *count) { (void)type; (void)counter; ENTER_CARD(d); *count = 2; return OK; }

static unsigned long long used(device *d) { return (unsigned long long)(d->instance ? 1000 * d->instance : of("used_mib", d, 39449)) << 20; }
static unsigned long long total(device *d) { return (unsigned long long)(d->instance ? 40448 : 81559) << 20; }
int nvmlDeviceGetMemoryInfo(device *d, unsigned long long *memory) {
    ENTER(d);
    memory[0] = total(d);
    memory[2] = used(d) + (551ULL << 20);
    memory[1] = memory[0] - memory[2];
    return OK;
}
int nvmlDeviceGetMemoryInfo_v2(device *d, void *info) {
    ENTER(d);
    if (scenario("v1", 0) || *(unsigned *)info != 0x02000028) return 25;
    unsigned long long *memory = (unsigned long long *)info + 1;
    memory[0] = total(d);
    memory[1] = 551ULL << 20;
    memory[3] = used(d);
    memory[2] = memory[0] - memory[1] - memory[3];
    return OK;
}

typedef struct { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; } process;
int nvmlDeviceGetComputeRunningProcesses_v3(device *d, unsigned *count, process *list) {
    ENTER(d);
    unsigned running = (unsigned)of("processes", d, 2);
    if (running > *count || (running && !list)) { *count = running; return TOO_SMALL; }
    for (unsigned i = 0; i < running; i++) list[i] = (process){4000 + i, ~0ULL, ~0u, ~0u};
    *count = running;
    return OK;
}
int nvmlDeviceGetMPSComputeRunningProcesses_v3(device *d, unsigned *count, process *list) { (void)list; ENTER(d); *count = 0; return OK; }

typedef struct { unsigned id, scope; long long at, latency; unsigned type, code; union { unsigned long long whole; unsigned small; } value; } field;
int nvmlDeviceGetFieldValues(device *d, int count, field *fields) {
    ENTER_CARD(d);
    for (int i = 0; i < count; i++) { fields[i].code = fields[i].id == 82 ? OK : NOT_SUPPORTED; fields[i].type = 1; fields[i].value.small = 72; }
    return OK;
}

int nvmlDeviceGetMigMode(device *d, unsigned *now, unsigned *later) { ENTER_CARD(d); *now = *later = (unsigned)of("mig", d, 0); return OK; }
int nvmlDeviceGetMaxMigDeviceCount(device *d, unsigned *count) { ENTER_CARD(d); *count = 7; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(device *d, unsigned index, device **part) {
    ENTER_CARD(d);
    if (index != 0 && index != 3) return NOT_FOUND;
    *part = &parts[d->index][index == 3];
    return OK;
}
int nvmlDeviceGetGpuInstanceId(device *d, unsigned *instance) { ENTER(d); *instance = (unsigned)d->instance; return OK; }

typedef struct { device *d; int instance; } sample;
int nvmlGpmQueryDeviceSupport(device *d, unsigned *support) { ENTER(d); support[1] = 1; return OK; }
int nvmlGpmSampleAlloc(sample **s) { *s = calloc(1, sizeof **s); return OK; }
int nvmlGpmSampleFree(sample *s) { free(s); return OK; }
int nvmlGpmSampleGet(device *d, sample *s) { ENTER(d); *s = (sample){d, 0}; return of("mig", d, 0) ? NOT_SUPPORTED : OK; }
int nvmlGpmMigSampleGet(device *d, unsigned instance, sample *s) { ENTER(d); *s = (sample){d, (int)instance}; return OK; }
typedef struct { unsigned id, code; double value; char *names[3]; } metric;
typedef struct { unsigned version, count; sample *first, *second; metric metrics[]; } request;
int nvmlGpmMetricsGet(request *r) {
    ENTER(r->first->d);
    if (r->first == r->second) return INVALID;
    for (unsigned i = 0; i < r->count; i++) {
        metric *m = &r->metrics[i];
        m->code = OK;
        switch (m->id) {
        case 1: m->value = 90.5; break;
        case 2: m->value = r->first->instance ? 10.0 * r->first->instance : (double)of("sm", r->first->d, 63); break;
        case 5: m->value = (double)of("tensor", r->first->d, 17); break;
        case 10: m->value = 25.25; break;
        case 20: case 21: m->value = 100; break;
        case 60: m->value = 200; break;
        case 61: m->value = 300; break;
        default: m->code = NOT_SUPPORTED;
        }
    }
    return OK;
}

static int told[16];
int nvmlEventSetCreate(void **set) { ENTER(NULL); *set = told; return OK; }
int nvmlDeviceRegisterEvents(device *d, unsigned long long types, void *set) { (void)types; (void)set; ENTER(d); return OK; }
int nvmlEventSetFree(void *set) { (void)set; return OK; }
int nvmlEventSetWait_v2(void *set, void *event, unsigned milliseconds) {
    struct { device *d; unsigned long long type, value; unsigned gpu_instance, compute_instance; } *e = event;
    (void)set; (void)milliseconds;
    for (int i = 0; i < 16; i++) {
        long long xid = of("xid", &cards[i], 0);
        if (xid && !told[i]) {
            told[i] = 1;
            e->d = &cards[i]; e->type = 8; e->value = (unsigned long long)xid; e->gpu_instance = e->compute_instance = ~0u;
            return OK;
        }
    }
    return TIMEOUT;
}
