/* A pretend libcuda.so.1: enough of the driver API to be started, and asked what it was started with.
 *
 * The point is cuInit. It reads CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER once, and what it made of them
 * stays, whatever is set afterwards. A mask is read as the CUDA programming guide says and, where the guide
 * is silent (duplicates, numbers with letters behind them), as torch's copy of the driver's parser does.
 *
 * Three variables change it for a whole process: with PRETEND_CUDA_ERROR=803 every call answers that, as where
 * cuInit has failed; with PRETEND_CUDA_TRIES_AGAIN=1 a cuInit that finds no device has not started it, as was
 * seen on an H200 (driver 580.159; CUDA.jl #1336); with PRETEND_CUDA_COUNTS_EARLY=1 cuDeviceGetCount answers before
 * cuInit, which no driver is known to do.
 */
#include <sys/types.h>
#include <unistd.h>

#include "state.h"

enum { SUCCESS, INVALID_VALUE, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101 };
enum { INVALID_CONTEXT = 201, UNKNOWN = 999 };

typedef struct { unsigned char bytes[16]; } Uuid;

/* Something that CUDA can make a device of: a GPU, or one MIG instance of it. */
struct candidate {
    const struct card *card;
    const struct instance *instance;
};

/* What cuInit settled on. Copies, for the file goes on changing. */
static struct device {
    char uuid[TEXT], gpu_uuid[TEXT], name[TEXT];
    int retained;
} visible[CARDS];
static int visible_count;

/* CUDA does not survive a fork: a child of the process that started it can neither use it nor start it. */
static pid_t started_by;

static const char *uuid_of(struct candidate candidate)
{
    return candidate.instance ? candidate.instance->uuid : candidate.card->uuid;
}

/* The GPUs in the order in which a mask's integers count them. */
static int order_gpus(const struct state *state, struct candidate *gpus)
{
    const char *order = getenv("CUDA_DEVICE_ORDER");
    int by_bus = order && strcmp(order, "PCI_BUS_ID") == 0, count = 0;
    for (int i = 0; i < state->count; i++) {
        const struct card *card = &state->cards[i];
        int place = count;
        if (card->lost)
            continue;
        /* The file is in bus order. FASTEST_FIRST, the default: here, the most memory first. */
        for (; !by_bus && place && gpus[place - 1].card->total < card->total; place--)
            gpus[place] = gpus[place - 1];
        gpus[place] = (struct candidate){card, NULL};
        count++;
    }
    return count;
}

/* Which candidate an entry (up to the next comma) names, or -1. */
static int find(const char *entry, const char *kind, const struct candidate *candidates, int count)
{
    size_t length = strcspn(entry, ",");
    int found = -1;
    if (!kind) {
        char *end;
        long number = strtol(entry, &end, 10); /* "1gpu2" is 1, and " 1" */
        return end == entry || number < 0 || number >= count ? -1 : (int)number;
    }
    if (strncmp(entry, kind, strlen(kind)) != 0)
        return -1;
    for (int i = 0; i < count; i++) {
        if (strncmp(uuid_of(candidates[i]), entry, length) != 0)
            continue;
        if (found >= 0)
            return -1; /* a prefix of two */
        found = i;
    }
    return found;
}

/* Reads the mask into indices of candidates, and says how many. */
static int read_mask(const char *mask, const char *kind, const struct candidate *candidates, int count,
                     int *chosen)
{
    int taken = 0;
    for (const char *entry = mask;; entry += strcspn(entry, ",") + 1) {
        int index = find(entry, kind, candidates, count);
        if (index < 0)
            return taken;
        for (int i = 0; i < taken; i++)
            if (chosen[i] == index)
                return 0;
        chosen[taken++] = index;
        if (!entry[strcspn(entry, ",")])
            return taken;
    }
}

static void show(struct candidate candidate)
{
    struct device *device = &visible[visible_count++];
    memset(device, 0, sizeof *device);
    strcpy(device->uuid, uuid_of(candidate));
    strcpy(device->gpu_uuid, candidate.card->uuid);
    strcpy(device->name, candidate.instance ? candidate.instance->name : candidate.card->name);
}

