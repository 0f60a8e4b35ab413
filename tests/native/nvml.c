/* A pretend libnvidia-ml.so.1: the part of NVML that the tests' callers use, over the machine in state.h.
 *
 * Layouts and codes are those of NVIDIA's nvml.h, as nvidia-ml-py's pynvml.py has them. What NVML has and
 * this library lacks is a missing symbol, as it is with an old driver.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

#include "state.h"

enum { SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };
enum { GPU_IS_LOST = 15, VERSION_MISMATCH = 25, UNKNOWN = 999 };

/* The struct's size and version, in the way that NVML packs them into one word. */
#define VERSION(type, number) ((unsigned)(sizeof(type) | (number) << 24))

typedef void *Device;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } MemoryV2;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned version, sensor, temperature; } Temperature;
typedef struct { unsigned pid; unsigned long long bytes; unsigned gpu_instance, compute_instance; } Process;
typedef struct { Process process; unsigned long long protected_bytes; } WideProcess;
typedef struct { unsigned pid; unsigned long long at; unsigned sm, memory, encoder, decoder; } Work;
typedef struct {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} Pci;

enum { MILLIWATTS_ALLOWED = 400000, NO_INSTANCE = -1 };

/* NVML counts its starts: the library answers until the last of them is shut down. */
static atomic_int starts;

/* What a device call looks at: the machine now, and the GPU, or its MIG instance, that the handle names. */
struct view {
    struct state state;
    struct card *card;
    struct instance *instance;
    int index;
};

/* A handle is numbers in a pointer's clothes: it holds whatever becomes of the file. No valid one is NULL. */
static Device handle(int gpu, int instance)
{
    return (Device)(uintptr_t)((gpu + 1) << 8 | (instance + 1));
}

enum { MACHINE = -1 }; /* in place of a GPU's index */

static const struct hang *hang_of(const struct state *state, int gpu, const char *function)
{
    for (int i = 0; i < state->hang_count; i++) {
        const struct hang *hang = &state->hangs[i];
        if ((hang->gpu == gpu || hang->gpu == MACHINE) && strcmp(hang->function, function) == 0)
            return hang;
    }
    return NULL;
}

/* Sleeps where the file says so, and while it does; through signals, as a call that is stuck in the kernel does. */
static int hangs(const struct state *now, int gpu, const char *function)
{
    const struct hang *hang = hang_of(now, gpu, function);
    if (!hang)
        return 0;
    struct state *later = malloc(sizeof *later);
    double left = hang->seconds, slice;
    for (; later && left > 0 && hang; left -= slice) {
        slice = left < 0.02 ? left : 0.02;
        struct timespec time = {0, (long)(slice * 1e9)};
        while (nanosleep(&time, &time) != 0 && errno == EINTR)
            ;
        hang = read_state(later) ? hang_of(later, gpu, function) : NULL;
    }
    free(later);
    return 1;
}

/* What the file has a function answer; SUCCESS where it goes on as always. */
static int told(const struct state *state, int gpu, const char *function)
{
    for (int i = 0; i < state->answer_count; i++) {
        const struct answer *answer = &state->answers[i];
        if ((answer->gpu == gpu || answer->gpu == MACHINE) && strcmp(answer->function, function) == 0)
            return answer->code;
    }
    return SUCCESS;
}

/* Loses the GPU that the file says, once there were so many calls. */
static void lose(struct state *state)
{
    static atomic_llong written;
    static atomic_int calls;
    if (state->lose < 0 || state->lose >= state->count)
        return;
    if (atomic_exchange(&written, state->written) != state->written)
        calls = 0;
    if (++calls >= state->calls)
        state->cards[state->lose].lost = 1;
}

static int looked_at(struct state *state, int gpu, const char *function)
{
    if (!read_state(state) || (hangs(state, gpu, function) && !read_state(state)))
        return UNKNOWN;
    lose(state);
    return told(state, gpu, function);
}

/* Every call about the machine starts here. */
static int started(struct state *state, const char *function)
{
    return starts ? looked_at(state, MACHINE, function) : UNINITIALIZED;
}

