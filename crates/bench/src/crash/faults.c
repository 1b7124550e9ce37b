/* Loaded before a node: its disk stalls and its wall clock jumps, as a file says that both processes map.

   Three words of 8 bytes: not 0 while syncs wait; what is added to CLOCK_REALTIME, in nanoseconds, signed; 1 once this is loaded. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct faults {
    volatile int64_t stalled;
    volatile int64_t offset_ns;
    volatile int64_t is_loaded;
};

static struct faults none;
static struct faults *faults = &none;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("NODE_FAULTS_FILE");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof none, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) {
        faults = mapped;
        faults->is_loaded = 1;
    }
    close(file);
}

static void wait_for_disk(void) {
    while (faults->stalled) usleep(1000);
}

int fsync(int file) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    wait_for_disk();
    return real(file);
}

int fdatasync(int file) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    wait_for_disk();
    return real(file);
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int done = real(clock, at);
    if (done == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t ns = (int64_t)at->tv_sec * 1000000000 + at->tv_nsec + faults->offset_ns;
        at->tv_sec = ns / 1000000000;
        at->tv_nsec = ns % 1000000000;
    }
    return done;
}
