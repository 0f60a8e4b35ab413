/* The pretend machine that nvml.c and cuda.c speak of, and in a file of its own amd_smi.c: a text file that a test writes.
 *
 * It is read again at every call, so that a test can lose a GPU while a kernel looks. The writer replaces
 * the file as a whole (see __init__.py), so that one reading never mixes two machines. One line each:
 *
 *     driver VERSION
 *     cuda VERSION                     as cuDriverGetVersion gives it: 13000 is CUDA 13.0
 *     refuse CODE                      what nvmlInit answers instead of success
 *     hang FUNCTION GPU SECONDS        this NVML symbol takes that long on the GPU with that index, or until the line is gone
 *     answer FUNCTION GPU CODE         this NVML symbol answers so about that GPU, and tells nothing
 *     gpu UUID BUS_ID TOTAL USED UTIL TEMPERATURE MILLIWATTS ok|lost NAME WITH SPACES
 *     proc PID BYTES WORK              on the gpu line before it; WORK is how busy it keeps the GPU, in percent
 *     energy MILLIJOULES               what the gpu line before it had counted when the machine was started
 *     reserve BYTES                    what the driver keeps of the memory of the gpu line before it
 *     speed MAJOR MINOR CORES CLOCK    the compute capability of the gpu line before it, its cores, and its highest MHz
 *     reasons BITS                     why its clocks are low, besides that it is idle (nvmlClocksEventReason...)
 *     mig UUID TOTAL USED NAME         an instance of the gpu line before it
 *     mode NUMBER                      the compute mode of the gpu line before it
 *     link SWITCH NVLINK               its PCIe switch, and its group of NVLink or XGMI, of that gpu line; -1: none
 *     file NUMBER                      the device file of the gpu line before it, /dev/nvidiaN, of AMD renderD(128+N); else its index
 *     hip NUMBER                       the number that HIP gives to the gpu line before it: AMD's alone
 *
 *     lose GPU CALLS WRITTEN           that GPU is lost at this call into NVML since the file was written
 *
 * In hang and answer -1 is every GPU, and the machine itself. Bytes, percent, degrees C, milliwatts; -1 where the driver does not know the figure.
 */
#ifndef STATE_H
#define STATE_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#ifndef STATE_VARIABLE
#define STATE_VARIABLE "GPU_MAGIC_TEST_STATE" /* the environment variable with the file's path */
#endif

enum { CARDS = 128, PROCESSES = 64, INSTANCES = 7, HANGS = 8, ANSWERS = 8, TEXT = 96 };

struct process {
    unsigned pid;
    long long bytes, work;
};

struct instance {
    char uuid[TEXT], name[TEXT];
    long long total, used;
};

struct card {
    char uuid[TEXT], bus_id[32], name[TEXT];
    long long total, used, util, temperature, milliwatts, energy;
    long long reserved, capability[2], cores, clock, reasons;
    int lost, mode, minor, hip, process_count, instance_count;
    struct process processes[PROCESSES];
    struct instance instances[INSTANCES];
};

struct hang {
    char function[64];
    int gpu;
    double seconds;
};

struct answer {
    char function[64];
    int gpu, code;
};

struct state {
    char driver[80];
    int cuda, refuse, hang_count, answer_count, count;
    int lose, calls; /* the GPU, and the call at which it is lost; -1: none */
    long long written;
    struct hang hangs[HANGS];
    struct answer answers[ANSWERS];
    struct card cards[CARDS];
};

/* Names hold spaces: they are the rest of the line. */
static inline int read_name(char *name, const char *rest)
{
    size_t length = strcspn(rest, "\n");
    if (length >= TEXT)
        return 0;
    memcpy(name, rest, length);
    name[length] = 0;
    return 1;
}

static inline int read_card(struct state *state, const char *rest)
{
    char life[8];
    int end = 0;
    if (state->count == CARDS)
        return 0;
    struct card *card = &state->cards[state->count++];
    memset(card, 0, sizeof *card);
    card->minor = state->count - 1;
    card->hip = -1;
    card->energy = card->cores = card->clock = -1;
    int got = sscanf(rest, "%95s %31s %lld %lld %lld %lld %lld %7s %n", card->uuid, card->bus_id,
                     &card->total, &card->used, &card->util, &card->temperature, &card->milliwatts, life,
                     &end);
    card->lost = got == 8 && strcmp(life, "lost") == 0;
    return got == 8 && (card->lost || strcmp(life, "ok") == 0) && read_name(card->name, rest + end);
}

static inline int read_process(struct card *card, const char *rest)
{
    if (!card || card->process_count == PROCESSES)
        return 0;
    struct process *process = &card->processes[card->process_count++];
    return sscanf(rest, "%u %lld %lld", &process->pid, &process->bytes, &process->work) == 3;
}

static inline int read_instance(struct card *card, const char *rest)
{
    int end = 0;
    if (!card || card->instance_count == INSTANCES)
        return 0;
    struct instance *instance = &card->instances[card->instance_count++];
    int got = sscanf(rest, "%95s %lld %lld %n", instance->uuid, &instance->total, &instance->used, &end);
    return got == 3 && read_name(instance->name, rest + end);
}

