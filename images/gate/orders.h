/* The gate's orders, as bytes: NUL-terminated strings, each exactly once and nothing between or after them:

     "sandboxd1"  lifeline port ("0": none)  argc  argv...  envc  env...  cwd

   Numbers are canonical decimal. One set of orders has one encoding, so that a parse can be checked by encoding it
   again (fuzz_orders.c does). The writing side is sandboxd/warden/server/orders.py. Not here: the length before
   the orders, and any input or output. */
#ifndef SANDBOXD_ORDERS_H
#define SANDBOXD_ORDERS_H

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define ORDERS_MAGIC "sandboxd1"
#define ORDERS_MAX (1u << 20)

struct orders {
  unsigned lifeline_port; /* 0: none */
  char **argv;            /* at least one string; NULL ends it. Allocated; the strings lie in the parsed bytes. */
  char **env;             /* each with a non-empty name before its '='; NULL ends it. Likewise allocated. */
  char *cwd;              /* absolute */
};

struct cursor {
  char *at;
  char *end;
};

/* The next string, or NULL when no whole one is left. */
static char *next_string(struct cursor *c) {
  char *string = c->at;
  char *nul = memchr(string, 0, (size_t)(c->end - string));
  if (!nul) return NULL;
  c->at = nul + 1;
  return string;
}

/* The next string as a number of 0..most, or -1: digits only, no leading zero. */
static long next_number(struct cursor *c, long most) {
  char *digit = next_string(c);
  long value = 0;
  if (!digit || !*digit || (digit[0] == '0' && digit[1])) return -1;
  for (; *digit; digit++) {
    if (*digit < '0' || *digit > '9') return -1;
    value = value * 10 + (*digit - '0');
    if (value > most) return -1;
  }
  return value;
}

/* A count, then so many strings, as an allocated list; NULL when they aren't all there. */
static char **next_list(struct cursor *c, long least) {
  long count = next_number(c, c->end - c->at); /* a string takes a byte at least */
  char **list;
  if (count < least || !(list = calloc((size_t)count + 1, sizeof *list))) return NULL;
  for (long i = 0; i < count; i++) {
    if (!(list[i] = next_string(c))) {
      free(list);
      return NULL;
    }
  }
  return list;
}

static void free_orders(struct orders *o) {
  free(o->argv);
  free(o->env);
  memset(o, 0, sizeof *o);
}

static const char *parse_fields(struct cursor *c, struct orders *o) {
  char *magic = next_string(c);
  long port;
  if (!magic || strcmp(magic, ORDERS_MAGIC)) return "they don't begin with " ORDERS_MAGIC;
  if ((port = next_number(c, 65535)) < 0) return "the lifeline port is not a number of 0 to 65535";
  o->lifeline_port = (unsigned)port;
  if (!(o->argv = next_list(c, 1))) return "the command is missing or cut short";
  if (!(o->env = next_list(c, 0))) return "the environment is missing or cut short";
  for (char **entry = o->env; *entry; entry++)
    if (**entry == '=' || !strchr(*entry, '=')) return "an environment entry is not NAME=VALUE";
  if (!(o->cwd = next_string(c)) || *o->cwd != '/') return "the directory is missing or not absolute";
  if (c->at != c->end) return "bytes follow the directory";
  return NULL;
}

/* NULL and `o` filled in, or what is wrong with the bytes and `o` empty. `o` points into `bytes`. */
static const char *parse_orders(char *bytes, size_t size, struct orders *o) {
  struct cursor c = {bytes, bytes + size};
  const char *wrong;
  memset(o, 0, sizeof *o);
  wrong = parse_fields(&c, o);
  if (wrong) free_orders(o);
  return wrong;
}

#endif
