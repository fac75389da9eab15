/* A static workload for tests: the first argument says what to do. It needs nothing of an image. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

static int echo(void) { /* stdin to stdout until it ends */
  static char data[65536];
  for (ssize_t n; (n = read(0, data, sizeof data)) > 0;)
    if (write(1, data, (size_t)n) != n) return 1;
  return 0;
}

static int linger(int deaf) { /* until a signal; deaf: TERM changes nothing */
  if (deaf) signal(SIGTERM, SIG_IGN);
  if (fork() == 0) { /* a grandchild in a session of its own */
    setsid();
    for (;;) pause();
  }
  puts("ready");
  fflush(stdout);
  while (pause()) continue;
  return 0;
}

static int hog(size_t mib) { /* touch memory until something stops it */
  for (size_t i = 0; i < mib; i++) {
    char *block = malloc(1 << 20);
    if (!block) return 3;
    memset(block, (int)i + 1, 1 << 20);
  }
  return 0;
}

static int serve(int port) { /* one connection, echoed */
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 8)) return 1;
  puts("ready");
  fflush(stdout);
  int fd = accept(listener, NULL, NULL);
  dup2(fd, 0), dup2(fd, 1);
  return echo();
}

static int dial(const char *address, int port) { /* connect, then read: what came */
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  char data[256];
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  inet_pton(AF_INET, address, &to.sin_addr);
  if (connect(fd, (struct sockaddr *)&to, sizeof to)) return printf("connect %s\n", strerrorname_np(errno)), 0;
  struct pollfd readable = {.fd = fd, .events = POLLIN};
  ssize_t n;
  do { /* older gVisor says EAGAIN on a socket that blocks */
    poll(&readable, 1, -1);
    n = read(fd, data, sizeof data);
  } while (n < 0 && errno == EAGAIN);
  if (n < 0) return printf("read %s\n", strerrorname_np(errno)), 0;
  return printf("%.*s.\n", (int)n, data), 0;
}

static int write_file(const char *path, const char *text, int mode) {
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, mode);
  if (fd < 0) return printf("%s %s\n", path, strerrorname_np(errno)), 0;
  if (write(fd, text, strlen(text)) < 0) return printf("%s %s\n", path, strerrorname_np(errno)), 0;
  return printf("%s ok\n", path), 0;
}

static int show(const char *path) { /* owner, mode, and the first bytes of a file */
  struct stat s;
  char data[256] = "";
  if (stat(path, &s)) return printf("%s %s\n", path, strerrorname_np(errno)), 0;
  int fd = open(path, O_RDONLY);
  ssize_t n = fd < 0 ? 0 : read(fd, data, sizeof data - 1);
  return printf("%s %u:%u %o %.*s\n", path, s.st_uid, s.st_gid, s.st_mode & 07777, n < 0 ? 0 : (int)n, data), 0;
}

static int pin(int pairs) { /* fill sockets that nobody reads; how many bytes went in */
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(8080)};
  static char data[65536];
  long total = 0;
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, pairs)) return 1;
  for (int i = 0; i < pairs; i++) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof at)) break;
    accept(listener, NULL, NULL);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    for (ssize_t n; (n = write(fd, data, sizeof data)) > 0;) total += n;
  }
  printf("pinned %ld\n", total);
  puts("ready");
  fflush(stdout);
  for (;;) pause();
}

/* Opens pseudo terminals until it may not. */
static int terminals(void) {
  int count = 0;
  while (open("/dev/ptmx", O_RDWR | O_NOCTTY) >= 0) count++;
  printf("%d %s\n", count, strerrorname_np(errno));
  return 0;
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  if (!strcmp(what, "echo")) return echo();
  if (!strcmp(what, "exit")) return atoi(argv[2]);
  if (!strcmp(what, "linger")) return linger(0);
  if (!strcmp(what, "deaf")) return linger(1);
  if (!strcmp(what, "hog")) return hog((size_t)atoi(argv[2]));
  if (!strcmp(what, "pin")) return pin(atoi(argv[2]));
  if (!strcmp(what, "terminals")) return terminals();
  if (!strcmp(what, "serve")) return serve(atoi(argv[2]));
  if (!strcmp(what, "dial")) return dial(argv[2], atoi(argv[3]));
  if (!strcmp(what, "write")) return write_file(argv[2], argv[3], 0644);
  if (!strcmp(what, "keep")) return write_file(argv[2], argv[3], 0644) ? 1 : linger(0);
  if (!strcmp(what, "replace")) /* a directory by a link */
    return rename(argv[3], "/build/old") || symlink(argv[2], argv[3]) ? 1 : linger(0);
  if (!strcmp(what, "chmod")) return printf("%s\n", chmod(argv[2], strtol(argv[3], 0, 8)) ? strerrorname_np(errno) : "ok"), 0;
  if (!strcmp(what, "unlink")) return printf("%s\n", unlink(argv[2]) ? strerrorname_np(errno) : "ok"), 0;
  if (!strcmp(what, "show")) {
    for (int i = 2; i < argc; i++) show(argv[i]);
    return 0;
  }
  if (!strcmp(what, "env")) {
    for (char **e = environ; *e; e++) puts(*e);
    return 0;
  }
  fprintf(stderr, "unknown: %s\n", what);
  return 64;
}
