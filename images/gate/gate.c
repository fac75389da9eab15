/* The gate: the first process of every sandbox, and its init.

   It waits on stdin for its orders (orders.h, behind a 4-byte big-endian length), which come once the namespace is
   sealed, and only then starts the workload: until that moment nothing untrusted has run. It stays as PID 1, reaps,
   and holds the lifeline, a TCP connection to the warden inside the namespace:

     warden -> gate   one byte a signal, for the workload's process group; the end: kill everything, exit 137
     gate -> warden   four bytes, big-endian, once: the workload's exit code (128+N after signal N)

   Static: it needs nothing of the image. Not here: any decision, and anything that would need a privilege.
   Exit codes: the workload's; 125 no or bad orders, or no lifeline; 126 can't be executed; 127 not found; 137 killed
   because the lifeline ended. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "orders.h"

#define ORDERS_WAIT_MS 30000
#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

enum { NO_ORDERS = 125, CANNOT_EXECUTE = 126, NOT_FOUND = 127, LIFELINE_LOST = 128 + SIGKILL };

/* What is sent to PID 1 from outside and meant for the workload. */
static const int FORWARDED[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

static void complain(const char *what, const char *why) {
  dprintf(STDERR_FILENO, "sandboxd: %s: %s\n", what, why);
}

/* By number: musl has no function for it. Where the kernel has none either, CLOEXEC does for the child. */
static void close_all(unsigned first, unsigned last) {
  syscall(SYS_close_range, first, last, 0);
}

static long now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Exactly `size` bytes of stdin and not one more: what follows is the workload's. NULL, or what went wrong. */
static const char *read_exactly(char *into, size_t size, long deadline) {
  while (size) {
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    long left = deadline - now_ms();
    if (left <= 0) return "they did not come in time";
    if (poll(&in, 1, (int)left) <= 0) continue;
    ssize_t got = read(STDIN_FILENO, into, size);
    if (got == 0) return "the input ended before they were complete";
    if (got < 0 && errno != EINTR && errno != EAGAIN) return strerror(errno);
    if (got > 0) into += got, size -= (size_t)got;
  }
  return NULL;
}

static const char *receive_orders(struct orders *o) {
  long deadline = now_ms() + ORDERS_WAIT_MS;
  uint32_t size;
  const char *wrong = read_exactly((char *)&size, sizeof size, deadline);
  if (wrong) return wrong;
  size = ntohl(size);
  if (size > ORDERS_MAX) return "they are longer than 1 MiB";
  char *bytes = malloc(size + 1);
  if (!bytes) return "no memory for them";
  wrong = read_exactly(bytes, size, deadline);
  return wrong ? wrong : parse_orders(bytes, size, o);
}

/* The lifeline, -1 when the orders name none. *wrong is set when it can't be had. */
static int open_lifeline(unsigned port, const char **wrong) {
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  if (!port) return -1;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to)) *wrong = strerror(errno);
  return fd;
}

static const char *search_path(char **env) {
  for (; *env; env++)
    if (!strncmp(*env, "PATH=", 5)) return *env + 5;
  return DEFAULT_PATH;
}

/* Tries each directory of `path` as execvp does, without handing unknown formats to a shell. Returns only to fail,
   with the error that says most: EACCES of any candidate before ENOENT of all. */
static int execute(char **argv, char **env, const char *path) {
  static char candidate[8192];
  int error = ENOENT;
  if (strchr(argv[0], '/')) {
    execve(argv[0], argv, env);
    return errno;
  }
  for (const char *end; argv[0][0]; path = end + 1) {
    end = strchrnul(path, ':');
    const char *slash = end == path ? "" : "/"; /* an empty entry is the working directory */
    int length = snprintf(candidate, sizeof candidate, "%.*s%s%s", (int)(end - path), path, slash, argv[0]);
    if (length < (int)sizeof candidate) {
      execve(candidate, argv, env);
      if (errno == EACCES) error = EACCES;
      else if (errno != ENOENT && errno != ENOTDIR) return errno;
    }
    if (!*end) break;
  }
  return error;
}

