/* A pretend libamd_smi.so: the part of AMD SMI that gpu_magic uses, over the machine in state.h.
 *
 * Layouts and codes are those of amdsmi.h as amdsmi 7.0.2's amdsmi_wrapper.py has them. Its module looks up every
 * function of the library when it is imported: for those that stand not here, the build adds one that is not
 * supported (see __init__.py).
 */
#define STATE_VARIABLE "GPU_MAGIC_TEST_AMD_STATE"
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

#include "state.h"

enum { SUCCESS, INVALID = 1, NOT_SUPPORTED = 2, OUT_OF_RESOURCES = 15, NOT_INITIALIZED = 32, NO_DATA = 40 };
enum { NAME = 256, WATTS_ALLOWED = 750 };
enum { FIRST_RENDER = 128 };

typedef void *Handle;
typedef struct { uint64_t function : 3, device : 5, bus : 8, domain : 48; } Bdf;
typedef struct { uint32_t drm_render, drm_card, hsa_id, hip_id; char hip_uuid[NAME]; } Enumeration;
typedef struct {
    char market_name[NAME];
    uint32_t vendor_id;
    char vendor_name[NAME];
    uint32_t subvendor_id;
    uint64_t device_id;
    uint32_t rev_id;
    char asic_serial[NAME];
    uint32_t oam_id, compute_units, padding;
    uint64_t graphics_version;
    uint32_t subsystem_id, reserved[21];
} __attribute__((packed)) Asic;
typedef struct { char version[NAME], date[NAME], name[NAME]; } DriverInfo;
typedef struct { uint32_t gfx, umc, mm, reserved[13]; } Activity;
typedef struct {
    uint64_t socket;
    uint32_t current, average;
    uint64_t gfx_voltage, soc_voltage, mem_voltage;
    uint32_t limit, padding;
    uint64_t reserved[18];
} Power;
typedef struct { uint64_t cap, default_cap, dpm, least, most, reserved[3]; } PowerCap;
typedef struct {
    char name[NAME];
    uint32_t pid, padding;
    uint64_t mem;
    uint64_t gfx, enc;
    uint32_t engine_reserved[12];
    uint64_t gtt, cpu, vram;
    uint32_t memory_reserved[10];
    char container[NAME];
    uint32_t occupancy, reserved[11];
} Process;

static atomic_int starts;

static int started(struct state *state)
{
    if (!starts)
        return NOT_INITIALIZED;
    return read_state(state) ? SUCCESS : NO_DATA;
}

/* Sleeps where the file says so; through signals, as a call that is stuck in the kernel does. */
static void hang(const struct state *state, int gpu, const char *function)
{
    for (int i = 0; i < state->hang_count; i++) {
        const struct hang *found = &state->hangs[i];
        if (found->gpu != gpu || strcmp(found->function, function) != 0)
            continue;
        time_t whole = (time_t)found->seconds;
        struct timespec left = {whole, (long)((found->seconds - (double)whole) * 1e9)};
        while (nanosleep(&left, &left) != 0 && errno == EINTR)
            ;
    }
}

/* Every call about a GPU starts here. A GPU that is lost answers nothing: there is no code for it alone. */
static int look(struct state *state, struct card **card, Handle handle, const char *function)
{
    int gpu = (int)(uintptr_t)handle - 1, code = started(state);
    if (code)
        return code;
    if (gpu < 0)
        return INVALID;
    hang(state, gpu, function);
    if (gpu >= state->count || state->cards[gpu].lost)
        return NO_DATA;
    for (int i = 0; i < state->answer_count; i++) {
        const struct answer *answer = &state->answers[i];
        if ((answer->gpu == gpu || answer->gpu == -1) && strcmp(answer->function, function) == 0)
            return answer->code;
    }
    *card = &state->cards[gpu];
    return SUCCESS;
}

#define LOOK                                                   \
    struct state state;                                        \
    struct card *card;                                         \
    int code = look(&state, &card, handle, __func__);          \
    if (code)                                                  \
        return code

int amdsmi_init(uint64_t flags)
{
    struct state state;
    (void)flags;
    if (!read_state(&state))
        return NO_DATA;
    if (!state.refuse)
        starts++;
    return state.refuse;
}

int amdsmi_shut_down(void)
{
    if (!starts)
        return NOT_INITIALIZED;
    starts--;
    return SUCCESS;
}

/* One socket for each GPU, as on real machines. */
int amdsmi_get_socket_handles(uint32_t *count, Handle *out)
{
    struct state state;
    int code = started(&state);
    if (code)
        return code;
    for (int i = 0; out && i < state.count; i++)
        out[i] = (Handle)(uintptr_t)(i + 1);
    *count = (uint32_t)state.count;
    return SUCCESS;
}

int amdsmi_get_processor_handles(Handle socket, uint32_t *count, Handle *out)
{
    if (out)
        out[0] = socket;
    *count = 1;
    return SUCCESS;
}