/* Every device call starts here. */
static int look(struct view *view, Device device, const char *function)
{
    int gpu = (int)((uintptr_t)device >> 8) - 1, instance = (int)((uintptr_t)device & 255) - 1;
    if (gpu < 0)
        return starts ? INVALID_ARGUMENT : UNINITIALIZED;
    int code = starts ? looked_at(&view->state, gpu, function) : UNINITIALIZED;
    if (code)
        return code;
    /* A handle is only given for what was there once: what left the file since is lost as well. */
    if (gpu >= view->state.count || view->state.cards[gpu].lost)
        return GPU_IS_LOST;
    view->index = gpu;
    view->card = &view->state.cards[gpu];
    view->instance = instance == NO_INSTANCE ? NULL : &view->card->instances[instance];
    return instance < view->card->instance_count ? SUCCESS : GPU_IS_LOST;
}

/* For calls that a MIG instance does not answer. */
static int look_at_gpu(struct view *view, Device device, const char *function)
{
    int code = look(view, device, function);
    return code == SUCCESS && view->instance ? NOT_SUPPORTED : code;
}

/* How a call about a device begins: it goes on only where the device answers. */
#define LOOK(how)                             \
    struct view view;                         \
    int code = how(&view, device, __func__);  \
    if (code)                                 \
        return code

/* And a call about the machine. */
#define LOOK_AT_MACHINE                       \
    struct state state;                       \
    int code = started(&state, __func__);     \
    if (code)                                 \
        return code

static int give_figure(long long figure, unsigned *out)
{
    if (figure < 0)
        return NOT_SUPPORTED;
    *out = (unsigned)figure;
    return SUCCESS;
}

static int give_text(const char *text, char *out, unsigned size)
{
    if (strlen(text) >= size)
        return INSUFFICIENT_SIZE;
    strcpy(out, text);
    return SUCCESS;
}

