/* SPDX-License-Identifier: MIT */
/*
 * jansson_abi.h - jansson's binary interface, as far as the readers use it, under jansson's own
 * names. Declared here, so that neither the build nor the library needs jansson. All of it has
 * been the same since jansson 2.7 (libjansson.so.4).
 *
 * No function may be called before symm__library_load(&symm__jansson_library, ...) succeeds:
 * symm__json_file and symm__json_text ensure that, and all values come from them.
 */
#ifndef SYMM_PLANNER_MODEL_JANSSON_ABI_H
#define SYMM_PLANNER_MODEL_JANSSON_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "util/library.h"

typedef struct json_t {
    enum {
        JSON_OBJECT,
        JSON_ARRAY,
        JSON_STRING,
        JSON_INTEGER,
        JSON_REAL,
        JSON_TRUE,
        JSON_FALSE
    } type;
    volatile size_t refcount;
} json_t;
typedef long long json_int_t;
typedef struct {
    int line, column, position;
    char source[80], text[160];
} json_error_t;
typedef int (*json_dump_callback_t)(const char *bytes, size_t length, void *arg);

#define JSON_REJECT_DUPLICATES 0x1u  /* of loads */
#define JSON_COMPACT           0x20u /* of dumps */
#define JSON_SORT_KEYS         0x80u
#define JSON_ENCODE_ANY        0x200u

#define SYMM_JANSSON_MAP(X)                                                            \
    X(json_t *, loadf, (FILE * file, size_t flags, json_error_t *error))               \
    X(json_t *, loadb,                                                                 \
      (const char *text, size_t length, size_t flags, json_error_t *error))            \
    X(char *, dumps, (const json_t *value, size_t flags))                              \
    X(int, dump_callback,                                                              \
      (const json_t *value, json_dump_callback_t piece, void *arg, size_t flags))      \
    X(void, delete, (json_t * value))                                                  \
    X(size_t, object_size, (const json_t *object))                                     \
    X(json_t *, object_get, (const json_t *object, const char *key))                   \
    X(void *, object_iter, (json_t * object))                                          \
    X(void *, object_iter_next, (json_t * object, void *member))                       \
    X(const char *, object_iter_key, (void *member))                                   \
    X(size_t, array_size, (const json_t *array))                                       \
    X(json_t *, array_get, (const json_t *array, size_t index))                        \
    X(const char *, string_value, (const json_t *value))                               \
    X(size_t, string_length, (const json_t *value))                                    \
    X(json_int_t, integer_value, (const json_t *value))                                \
    X(double, number_value, (const json_t *value))

#define SYMM_JANSSON_MEMBER(result, name, arguments) result(*name) arguments;
struct symm_jansson {
    SYMM_JANSSON_MAP(SYMM_JANSSON_MEMBER)
};
#undef SYMM_JANSSON_MEMBER
extern struct symm_jansson symm__jansson;
extern struct symm_library symm__jansson_library;

#define json_loadf            symm__jansson.loadf
#define json_loadb            symm__jansson.loadb
#define json_dumps            symm__jansson.dumps
#define json_dump_callback    symm__jansson.dump_callback
#define json_object_size      symm__jansson.object_size
#define json_object_get       symm__jansson.object_get
#define json_object_iter      symm__jansson.object_iter
#define json_object_iter_next symm__jansson.object_iter_next
#define json_object_iter_key  symm__jansson.object_iter_key
#define json_array_size       symm__jansson.array_size
#define json_array_get        symm__jansson.array_get
#define json_string_value     symm__jansson.string_value
#define json_string_length    symm__jansson.string_length
#define json_integer_value    symm__jansson.integer_value
#define json_number_value     symm__jansson.number_value

#define json_is_object(value)  ((value) && (value)->type == JSON_OBJECT)
#define json_is_array(value)   ((value) && (value)->type == JSON_ARRAY)
#define json_is_string(value)  ((value) && (value)->type == JSON_STRING)
#define json_is_integer(value) ((value) && (value)->type == JSON_INTEGER)
#define json_is_number(value)                                                          \
    ((value) && ((value)->type == JSON_INTEGER || (value)->type == JSON_REAL))
#define json_is_true(value) ((value) && (value)->type == JSON_TRUE)
#define json_is_boolean(value)                                                         \
    ((value) && ((value)->type == JSON_TRUE || (value)->type == JSON_FALSE))

/* A count of SIZE_MAX: a constant of jansson's. */
static inline void json_decref(json_t *value)
{
    if (value && value->refcount != (size_t)-1 &&
        __atomic_sub_fetch(&value->refcount, 1, __ATOMIC_RELEASE) == 0)
        symm__jansson.delete(value);
}

#endif
