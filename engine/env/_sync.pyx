# cython: language_level=3
"""A thread that only calls fdatasync: requested by one eventfd, answering by another. Reference: sync.py.

It never holds the GIL, so a sync costs the loop two small system calls. Requests that arrive during a sync become the
next one: group commit without a timer.
"""
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t, uint64_t
from posix.unistd cimport close, dup, read, write

cdef extern from "sys/eventfd.h" nogil:
    int eventfd(unsigned int start, int flags)
    int EFD_CLOEXEC
    int EFD_NONBLOCK

cdef extern from "unistd.h" nogil:
    int fdatasync(int fd)

cdef extern from "<time.h>" nogil:
    cdef struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec* out)
    int CLOCK_MONOTONIC

cdef extern from "signal.h" nogil:
    ctypedef struct sigset_t:
        pass
    int sigfillset(sigset_t* signals)
    int SIG_SETMASK

cdef extern from "pthread.h" nogil:
    ctypedef unsigned long pthread_t
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_attr_t:
        pass
    int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*) noexcept nogil, void* argument)
    int pthread_join(pthread_t thread, void** result)
    int pthread_mutex_init(pthread_mutex_t* mutex, void* attributes)
    int pthread_mutex_lock(pthread_mutex_t* mutex)
    int pthread_mutex_unlock(pthread_mutex_t* mutex)
    int pthread_sigmask(int how, const sigset_t* wanted, sigset_t* old)

cdef enum:
    EARLIER_MAX = 8

cdef struct SyncState:
    pthread_mutex_t mutex
    int wake_fd
    int done_fd
    int fd
    int earlier[EARLIER_MAX]     # full files since the last sync; they are synced first
    int earlier_count
    uint64_t wanted
    uint64_t done
    int error
    int stopping
    int64_t syncs                # since the last `spent()`
    int64_t spent_ns


cdef inline int64_t now_ns() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return <int64_t>t.tv_sec * 1000000000 + t.tv_nsec


cdef void* run(void* argument) noexcept nogil:
    cdef SyncState* shared = <SyncState*>argument
    cdef uint64_t ticks, wanted
    cdef int files[EARLIER_MAX + 1]
    cdef int count, i, failed
    cdef uint64_t one = 1
    cdef int64_t began_ns
    while True:
        if read(shared.wake_fd, &ticks, 8) < 0 and errno == EINTR:
            continue
        pthread_mutex_lock(&shared.mutex)
        if shared.stopping:
            pthread_mutex_unlock(&shared.mutex)
            return NULL
        wanted = shared.wanted
        count = shared.earlier_count
        for i in range(count):
            files[i] = shared.earlier[i]
        files[count] = shared.fd
        count += 1
        shared.earlier_count = 0
        pthread_mutex_unlock(&shared.mutex)
        failed = 0
        began_ns = now_ns()
        for i in range(count):
            if failed == 0 and fdatasync(files[i]) != 0:
                failed = errno
            if i < count - 1:
                close(files[i])
        pthread_mutex_lock(&shared.mutex)
        shared.syncs += 1
        shared.spent_ns += now_ns() - began_ns
        if failed:
            shared.error = failed
        else:
            shared.done = wanted
        pthread_mutex_unlock(&shared.mutex)
        write(shared.done_fd, &one, 8)
        if failed:
            return NULL


cdef class SyncThread:
    """Syncs a file up to a position.

    `done_fd` becomes readable when `done` or `error` has changed; `collect()` reads it. After an error the thread ends.
    """

    cdef SyncState shared
    cdef pthread_t thread
    cdef bint started
    cdef readonly int done_fd

    def __cinit__(self):
        cdef sigset_t all_signals, old
        pthread_mutex_init(&self.shared.mutex, NULL)
        self.shared.wake_fd = eventfd(0, EFD_CLOEXEC)
        self.shared.done_fd = self.done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        if self.shared.wake_fd < 0 or self.shared.done_fd < 0:
            raise OSError(errno, "eventfd")
        # Signals belong to Python's main thread.
        sigfillset(&all_signals)
        pthread_sigmask(SIG_SETMASK, &all_signals, &old)
        cdef int failed = pthread_create(&self.thread, NULL, run, &self.shared)
        pthread_sigmask(SIG_SETMASK, &old, NULL)
        if failed:
            raise OSError(failed, "pthread_create")
        self.started = True

    def __dealloc__(self):
        cdef int i
        self.stop()
        for i in range(self.shared.earlier_count):
            close(self.shared.earlier[i])
        close(self.shared.wake_fd)
        close(self.shared.done_fd)

    def request(self, int fd, uint64_t position):
        """Request a sync of everything below `position`, which lies in file `fd`. Returns at once."""
        cdef uint64_t one = 1
        pthread_mutex_lock(&self.shared.mutex)
        self.shared.fd = fd
        self.shared.wanted = position
        pthread_mutex_unlock(&self.shared.mutex)
        write(self.shared.wake_fd, &one, 8)

    def leave_behind(self, int fd):
        """Sync this full file before the next one. The caller may close its descriptor at once.

        Returns False when too many files wait already; the caller syncs it then.
        """
        cdef bint taken = False
        cdef int own = dup(fd)
        if own < 0:
            return False
        pthread_mutex_lock(&self.shared.mutex)
        if self.shared.earlier_count < EARLIER_MAX:
            self.shared.earlier[self.shared.earlier_count] = own
            self.shared.earlier_count += 1
            taken = True
        pthread_mutex_unlock(&self.shared.mutex)
        if not taken:
            close(own)
        return taken

    def collect(self):
        """(position synced so far, errno of a failed sync or 0). Clears `done_fd`."""
        cdef uint64_t ticks
        read(self.shared.done_fd, &ticks, 8)
        pthread_mutex_lock(&self.shared.mutex)
        done, error = self.shared.done, self.shared.error
        pthread_mutex_unlock(&self.shared.mutex)
        return done, error

    def spent(self):
        """(number of syncs, their time in ns) since the last call."""
        pthread_mutex_lock(&self.shared.mutex)
        spent = self.shared.syncs, self.shared.spent_ns
        self.shared.syncs = self.shared.spent_ns = 0
        pthread_mutex_unlock(&self.shared.mutex)
        return spent

    def stop(self):
        """End the thread after the running sync. Blocks for that long."""
        cdef uint64_t one = 1
        cdef pthread_t thread = self.thread
        if not self.started:
            return
        self.started = False
        pthread_mutex_lock(&self.shared.mutex)
        self.shared.stopping = 1
        pthread_mutex_unlock(&self.shared.mutex)
        write(self.shared.wake_fd, &one, 8)
        with nogil:
            pthread_join(thread, NULL)