static void choose_visible(const struct state *state)
{
    const char *mask = getenv("CUDA_VISIBLE_DEVICES"), *kind = NULL;
    struct candidate candidates[CARDS * INSTANCES], gpus[CARDS];
    int chosen[CARDS * INSTANCES], taken, gpu_count = order_gpus(state, gpus), count = 0;
    /* The first entry says of what kind all of them are. */
    if (mask && strncmp(mask, "GPU-", 4) == 0)
        kind = "GPU-";
    if (mask && strncmp(mask, "MIG-", 4) == 0)
        kind = "MIG-";
    for (int i = 0; i < gpu_count; i++) {
        if (!kind || kind[0] == 'G')
            candidates[count++] = gpus[i];
        else
            for (int j = 0; j < gpus[i].card->instance_count; j++)
                candidates[count++] = (struct candidate){gpus[i].card, &gpus[i].card->instances[j]};
    }
    if (mask)
        taken = read_mask(mask, kind, candidates, count, chosen);
    else
        for (taken = 0; taken < count; taken++)
            chosen[taken] = taken;
    /* One process has one MIG instance, and no whole GPU beside it (NVIDIA's MIG user guide). */
    for (int i = 0; i < taken; i++) {
        struct candidate candidate = candidates[chosen[i]];
        if (!candidate.instance && candidate.card->instance_count)
            candidate.instance = &candidate.card->instances[0];
        if (candidate.instance) {
            show(candidate);
            return;
        }
    }
    for (int i = 0; i < taken; i++)
        show(candidates[chosen[i]]);
}

static int pretended_error(void)
{
    const char *code = getenv("PRETEND_CUDA_ERROR");
    return code ? atoi(code) : SUCCESS;
}

/* What stands between a caller and the devices, if anything. */
static int ready(void)
{
    if (pretended_error())
        return pretended_error();
    if (!started_by || started_by != getpid())
        return NOT_INITIALIZED;
    return visible_count ? SUCCESS : NO_DEVICE;
}

static int ready_for(int device)
{
    int code = ready();
    return code ? code : device < 0 || device >= visible_count ? INVALID_DEVICE : SUCCESS;
}

int cuInit(unsigned flags)
{
    struct state state;
    if (flags)
        return INVALID_VALUE;
    if (started_by || pretended_error())
        return ready();
    if (!read_state(&state))
        return UNKNOWN;
    choose_visible(&state);
    if (!visible_count && getenv("PRETEND_CUDA_TRIES_AGAIN"))
        return NO_DEVICE;
    started_by = getpid();
    return ready();
}

int cuDriverGetVersion(int *out)
{
    struct state state;
    if (!read_state(&state))
        return UNKNOWN;
    *out = state.cuda;
    return SUCCESS;
}

int cuGetErrorString(int code, const char **out)
{
    *out = code == SUCCESS           ? "no error"
           : code == INVALID_VALUE   ? "invalid argument"
           : code == NOT_INITIALIZED ? "initialization error"
           : code == NO_DEVICE       ? "no CUDA-capable device is detected"
           : code == INVALID_DEVICE  ? "invalid device ordinal"
           : code == INVALID_CONTEXT ? "invalid device context"
           : code == UNKNOWN         ? "unknown error"
                                     : NULL;
    return *out ? SUCCESS : INVALID_VALUE;
}

int cuDeviceGetCount(int *out)
{
    int code = ready();
    if (code == NOT_INITIALIZED && getenv("PRETEND_CUDA_COUNTS_EARLY"))
        code = *out = 0;
    else if (!code)
        *out = visible_count;
    return code;
}

int cuDeviceGet(int *out, int ordinal)
{
    int code = ready_for(ordinal);
    if (!code)
        *out = ordinal;
    return code;
}

int cuDeviceGetName(char *out, int size, int device)
{
    int code = ready_for(device);
    if (!code)
        snprintf(out, (size_t)size, "%s", visible[device].name);
    return code;
}

/* The 16 bytes that "GPU-" or "MIG-" and the hexadecimal digits stand for. */
static void give_uuid(const char *text, Uuid *out)
{
    unsigned byte;
    text += 4;
    for (int i = 0; i < 16; i++, text += 2) {
        text += *text == '-';
        out->bytes[i] = (unsigned char)(sscanf(text, "%2x", &byte) == 1 ? byte : 0);
    }
}

/* The first version tells the GPU even where the device is a MIG instance; the second tells the instance. */
int cuDeviceGetUuid(Uuid *out, int device)
{
    int code = ready_for(device);
    if (!code)
        give_uuid(visible[device].gpu_uuid, out);
    return code;
}

int cuDeviceGetUuid_v2(Uuid *out, int device)
{
    int code = ready_for(device);
    if (!code)
        give_uuid(visible[device].uuid, out);
    return code;
}

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    int code = ready_for(device);
    if (!code) {
        *flags = 0;
        *active = visible[device].retained > 0;
    }
    return code;
}

/* The context is never looked into: any address will do. */
int cuDevicePrimaryCtxRetain(void **context, int device)
{
    int code = ready_for(device);
    if (!code) {
        visible[device].retained++;
        *context = &visible[device];
    }
    return code;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    int code = ready_for(device);
    if (!code && !visible[device].retained)
        return INVALID_CONTEXT;
    if (!code)
        visible[device].retained--;
    return code;
}
