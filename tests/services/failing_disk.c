/* Preloaded into a process, this makes its calls on files fail, or take long, as the record in the file $FAILING_DISK says; see failing_disk.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum { READ = 1, WRITE = 2, SYNC = 4, OPEN = 8, ALLOCATE = 16, RENAME = 32, UNLINK = 64 };

struct rule {
    uint32_t calls;      /* bits of the enumeration above; 0: none fails */
    int32_t error;
    uint32_t failed;     /* calls that have failed */
    uint32_t least;      /* reads from this offset of the file on */
    char part[64];       /* of the file's path */
    uint32_t delay_ms;   /* not 0: the calls take so long, and do not fail */
};

static struct rule *rule;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("FAILING_DISK");
    int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
    int file = path ? real(path, O_RDWR) : -1;
    void *mapped = file >= 0 ? mmap(NULL, sizeof *rule, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    if (mapped != MAP_FAILED)
        rule = mapped;
    if (file >= 0)
        close(file);
}

static int fails_path(uint32_t call, const char *path)
{
    if (!rule || !(__atomic_load_n(&rule->calls, __ATOMIC_ACQUIRE) & call) || !path || !strstr(path, rule->part))
        return 0;
    __atomic_fetch_add(&rule->failed, 1, __ATOMIC_RELAXED);
    if (rule->delay_ms) {
        usleep(rule->delay_ms * 1000);
        return 0;
    }
    errno = rule->error;
    return 1;
}

static int fails(uint32_t call, int fd, off_t at, size_t size)
{
    char link[32], path[512];
    ssize_t length;
    if (!rule || !(__atomic_load_n(&rule->calls, __ATOMIC_ACQUIRE) & call) || (call == READ && at + (off_t)size <= rule->least))
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path - 1);
    if (length <= 0)
        return 0;
    path[length] = 0;
    return fails_path(call, path);
}

#define REAL(name, type, ...) ((type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name))

static size_t total(const struct iovec *parts, int count)
{
    size_t sum = 0;
    for (int i = 0; i < count; i++)
        sum += parts[i].iov_len;
    return sum;
}

#define READS(name) \
    ssize_t name(int fd, void *to, size_t size, off_t at) \
    { return fails(READ, fd, at, size) ? -1 : REAL(#name, ssize_t, int, void *, size_t, off_t)(fd, to, size, at); }
#define READS_PARTS(name) \
    ssize_t name(int fd, const struct iovec *to, int count, off_t at) \
    { return fails(READ, fd, at, total(to, count)) ? -1 : REAL(#name, ssize_t, int, const struct iovec *, int, off_t)(fd, to, count, at); }
#define READS_FLAGS(name) \
    ssize_t name(int fd, const struct iovec *to, int count, off_t at, int flags) \
    { return fails(READ, fd, at, total(to, count)) ? -1 : REAL(#name, ssize_t, int, const struct iovec *, int, off_t, int)(fd, to, count, at, flags); }
#define WRITES(name) \
    ssize_t name(int fd, const void *from, size_t size, off_t at) \
    { return fails(WRITE, fd, at, size) ? -1 : REAL(#name, ssize_t, int, const void *, size_t, off_t)(fd, from, size, at); }
#define WRITES_PARTS(name) \
    ssize_t name(int fd, const struct iovec *from, int count, off_t at) \
    { return fails(WRITE, fd, at, 0) ? -1 : REAL(#name, ssize_t, int, const struct iovec *, int, off_t)(fd, from, count, at); }
#define OPENS(name) \
    int name(const char *path, int flags, ...) \
    { \
        va_list rest; \
        va_start(rest, flags); \
        int mode = va_arg(rest, int); \
        va_end(rest); \
        return fails_path(OPEN, path) ? -1 : REAL(#name, int, const char *, int, int)(path, flags, mode); \
    }
#define OPENS_AT(name) \
    int name(int folder, const char *path, int flags, ...) \
    { \
        va_list rest; \
        va_start(rest, flags); \
        int mode = va_arg(rest, int); \
        va_end(rest); \
        return fails_path(OPEN, path) ? -1 : REAL(#name, int, int, const char *, int, int)(folder, path, flags, mode); \
    }
#define SYNCS(name) \
    int name(int fd) { return fails(SYNC, fd, 0, 0) ? -1 : REAL(#name, int, int)(fd); }
#define ALLOCATES(name) \
    int name(int fd, int mode, off_t at, off_t size) \
    { return fails(ALLOCATE, fd, at, 0) ? -1 : REAL(#name, int, int, int, off_t, off_t)(fd, mode, at, size); }
#define ALLOCATES_ALL(name) /* these return the error */ \
    int name(int fd, off_t at, off_t size) \
    { return fails(ALLOCATE, fd, at, 0) ? errno : REAL(#name, int, int, off_t, off_t)(fd, at, size); }
#define TRUNCATES(name) \
    int name(int fd, off_t size) { return fails(ALLOCATE, fd, 0, 0) ? -1 : REAL(#name, int, int, off_t)(fd, size); }

READS(pread) READS(pread64)
READS_PARTS(preadv) READS_PARTS(preadv64)
READS_FLAGS(preadv2) READS_FLAGS(preadv64v2)
WRITES(pwrite) WRITES(pwrite64)
WRITES_PARTS(pwritev) WRITES_PARTS(pwritev64)
OPENS(open) OPENS(open64)
OPENS_AT(openat) OPENS_AT(openat64)
SYNCS(fsync) SYNCS(fdatasync)
ALLOCATES(fallocate) ALLOCATES(fallocate64)
ALLOCATES_ALL(posix_fallocate) ALLOCATES_ALL(posix_fallocate64)
TRUNCATES(ftruncate) TRUNCATES(ftruncate64)

ssize_t read(int fd, void *to, size_t size)
{
    return fails(READ, fd, 0, SIZE_MAX / 4) ? -1 : REAL("read", ssize_t, int, void *, size_t)(fd, to, size);
}

ssize_t write(int fd, const void *from, size_t size)
{
    return fails(WRITE, fd, 0, size) ? -1 : REAL("write", ssize_t, int, const void *, size_t)(fd, from, size);
}

ssize_t writev(int fd, const struct iovec *from, int count)
{
    return fails(WRITE, fd, 0, 0) ? -1 : REAL("writev", ssize_t, int, const struct iovec *, int)(fd, from, count);
}

ssize_t sendfile64(int out, int in, off_t *at, size_t size)
{
    return fails(READ, in, at ? *at : 0, size) ? -1 : REAL("sendfile64", ssize_t, int, int, off_t *, size_t)(out, in, at, size);
}

ssize_t sendfile(int out, int in, off_t *at, size_t size)
{
    return sendfile64(out, in, at, size);
}

int rename(const char *old, const char *new)
{
    return fails_path(RENAME, new) ? -1 : REAL("rename", int, const char *, const char *)(old, new);
}

int unlink(const char *path)
{
    return fails_path(UNLINK, path) ? -1 : REAL("unlink", int, const char *)(path);
}
