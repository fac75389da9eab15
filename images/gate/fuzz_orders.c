/* Fuzz target for orders.h: whatever the bytes, the parser stays inside them, and what it accepts encodes back to
   exactly the same bytes.

     cc -g -O1 -fsanitize=fuzzer,address,undefined (clang)   libFuzzer: see images/README.md
     cc -shared -fPIC                                        check_orders() for the tests */
#include <stdint.h>
#include <stdio.h>

#include "orders.h"

static char *put(char *at, const char *string) {
  return (char *)memcpy(at, string, strlen(string) + 1) + strlen(string) + 1;
}

static char *put_number(char *at, size_t number) {
  return at + sprintf(at, "%zu", number) + 1;
}

static char *put_list(char *at, char **list) {
  size_t count = 0;
  while (list[count]) count++;
  at = put_number(at, count);
  for (size_t i = 0; i < count; i++) at = put(at, list[i]);
  return at;
}

static size_t encode(const struct orders *o, char *into) {
  char *at = put(into, ORDERS_MAGIC);
  at = put_number(at, o->lifeline_port);
  at = put_list(put_list(at, o->argv), o->env);
  return (size_t)(put(at, o->cwd) - into);
}

/* 1 when the bytes are good orders, 0 when they are not. Aborts when the parser broke its promise. */
int check_orders(const uint8_t *data, size_t size) {
  struct orders orders;
  char *bytes = malloc(size + 1), *again = malloc(size + 64);
  if (!bytes || !again) abort();
  memcpy(bytes, data, size);
  bytes[size] = 'x'; /* no NUL to be found past the end */
  int good = !parse_orders(bytes, size, &orders);
  if (good && (encode(&orders, again) != size || memcmp(again, data, size))) abort();
  if (good != (orders.cwd != NULL)) abort();
  free_orders(&orders);
  free(bytes);
  free(again);
  return good;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  check_orders(data, size);
  return 0;
}
