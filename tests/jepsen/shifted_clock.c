/* Shift the wall clock of one process while it runs; loaded by LD_PRELOAD.

   The file LOGSTORE_CLOCK has three numbers of 64 bits:

       offset_ns   what is added to the wall clock; another process changes it at any time
       seen_ns     the offset that this process added at its last look
       looks       how often this process looked at the wall clock

   Monotonic clocks stay as they are. The kernel compares an absolute end of a wait with the real
   wall clock, so it is shifted back by what the thread saw at its last look. If the clock jumped
   between this look and the wait, the wait could take a minute longer. So none takes longer than
   WAIT_SECONDS_MAX. Only ends that are too large for a monotonic clock (1e9 s are 31 years) are
   times of the wall clock. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#define BILLION 1000000000L
#define WAIT_SECONDS_MAX 10
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

struct clock { int64_t offset_ns, seen_ns, looks; };

static struct clock nowhere, *shared = &nowhere;
static __thread int64_t last_ns;
static int (*real_gettime)(clockid_t, struct timespec *);
static int (*real_sem_wait)(sem_t *, const struct timespec *);
static int (*real_cond_wait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
static int (*real_cnd_wait)(cnd_t *, mtx_t *, const struct timespec *);

__attribute__((constructor)) static void begin(void) {
    real_gettime = REAL(clock_gettime);
    real_sem_wait = REAL(sem_timedwait);
    real_cond_wait = REAL(pthread_cond_timedwait);
    real_cnd_wait = REAL(cnd_timedwait);
    const char *path = getenv("LOGSTORE_CLOCK");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *at = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED) shared = at;
    close(fd);
}

static void add(struct timespec *at, int64_t offset_ns) {
    int64_t ns = at->tv_nsec + offset_ns % BILLION;
    at->tv_sec += offset_ns / BILLION + (ns >= BILLION) - (ns < 0);
    at->tv_nsec = ns + (ns < 0 ? BILLION : 0) - (ns >= BILLION ? BILLION : 0);
}

int clock_gettime(clockid_t id, struct timespec *at) {
    if (!real_gettime) begin(); /* the constructor of another library runs first */
    int answer = real_gettime(id, at);
    if (answer == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
        int64_t offset_ns = __atomic_load_n(&shared->offset_ns, __ATOMIC_ACQUIRE);
        add(at, last_ns = offset_ns);
        __atomic_store_n(&shared->seen_ns, offset_ns, __ATOMIC_RELEASE);
        __atomic_fetch_add(&shared->looks, 1, __ATOMIC_RELAXED);
    }
    return answer;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}

int timespec_get(struct timespec *at, int base) {
    return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, at) == 0 ? base : 0;
}

static struct timespec unshifted(const struct timespec *end) {
    struct timespec real = *end, latest;
    if (end->tv_sec <= BILLION) return real;
    real_gettime(CLOCK_REALTIME, &latest);
    latest.tv_sec += WAIT_SECONDS_MAX;
    add(&real, -last_ns);
    return real.tv_sec < latest.tv_sec ? real : latest;
}

int sem_timedwait(sem_t *restrict sem, const struct timespec *restrict end) {
    struct timespec real = unshifted(end);
    return real_sem_wait(sem, &real);
}

int pthread_cond_timedwait(
    pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
    const struct timespec *restrict end
) {
    struct timespec real = unshifted(end);
    return real_cond_wait(cond, mutex, &real);
}

int cnd_timedwait(
    cnd_t *restrict cond, mtx_t *restrict mutex, const struct timespec *restrict end
) {
    struct timespec real = unshifted(end);
    return real_cnd_wait(cond, mutex, &real);
}