/* The child's part. It shares its parent's memory (vfork) until it executes or exits. */
static void become_workload(const struct orders *o) {
  sigset_t none;
  setsid();
  for (int number = 1; number < NSIG; number++) signal(number, SIG_DFL);
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  close_all(STDERR_FILENO + 1, ~0u);
  if (chdir(o->cwd)) {
    complain(o->cwd, strerror(errno));
    _exit(CANNOT_EXECUTE);
  }
  int error = execute(o->argv, o->env, search_path(o->env));
  int missing = error == ENOENT || error == ENOTDIR;
  if (error == ENOENT && !access(o->argv[0], F_OK)) complain(o->argv[0], "its interpreter is not in the image");
  else complain(o->argv[0], missing ? "command not found in the image" : strerror(error));
  _exit(missing ? NOT_FOUND : CANNOT_EXECUTE);
}

/* As init everything that is left; otherwise (in a test) the workload's process group. */
static void kill_all(pid_t workload) {
  kill(getpid() == 1 ? -1 : -workload, SIGKILL);
}

/* Reaps whoever ended. The workload's exit code once it has ended, else -1. */
static int reap(pid_t workload) {
  int status, code = -1;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
    if (pid == workload) code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return code;
}

/* One forwarded signal, from the lifeline. False when the lifeline has ended. */
static int obey(int lifeline, pid_t workload) {
  unsigned char number;
  ssize_t got = recv(lifeline, &number, 1, MSG_DONTWAIT);
  if (got == 1 && number > 0 && number < NSIG) kill(-workload, number);
  return got == 1 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

static void forward(int signals, pid_t workload) {
  struct signalfd_siginfo info;
  if (read(signals, &info, sizeof info) != sizeof info) return;
  for (size_t i = 0; i < sizeof FORWARDED / sizeof *FORWARDED; i++)
    if ((int)info.ssi_signo == FORWARDED[i]) kill(-workload, FORWARDED[i]);
}

/* Until the workload or the lifeline ends; the exit code. */
static int watch(int lifeline, int signals, pid_t workload) {
  struct pollfd on[] = {{.fd = signals, .events = POLLIN}, {.fd = lifeline, .events = POLLIN}};
  for (;;) {
    int code = reap(workload);
    if (code >= 0) return code;
    if (poll(on, 2, -1) < 0) continue;
    if (on[1].revents && !obey(lifeline, workload)) return LIFELINE_LOST;
    if (on[0].revents) forward(signals, workload);
  }
}

static void report(int lifeline, int code) {
  uint32_t word = htonl((uint32_t)code);
  if (lifeline < 0) return;
  send(lifeline, &word, sizeof word, MSG_NOSIGNAL | MSG_DONTWAIT);
  shutdown(lifeline, SHUT_WR);
}

static int run(const struct orders *o, int lifeline) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, NULL);
  int signals = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
  /* vfork: the parent goes on once the child has executed (or failed), so its session surely exists. */
  pid_t workload = signals < 0 ? -1 : vfork();
  if (workload == 0) become_workload(o);
  if (workload < 0) {
    complain("can't start the workload", strerror(errno));
    return NO_ORDERS;
  }
  /* Its ends of the streams are the workload's alone now: their end is the workload's doing. */
  close_all(STDIN_FILENO, STDERR_FILENO);
  int code = watch(lifeline, signals, workload);
  report(lifeline, code);
  kill_all(workload);
  return code;
}

int main(void) {
  struct orders orders;
  const char *wrong = NULL;
  prctl(PR_SET_DUMPABLE, 0); /* nobody inside reads the orders or the lifeline through /proc */
  prctl(PR_SET_NAME, "sandboxd-gate");
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  if ((wrong = receive_orders(&orders))) {
    complain("bad orders", wrong);
    return NO_ORDERS;
  }
  int lifeline = open_lifeline(orders.lifeline_port, &wrong);
  if (wrong) {
    complain("no lifeline", wrong);
    return NO_ORDERS;
  }
  return run(&orders, lifeline);
}