int nvmlInitWithFlags(unsigned flags)
{
    struct state state;
    (void)flags;
    int code = looked_at(&state, MACHINE, __func__);
    if (!code)
        code = state.refuse;
    if (!code)
        starts++;
    return code;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlInit(void) { return nvmlInitWithFlags(0); } /* the oldest name: torch counts devices through it */

int nvmlShutdown(void)
{
    struct state state;
    int before = starts, code = before ? looked_at(&state, MACHINE, __func__) : UNINITIALIZED;
    if (code)
        return code;
    while (before > 0 && !atomic_compare_exchange_weak(&starts, &before, before - 1))
        ;
    return before > 0 ? SUCCESS : UNINITIALIZED;
}

/* pynvml has texts of its own for the codes above, and asks for the rest. */
const char *nvmlErrorString(int code)
{
    return code ? "Unknown Error" : "Success";
}

int nvmlSystemGetDriverVersion(char *out, unsigned size)
{
    LOOK_AT_MACHINE;
    return give_text(state.driver, out, size);
}

int nvmlSystemGetCudaDriverVersion_v2(int *out)
{
    LOOK_AT_MACHINE;
    *out = state.cuda;
    return SUCCESS;
}

int nvmlSystemGetCudaDriverVersion(int *out) { return nvmlSystemGetCudaDriverVersion_v2(out); }

/* A lost GPU is still counted: the numbers of the others stay. */
int nvmlDeviceGetCount_v2(unsigned *out)
{
    LOOK_AT_MACHINE;
    return give_figure(state.count, out);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *out)
{
    LOOK_AT_MACHINE;
    if (index >= (unsigned)state.count)
        return INVALID_ARGUMENT;
    struct view view;
    Device device = handle((int)index, NO_INSTANCE);
    code = look(&view, device, __func__);
    if (!code)
        *out = device;
    return code;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Device *out)
{
    LOOK_AT_MACHINE;
    for (int gpu = 0; gpu < state.count; gpu++) {
        const struct card *card = &state.cards[gpu];
        int found = strcmp(card->uuid, uuid) == 0, instance = NO_INSTANCE;
        while (!found && ++instance < card->instance_count)
            found = strcmp(card->instances[instance].uuid, uuid) == 0;
        if (found && card->lost)
            return GPU_IS_LOST;
        if (found) {
            *out = handle(gpu, instance);
            return SUCCESS;
        }
    }
    return NOT_FOUND;
}

int nvmlDeviceGetName(Device device, char *out, unsigned size)
{
    LOOK(look);
    return give_text(view.instance ? view.instance->name : view.card->name, out, size);
}

int nvmlDeviceGetUUID(Device device, char *out, unsigned size)
{
    LOOK(look);
    return give_text(view.instance ? view.instance->uuid : view.card->uuid, out, size);
}

int nvmlDeviceGetPciInfo_v3(Device device, Pci *out)
{
    LOOK(look_at_gpu);
    memset(out, 0, sizeof *out);
    strcpy(out->bus_id, view.card->bus_id);
    /* The legacy form is the same with four digits of domain instead of eight. */
    snprintf(out->legacy, sizeof out->legacy, "%s", view.card->bus_id + 4);
    int parts = sscanf(view.card->bus_id, "%x:%x:%x", &out->domain, &out->bus, &out->device);
    return parts == 3 ? SUCCESS : UNKNOWN;
}

#define ONE_FIGURE(name, figure)              \
    int name(Device device, unsigned *out)    \
    {                                         \
        LOOK(look_at_gpu);                    \
        return give_figure(figure, out);      \
    }
ONE_FIGURE(nvmlDeviceGetIndex, view.index)
ONE_FIGURE(nvmlDeviceGetMinorNumber, view.card->minor)
ONE_FIGURE(nvmlDeviceGetComputeMode, view.card->mode)
ONE_FIGURE(nvmlDeviceGetPowerUsage, view.card->milliwatts)
ONE_FIGURE(nvmlDeviceGetEnforcedPowerLimit, view.card->milliwatts < 0 ? -1 : MILLIWATTS_ALLOWED)
ONE_FIGURE(nvmlDeviceGetNumGpuCores, view.card->cores)
ONE_FIGURE(nvmlDeviceGetMaxMigDeviceCount, view.card->instance_count ? INSTANCES : 0)

static int give_memory(const struct view *view, MemoryV2 *out)
{
    long long total = view->instance ? view->instance->total : view->card->total;
    long long used = view->instance ? view->instance->used : view->card->used;
    if (total < 0 || used < 0)
        return NOT_SUPPORTED;
    long long reserved = view->instance ? 0 : view->card->reserved, rest = total - used - reserved;
    *out = (MemoryV2){out->version, (uint64_t)total, (uint64_t)reserved, (uint64_t)(rest < 0 ? 0 : rest), (uint64_t)used};
    return SUCCESS;
}

/* Its "used" has what is reserved as well, which version 2 tells apart. */
int nvmlDeviceGetMemoryInfo(Device device, Memory *out)
{
    LOOK(look);
    MemoryV2 memory = {0};
    code = give_memory(&view, &memory);
    if (!code)
        *out = (Memory){memory.total, memory.free, memory.used + memory.reserved};
    return code;
}

int nvmlDeviceGetMemoryInfo_v2(Device device, MemoryV2 *out)
{
    LOOK(look);
    return out->version == VERSION(MemoryV2, 2) ? give_memory(&view, out) : VERSION_MISMATCH;
}

int nvmlDeviceGetUtilizationRates(Device device, Utilization *out)
{
    LOOK(look_at_gpu);
    if (view.card->instance_count)
        return NOT_SUPPORTED;
    out->memory = 0; /* how busy the memory's lines are: nobody asks yet */
    return give_figure(view.card->util, &out->gpu);
}

int nvmlDeviceGetTemperature(Device device, unsigned sensor, unsigned *out)
{
    LOOK(look_at_gpu);
    return sensor == 0 ? give_figure(view.card->temperature, out) : INVALID_ARGUMENT;
}

int nvmlDeviceGetTemperatureV(Device device, Temperature *out)
{
    if (out->version != VERSION(Temperature, 1))
        return VERSION_MISMATCH;
    LOOK(look_at_gpu);
    return out->sensor == 0 ? give_figure(view.card->temperature, &out->temperature) : INVALID_ARGUMENT;
}

/* Drivers from 535.43 on and before 535.98 write one more field for a process in version 3, in the caller's array. */
static int is_wide(const char *driver)
{
    int minor = strncmp(driver, "535.", 4) ? 0 : atoi(driver + 4);
    return minor >= 43 && minor < 98;
}

static int list(const struct view *view, unsigned *count, char *out, int may_be_wide)
{
    unsigned room = *count;
    *count = view->instance ? 0 : (unsigned)view->card->process_count; /* nobody works on an instance here */
    if (room < *count)
        return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < *count; i++) {
        /* -1 becomes NVML_VALUE_NOT_AVAILABLE, which is what Windows and WSL are told. */
        uint64_t bytes = (uint64_t)view->card->processes[i].bytes;
        WideProcess process = {{view->card->processes[i].pid, bytes, ~0u, ~0u}, 0};
        size_t size = may_be_wide && is_wide(view->state.driver) ? sizeof process : sizeof process.process;
        memcpy(out + i * size, &process, size);
    }
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned *count, Process *out)
{
    LOOK(look);
    return list(&view, count, (char *)out, 1);
}

