/* The tests' pretend libnvidia-ml.so.1, answering at once.
 *
 * The tests change the machine under a reader's eyes, so theirs parses a file at every call: some 20 us
 * that would hide what Python costs. This one reads it once. It also has the functions that nvitop asks
 * for beyond the tests' callers: a symbol that is missing costs it an exception and a log line at each call,
 * which no driver of today would.
 *
 * With INSTANT_MOVES set in the environment every figure moves from one call to the next, as on a machine
 * where everybody works.
 */
#include <stddef.h>

#include "../tests/native/state.h"

static int read_once(struct state *state)
{
    static struct state kept;
    static int is_read, moves;
    static unsigned calls;
    if (!is_read) {
        is_read = read_state(&kept);
        moves = getenv("INSTANT_MOVES") != NULL;
    }
    for (int i = 0; moves && i < kept.count; i++) {
        struct card *card = &kept.cards[i];
        unsigned step = (calls++ / 7 + (unsigned)i) % 9;
        card->util = 90 + step;
        card->temperature = 60 + step;
        card->milliwatts = (300 + 7 * step) * 1000LL;
        card->used = card->total / 2 + (long long)step * (card->total / 100);
    }
    memcpy(state, &kept, offsetof(struct state, cards) + (size_t)kept.count * sizeof kept.cards[0]);
    return is_read;
}

#define read_state read_once
#include "../tests/native/nvml.c"

int nvmlDeviceGetGraphicsRunningProcesses_v3(Device device, unsigned *count, Process *out)
{
    LOOK(look_at_gpu);
    (void)out;
    *count = 0;
    return SUCCESS;
}

static int give_nothing(Device device, unsigned *percent, unsigned *microseconds)
{
    LOOK(look_at_gpu);
    *percent = 0;
    *microseconds = 100000;
    return SUCCESS;
}

int nvmlDeviceGetEncoderUtilization(Device d, unsigned *percent, unsigned *us) { return give_nothing(d, percent, us); }
int nvmlDeviceGetDecoderUtilization(Device d, unsigned *percent, unsigned *us) { return give_nothing(d, percent, us); }

/* Cards in a server have no fan of their own. */
int nvmlDeviceGetFanSpeed(Device device, unsigned *percent)
{
    LOOK(look_at_gpu);
    (void)percent;
    return NOT_SUPPORTED;
}
