/* Copies into memory that is mapped from a file.
 *
 * A store to a page that the file system cannot provide (its device fails, it has become read-only, the file was cut
 * meanwhile) raises SIGBUS, which ends the process. Here it is an error of the copy. Header only, because each extension is
 * one C file.
 */
#ifndef PENSTOCK_GUARDED_COPY_H
#define PENSTOCK_GUARDED_COPY_H

#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>

static __thread sigjmp_buf guarded_copy_back;
static __thread volatile sig_atomic_t guarded_copy_runs;
static struct sigaction guarded_copy_before;
static int guarded_copy_is_ready;

static void guarded_copy_on_bus(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    if (guarded_copy_runs) {
        guarded_copy_runs = 0;
        siglongjmp(guarded_copy_back, 1);
    }
    sigaction(SIGBUS, &guarded_copy_before, NULL); /* the instruction runs again, and meets what handled it before */
}

/* Installs the handler, once; returns 0, or -1 with errno. */
static int guarded_copy_setup(void) {
    struct sigaction action;
    if (guarded_copy_is_ready) return 0;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = guarded_copy_on_bus;
    action.sa_flags = SA_SIGINFO | SA_NODEFER; /* so that the jump out of the handler leaves no signal blocked */
    if (sigaction(SIGBUS, &action, &guarded_copy_before)) return -1;
    guarded_copy_is_ready = 1;
    return 0;
}

/* Returns 0, or -1: some of the bytes may be missing. */
static int guarded_copy(void *to, const void *from, size_t size) {
    if (sigsetjmp(guarded_copy_back, 0)) return -1;
    guarded_copy_runs = 1;
    __asm__ volatile("" ::: "memory");
    memcpy(to, from, size);
    __asm__ volatile("" ::: "memory");
    guarded_copy_runs = 0;
    return 0;
}

#endif
