/* A system in trouble, between a program and the C library (LD_PRELOAD): told by variables, which are read at every call.
 *
 *     GPU_MAGIC_TEST_FULL       folders, separated by colons, in which nothing can be written: ENOSPC
 *     GPU_MAGIC_TEST_READ_ONLY  folders in which nothing can be made, changed or removed: EROFS
 *     GPU_MAGIC_TEST_HIDDEN     folders in which nothing can be opened: EACCES
 *     GPU_MAGIC_TEST_CLOCK      seconds by which the clock of the day differs from the system's
 *
 * What a path is relative to, and links in it, count: it is the real place that is in a folder.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int is_in(const char *place, const char *variable)
{
    const char *folders = getenv(variable);
    while (folders && *folders) {
        size_t length = strcspn(folders, ":");
        if (length && strncmp(place, folders, length) == 0 && (place[length] == '/' || place[length] == 0))
            return 1;
        folders += length + (folders[length] == ':');
    }
    return 0;
}

/* The real place of a file that need not be there: that of its folder, and its name. */
static int find(int folder, const char *path, char *place)
{
    char whole[PATH_MAX], link[64];
    if (*path != '/' && folder != AT_FDCWD) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        ssize_t length = REAL(readlink)(link, whole, sizeof whole - 1);
        if (length < 0)
            return 0;
        snprintf(whole + length, sizeof whole - (size_t)length, "/%s", path);
    } else
        snprintf(whole, sizeof whole, "%s", path);
    if (realpath(whole, place))
        return 1;
    char *name = strrchr(whole, '/');
    const char *last = name ? name + 1 : path;
    char rest[NAME_MAX + 1];
    snprintf(rest, sizeof rest, "%s", last);
    if (name)
        *(name == whole ? name + 1 : name) = 0;
    if (!realpath(name ? whole : ".", place))
        return 0;
    size_t length = strlen(place);
    snprintf(place + length, PATH_MAX - length, "/%s", rest);
    return 1;
}

static int is_told(void)
{
    return getenv("GPU_MAGIC_TEST_FULL") || getenv("GPU_MAGIC_TEST_READ_ONLY") || getenv("GPU_MAGIC_TEST_HIDDEN");
}

enum { READS = 1, CHANGES = 2, MAKES = 4 };

/* What a call on a path fails with; 0: nothing. */
static int failure(int folder, const char *path, int does)
{
    char place[PATH_MAX];
    int before = errno, code = 0;
    if (path && is_told() && find(folder, path, place)) {
        if ((does & READS) && is_in(place, "GPU_MAGIC_TEST_HIDDEN"))
            code = EACCES;
        else if ((does & (CHANGES | MAKES)) && is_in(place, "GPU_MAGIC_TEST_READ_ONLY"))
            code = EROFS;
        else if ((does & MAKES) && is_in(place, "GPU_MAGIC_TEST_FULL"))
            code = ENOSPC;
    }
    errno = code ? code : before;
    return code;
}

#define REFUSE(folder, path, does, answer)  \
    if (failure(folder, path, does))        \
        return answer

static int wants(int flags)
{
    return (flags & O_ACCMODE) == O_RDONLY && !(flags & (O_CREAT | O_TRUNC)) ? READS : READS | CHANGES;
}

#define OPEN(name)                                          \
    int name(const char *path, int flags, ...)              \
    {                                                       \
        va_list rest;                                       \
        va_start(rest, flags);                              \
        mode_t mode = va_arg(rest, mode_t);                 \
        va_end(rest);                                       \
        REFUSE(AT_FDCWD, path, wants(flags), -1);           \
        return REAL(name)(path, flags, mode);               \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                        \
    int name(int folder, const char *path, int flags, ...)  \
    {                                                       \
        va_list rest;                                       \
        va_start(rest, flags);                              \
        mode_t mode = va_arg(rest, mode_t);                 \
        va_end(rest);                                       \
        REFUSE(folder, path, wants(flags), -1);             \
        return REAL(name)(folder, path, flags, mode);       \
    }
OPENAT(openat)
OPENAT(openat64)

DIR *opendir(const char *path)
{
    REFUSE(AT_FDCWD, path, READS, NULL);
    return REAL(opendir)(path);
}

ssize_t readlink(const char *path, char *out, size_t size)
{
    REFUSE(AT_FDCWD, path, READS, -1);
    return REAL(readlink)(path, out, size);
}

int mkdir(const char *path, mode_t mode)
{
    if (faccessat(AT_FDCWD, path, F_OK, AT_EACCESS) != 0) /* what is there is said to be there, on a full disk, too */
        REFUSE(AT_FDCWD, path, MAKES, -1);
    return REAL(mkdir)(path, mode);
}

int unlink(const char *path)
{
    REFUSE(AT_FDCWD, path, CHANGES, -1);
    return REAL(unlink)(path);
}

int unlinkat(int folder, const char *path, int flags)
{
    REFUSE(folder, path, CHANGES, -1);
    return REAL(unlinkat)(folder, path, flags);
}

int rename(const char *from, const char *to)
{
    REFUSE(AT_FDCWD, to, CHANGES, -1);
    return REAL(rename)(from, to);
}

int renameat(int folder, const char *from, int other, const char *to)
{
    REFUSE(other, to, CHANGES, -1);
    return REAL(renameat)(folder, from, other, to);
}

ssize_t write(int file, const void *bytes, size_t count)
{
    char link[64], place[PATH_MAX];
    if (getenv("GPU_MAGIC_TEST_FULL")) {
        int before = errno;
        snprintf(link, sizeof link, "/proc/self/fd/%d", file);
        ssize_t length = REAL(readlink)(link, place, sizeof place - 1);
        place[length < 0 ? 0 : length] = 0;
        if (count && is_in(place, "GPU_MAGIC_TEST_FULL")) {
            errno = ENOSPC;
            return -1;
        }
        errno = before;
    }
    return REAL(write)(file, bytes, count);
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
    int answer = REAL(clock_gettime)(clock, out);
    const char *seconds = clock == CLOCK_REALTIME ? getenv("GPU_MAGIC_TEST_CLOCK") : NULL;
    if (seconds && !answer)
        out->tv_sec += atol(seconds);
    return answer;
}
