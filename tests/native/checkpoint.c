/* What cuda.c lacks of memory and of checkpoints, as far as tests/gpu asks for it (CUDA 13.0's cuda.h).
 *
 * Memory is only told: an allocation is a size and the word that it was filled with. What cuCheckpointProcess... have
 * made of a process is a file beside that of the machine, because another process does it: no file, and it runs.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED, INVALID_CONTEXT = 201, ILLEGAL_STATE = 401 };
enum { NOT_PERMITTED = 800 };
enum { RUNNING, LOCKED, CHECKPOINTED };

struct lock_arguments {
    unsigned timeout_ms, reserved0;
    uint64_t reserved1[7];
};

static struct allocation {
    uint64_t address;
    size_t bytes;
    unsigned word;
} allocations[16];

int cuDeviceGetCount(int *out); /* of cuda.c */

static char *file_of(int pid, char *path, size_t size)
{
    const char *machine = getenv("GPU_MAGIC_TEST_STATE");
    snprintf(path, size, "%s.checkpoint-%d", machine ? machine : "", pid);
    return path;
}

static int state_of(int pid)
{
    char path[512];
    FILE *file = fopen(file_of(pid, path, sizeof path), "r");
    int state = RUNNING;
    if (file) {
        if (fscanf(file, "%d", &state) != 1)
            state = RUNNING;
        fclose(file);
    }
    return state;
}

static int change(int pid, int from, int to)
{
    char path[512];
    int count, code = cuDeviceGetCount(&count);
    if (code)
        return code;
    if (pid <= 0 || kill(pid, 0))
        return INVALID_VALUE;
    if (state_of(pid) != from)
        return ILLEGAL_STATE;
    if (to == RUNNING)
        return remove(file_of(pid, path, sizeof path)) ? NOT_PERMITTED : SUCCESS;
    FILE *file = fopen(file_of(pid, path, sizeof path), "w");
    if (!file)
        return NOT_PERMITTED;
    fprintf(file, "%d\n", to);
    fclose(file);
    return SUCCESS;
}

int cuCheckpointProcessGetState(int pid, int *out)
{
    int count, code = cuDeviceGetCount(&count);
    if (!code && (pid <= 0 || kill(pid, 0)))
        code = INVALID_VALUE;
    if (!code)
        *out = state_of(pid);
    return code;
}

/* A time limit is asked for: without one, a process whose work does not end is waited for without an end. */
int cuCheckpointProcessLock(int pid, struct lock_arguments *arguments)
{
    if (!arguments || !arguments->timeout_ms || arguments->reserved0)
        return INVALID_VALUE;
    for (int i = 0; i < 7; i++)
        if (arguments->reserved1[i])
            return INVALID_VALUE;
    return change(pid, RUNNING, LOCKED);
}

int cuCheckpointProcessCheckpoint(int pid, void *arguments)
{
    return arguments ? INVALID_VALUE : change(pid, LOCKED, CHECKPOINTED);
}

int cuCheckpointProcessRestore(int pid, void *arguments)
{
    return arguments ? INVALID_VALUE : change(pid, CHECKPOINTED, LOCKED);
}

int cuCheckpointProcessUnlock(int pid, void *arguments)
{
    return arguments ? INVALID_VALUE : change(pid, LOCKED, RUNNING);
}

/* Calls of a process that is not running wait until it runs again. */
static int ready_to_work(void)
{
    int count;
    while (state_of(getpid()) != RUNNING)
        usleep(10000);
    return cuDeviceGetCount(&count);
}

int cuCtxSetCurrent(void *context)
{
    return context ? ready_to_work() : INVALID_CONTEXT;
}

static struct allocation *holding(uint64_t address)
{
    for (int i = 0; i < 16; i++)
        if (allocations[i].bytes && address - allocations[i].address < allocations[i].bytes)
            return &allocations[i];
    return NULL;
}

int cuMemAlloc_v2(uint64_t *out, size_t bytes)
{
    int code = ready_to_work();
    for (int i = 0; i < 16 && !code; i++)
        if (!allocations[i].bytes) {
            allocations[i] = (struct allocation){((uint64_t)i + 1) << 40, bytes, 0};
            *out = allocations[i].address;
            return SUCCESS;
        }
    return code ? code : OUT_OF_MEMORY;
}

int cuMemFree_v2(uint64_t address)
{
    struct allocation *found = holding(address);
    int code = ready_to_work();
    if (!code && !found)
        code = INVALID_VALUE;
    if (!code)
        found->bytes = 0;
    return code;
}

int cuMemsetD32_v2(uint64_t address, unsigned word, size_t count)
{
    struct allocation *found = holding(address);
    int code = ready_to_work();
    if (!code && (!found || count * 4 > found->bytes))
        code = INVALID_VALUE;
    if (!code)
        found->word = word;
    return code;
}

int cuMemcpyDtoH_v2(void *out, uint64_t address, size_t bytes)
{
    struct allocation *found = holding(address);
    int code = ready_to_work();
    if (!code && (!found || bytes != sizeof found->word))
        code = INVALID_VALUE;
    if (!code)
        *(unsigned *)out = found->word;
    return code;
}
