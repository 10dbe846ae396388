/* Preloaded into a process, this moves its wall clock, and no other, by the milliseconds in the file $STEPPED_CLOCK (eight bytes). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *step_ms;
static int (*real_clock)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("STEPPED_CLOCK");
    int file = path ? open(path, O_RDONLY) : -1;
    void *mapped = file >= 0 ? mmap(NULL, 8, PROT_READ, MAP_SHARED, file, 0) : MAP_FAILED;
    real_clock = dlsym(RTLD_NEXT, "clock_gettime");
    if (mapped != MAP_FAILED)
        step_ms = mapped;
    if (file >= 0)
        close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = real_clock(clock, now);
    if (!failed && step_ms && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        now->tv_sec += *step_ms / 1000;
        now->tv_nsec += *step_ms % 1000 * 1000000;
        if (now->tv_nsec >= 1000000000)
            now->tv_sec++, now->tv_nsec -= 1000000000;
        if (now->tv_nsec < 0)
            now->tv_sec--, now->tv_nsec += 1000000000;
    }
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec precise;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *seconds)
{
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (seconds)
        *seconds = precise.tv_sec;
    return precise.tv_sec;
}