static inline int read_hang(struct state *state, const char *rest)
{
    if (state->hang_count == HANGS)
        return 0;
    struct hang *hang = &state->hangs[state->hang_count++];
    return sscanf(rest, "%63s %d %lf", hang->function, &hang->gpu, &hang->seconds) == 3;
}

static inline int read_answer(struct state *state, const char *rest)
{
    if (state->answer_count == ANSWERS)
        return 0;
    struct answer *answer = &state->answers[state->answer_count++];
    return sscanf(rest, "%63s %d %d", answer->function, &answer->gpu, &answer->code) == 3;
}

static inline int read_line(struct state *state, const char *line)
{
    char word[8];
    int end = 0;
    if (sscanf(line, "%7s %n", word, &end) < 1)
        return 1; /* a blank line */
    const char *rest = line + end;
    struct card *card = state->count ? &state->cards[state->count - 1] : NULL;
    if (strcmp(word, "driver") == 0)
        return sscanf(rest, "%79s", state->driver) == 1;
    if (strcmp(word, "cuda") == 0)
        return sscanf(rest, "%d", &state->cuda) == 1;
    if (strcmp(word, "refuse") == 0)
        return sscanf(rest, "%d", &state->refuse) == 1;
    if (strcmp(word, "hang") == 0)
        return read_hang(state, rest);
    if (strcmp(word, "lose") == 0)
        return sscanf(rest, "%d %d %lld", &state->lose, &state->calls, &state->written) == 3;
    if (strcmp(word, "answer") == 0)
        return read_answer(state, rest);
    if (strcmp(word, "gpu") == 0)
        return read_card(state, rest);
    if (strcmp(word, "proc") == 0)
        return read_process(card, rest);
    if (strcmp(word, "mig") == 0)
        return read_instance(card, rest);
    if (strcmp(word, "mode") == 0)
        return card && sscanf(rest, "%d", &card->mode) == 1;
    if (strcmp(word, "file") == 0)
        return card && sscanf(rest, "%d", &card->minor) == 1;
    if (strcmp(word, "energy") == 0)
        return card && sscanf(rest, "%lld", &card->energy) == 1;
    if (strcmp(word, "reserve") == 0)
        return card && sscanf(rest, "%lld", &card->reserved) == 1;
    if (strcmp(word, "speed") == 0)
        return card && sscanf(rest, "%lld %lld %lld %lld", card->capability, card->capability + 1, &card->cores,
                              &card->clock) == 4;
    if (strcmp(word, "reasons") == 0)
        return card && sscanf(rest, "%lld", &card->reasons) == 1;
    if (strcmp(word, "hip") == 0)
        return card && sscanf(rest, "%d", &card->hip) == 1;
    return 0;
}

enum { STEPS = 10 }; /* how often a second the driver brings a counter up to date, whoever asks meanwhile */

/* Millijoules: what is drawn now, for as long as the machine runs; -1 where it does not count them. */
static inline long long energy_of(const struct card *card)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (card->energy < 0 || card->milliwatts < 0)
        return -1;
    long long steps = (long long)now.tv_sec * STEPS + now.tv_nsec / (1000000000 / STEPS);
    return card->energy + card->milliwatts * steps / STEPS;
}

/* 1 and the machine; or 0, and the reason on stderr: a test's mistake must not pass for a driver's answer. */
static inline int read_file(struct state *state, const char *path)
{
    FILE *file = path ? fopen(path, "re") : NULL;
    char line[512];
    int good = 1;
    memset(state, 0, offsetof(struct state, cards)); /* each card is, when its line comes */
    state->lose = -1;
    if (!file) {
        fprintf(stderr, "pretend driver: " STATE_VARIABLE ": cannot read %s\n", path ? path : "(unset)");
        return 0;
    }
    while (good && fgets(line, sizeof line, file)) {
        good = strlen(line) < sizeof line - 1 && read_line(state, line);
        if (!good)
            fprintf(stderr, "pretend driver: %s: not understood: %s\n", path, line);
    }
    fclose(file);
    return good;
}

/* The same, from memory where the file is still the one that was read last: 128 GPUs are 900 lines. */
static inline int read_state(struct state *state)
{
    static __thread struct state kept; /* each thread's own: no lock that a fork could copy */
    static __thread struct stat read;
    static __thread int is_kept;
    const char *path = getenv(STATE_VARIABLE);
    struct stat now;
    if (!path || stat(path, &now) != 0)
        return read_file(state, path);
    if (!is_kept || now.st_ino != read.st_ino || now.st_size != read.st_size ||
        now.st_mtim.tv_sec != read.st_mtim.tv_sec || now.st_mtim.tv_nsec != read.st_mtim.tv_nsec)
        is_kept = read_file(&kept, path);
    read = now;
    if (is_kept)
        memcpy(state, &kept, offsetof(struct state, cards) + (size_t)kept.count * sizeof *kept.cards);
    return is_kept;
}

#endif
