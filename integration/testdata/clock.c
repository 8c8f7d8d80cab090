/* A clock for redis-server that a test sets, loaded before libc (LD_PRELOAD): the
 * wall clock plus the milliseconds that stand in the file CLOCK_FILE, 8 bytes in the
 * order of this machine. The monotonic clocks stay as they are. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *ahead_ms;

__attribute__((constructor)) static void map_ahead(void) {
  const char *path = getenv("CLOCK_FILE");
  int fd = path ? open(path, O_RDONLY) : -1;
  void *at = fd < 0 ? MAP_FAILED : mmap(0, sizeof *ahead_ms, PROT_READ, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) abort();
  close(fd);
  ahead_ms = at;
}

int clock_gettime(clockid_t id, struct timespec *t) {
  int failed = (int)syscall(SYS_clock_gettime, id, t);
  if (failed || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE) || !ahead_ms) return failed;
  long long ns = t->tv_nsec + *ahead_ms % 1000 * 1000000;
  t->tv_sec += *ahead_ms / 1000 + (ns >= 1000000000) - (ns < 0);
  t->tv_nsec = ns + (ns < 0) * 1000000000LL - (ns >= 1000000000) * 1000000000LL;
  return 0;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
  struct timespec t;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &t);
  tv->tv_sec = t.tv_sec;
  tv->tv_usec = t.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *out) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  if (out) *out = t.tv_sec;
  return t.tv_sec;
}
