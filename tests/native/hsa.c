/* A pretend libhsa-runtime64.so.1: whether ROCm's runtime was started in this process.
 *
 * `hsa_system_get_info` answers HSA_STATUS_ERROR_NOT_INITIALIZED until `hsa_init` was called (HSA Runtime
 * Programmer's Reference Manual 1.2, 2.1.1 and 2.3), as ROCm's does; HIP calls `hsa_init` when it is first used.
 */
#include <stdatomic.h>
#include <stdint.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 0x1001, NOT_INITIALIZED = 0x100B };
enum { VERSION_MAJOR = 0 };

static atomic_int starts;

int hsa_init(void)
{
    starts++;
    return SUCCESS;
}

int hsa_shut_down(void)
{
    if (!starts)
        return NOT_INITIALIZED;
    starts--;
    return SUCCESS;
}

int hsa_system_get_info(int attribute, void *value)
{
    if (!starts)
        return NOT_INITIALIZED;
    if (!value || attribute != VERSION_MAJOR)
        return INVALID_ARGUMENT;
    *(uint16_t *)value = 1;
    return SUCCESS;
}