int amdsmi_get_gpu_device_bdf(Handle handle, Bdf *out)
{
    LOOK;
    unsigned domain, bus, device;
    if (sscanf(card->bus_id, "%x:%x:%x", &domain, &bus, &device) != 3)
        return NO_DATA;
    *out = (Bdf){.domain = domain, .bus = bus, .device = device};
    return SUCCESS;
}

int amdsmi_get_gpu_asic_info(Handle handle, Asic *out)
{
    LOOK;
    memset(out, 0, sizeof *out);
    snprintf(out->market_name, NAME, "%s", card->name);
    snprintf(out->vendor_name, NAME, "Advanced Micro Devices Inc. [AMD/ATI]");
    snprintf(out->asic_serial, NAME, "0x%s", strlen(card->uuid) > 4 ? card->uuid + 4 : "0");
    return SUCCESS;
}

int amdsmi_get_gpu_enumeration_info(Handle handle, Enumeration *out)
{
    LOOK;
    if (card->hip < 0)
        return NOT_SUPPORTED;
    *out = (Enumeration){.hsa_id = (uint32_t)card->hip + 2, .hip_id = (uint32_t)card->hip};
    out->drm_render = FIRST_RENDER + (uint32_t)card->minor;
    snprintf(out->hip_uuid, NAME, "%s", card->uuid);
    return SUCCESS;
}

int amdsmi_get_gpu_driver_info(Handle handle, DriverInfo *out)
{
    LOOK;
    memset(out, 0, sizeof *out);
    snprintf(out->version, NAME, "%s", state.driver);
    snprintf(out->name, NAME, "amdgpu");
    return SUCCESS;
}

static int give(long long figure, uint64_t *out)
{
    if (figure < 0)
        return NOT_SUPPORTED;
    *out = (uint64_t)figure;
    return SUCCESS;
}

int amdsmi_get_gpu_memory_total(Handle handle, int type, uint64_t *out)
{
    LOOK;
    return type == 0 ? give(card->total, out) : NOT_SUPPORTED;
}

int amdsmi_get_gpu_memory_usage(Handle handle, int type, uint64_t *out)
{
    LOOK;
    return type == 0 ? give(card->used, out) : NOT_SUPPORTED;
}

/* What is not known is the highest number, and the call succeeds. */
int amdsmi_get_gpu_activity(Handle handle, Activity *out)
{
    LOOK;
    *out = (Activity){.gfx = card->util < 0 ? 0xFFFF : (uint32_t)card->util, .umc = 0xFFFF, .mm = 0xFFFF};
    return SUCCESS;
}

/* The hottest spot, and the edge, at which data center GPUs have no sensor. */
int amdsmi_get_temp_metric(Handle handle, int sensor, int metric, int64_t *out)
{
    LOOK;
    int has_edge = strstr(card->name, "Instinct") == NULL;
    if ((sensor != 1 && (sensor != 0 || !has_edge)) || metric != 0 || card->temperature < 0)
        return NOT_SUPPORTED;
    *out = card->temperature - (sensor == 0 ? 15 : 0);
    return SUCCESS;
}

int amdsmi_get_power_info(Handle handle, Power *out)
{
    LOOK;
    uint32_t watts = card->milliwatts < 0 ? 0xFFFF : (uint32_t)(card->milliwatts / 1000);
    *out = (Power){.socket = watts, .current = watts, .average = 0xFFFF};
    return SUCCESS;
}

/* In units of 15.3 microjoules, as an MI300X counts. */
int amdsmi_get_energy_count(Handle handle, uint64_t *out, float *resolution, uint64_t *at)
{
    LOOK;
    long long millijoules = energy_of(card);
    if (millijoules < 0)
        return NOT_SUPPORTED;
    *resolution = 15.3f;
    *out = (uint64_t)((double)millijoules * 1000 / 15.3);
    *at = 0;
    return SUCCESS;
}

int amdsmi_get_power_cap_info(Handle handle, uint32_t sensor, PowerCap *out)
{
    LOOK;
    if (sensor || card->milliwatts < 0)
        return NOT_SUPPORTED;
    *out = (PowerCap){.cap = WATTS_ALLOWED * 1000000ull};
    return SUCCESS;
}

int amdsmi_get_gpu_process_list(Handle handle, uint32_t *count, Process *out)
{
    LOOK;
    uint32_t room = *count;
    *count = (uint32_t)card->process_count;
    if (room < *count)
        return OUT_OF_RESOURCES;
    for (uint32_t i = 0; i < *count; i++) {
        memset(&out[i], 0, sizeof out[i]);
        out[i].pid = card->processes[i].pid;
        out[i].mem = out[i].vram = (uint64_t)card->processes[i].bytes;
    }
    return SUCCESS;
}