int nvmlDeviceGetComputeRunningProcesses_v2(Device device, unsigned *count, Process *out)
{
    LOOK(look);
    return list(&view, count, (char *)out, 0);
}

int nvmlDeviceGetCudaComputeCapability(Device device, int *major, int *minor)
{
    LOOK(look_at_gpu);
    if (view.card->cores < 0)
        return NOT_SUPPORTED;
    *major = (int)view.card->capability[0];
    *minor = (int)view.card->capability[1];
    return SUCCESS;
}

int nvmlDeviceGetMaxClockInfo(Device device, unsigned kind, unsigned *out)
{
    enum { KINDS = 4 }; /* graphics, multiprocessors, memory, video: all of its clocks are the same */
    LOOK(look_at_gpu);
    return kind < KINDS ? give_figure(view.card->clock, out) : INVALID_ARGUMENT;
}

int nvmlDeviceGetCurrentClocksEventReasons(Device device, unsigned long long *out)
{
    enum { IDLE = 1 };
    LOOK(look_at_gpu);
    *out = (unsigned long long)view.card->reasons | (view.card->util == 0 ? IDLE : 0);
    return SUCCESS;
}

/* Its name before R535. */
int nvmlDeviceGetCurrentClocksThrottleReasons(Device device, unsigned long long *out)
{
    return nvmlDeviceGetCurrentClocksEventReasons(device, out);
}

/* Ampere; Pascal is the last that does not count its energy. zeus asks for it before that. */
int nvmlDeviceGetArchitecture(Device device, unsigned *out)
{
    enum { PASCAL = 4, AMPERE = 7 };
    LOOK(look);
    *out = view.card->energy < 0 ? PASCAL : AMPERE;
    return SUCCESS;
}

int nvmlDeviceGetTotalEnergyConsumption(Device device, unsigned long long *out)
{
    LOOK(look_at_gpu);
    long long millijoules = energy_of(view.card);
    if (millijoules < 0)
        return NOT_SUPPORTED;
    *out = (unsigned long long)millijoules;
    return SUCCESS;
}

/* How busy each process has kept the GPU: one sample each, of the last step. A driver that knows it of none does not count. */
int nvmlDeviceGetProcessUtilization(Device device, Work *out, unsigned *count, unsigned long long since)
{
    LOOK(look_at_gpu);
    if (view.card->instance_count)
        return NOT_SUPPORTED;
    unsigned room = *count, found = 0;
    int known = 0;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    unsigned long long step = (unsigned long long)now.tv_nsec / (1000000000 / STEPS);
    unsigned long long at = (unsigned long long)now.tv_sec * 1000000 + step * (1000000 / STEPS);
    for (int i = 0; i < view.card->process_count; i++) {
        const struct process *process = &view.card->processes[i];
        known += process->work >= 0;
        if (process->work <= 0 || at <= since)
            continue;
        if (found < room && out)
            out[found] = (Work){process->pid, at, (unsigned)process->work, 0, 0, 0};
        found++;
    }
    *count = found;
    if (view.card->process_count && !known)
        return NOT_SUPPORTED;
    return !found ? NOT_FOUND : found > room || !out ? INSUFFICIENT_SIZE : SUCCESS;
}

/* The numbers of a MIG instance's parts, in its GPU: each is a GPU instance with one compute instance. */
int nvmlDeviceGetGpuInstanceId(Device device, unsigned *out)
{
    LOOK(look);
    return view.instance ? give_figure(view.instance - view.card->instances + 1, out) : INVALID_ARGUMENT;
}

int nvmlDeviceGetComputeInstanceId(Device device, unsigned *out)
{
    LOOK(look);
    return view.instance ? give_figure(0, out) : INVALID_ARGUMENT;
}

int nvmlDeviceGetMigMode(Device device, unsigned *current, unsigned *pending)
{
    LOOK(look_at_gpu);
    *current = *pending = view.card->instance_count > 0;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Device device, unsigned index, Device *out)
{
    LOOK(look_at_gpu);
    if (index >= (unsigned)view.card->instance_count)
        return NOT_FOUND;
    *out = handle(view.index, (int)index);
    return SUCCESS;
}
