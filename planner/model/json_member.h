/* SPDX-License-Identifier: MIT */
/*
 * json_member.h - reads the members of a document's objects one after another.
 *
 * The first complaint stays in `status`. A call after it does nothing, so a reader of an object
 * is a list of calls, and checks the status once. A reader that uses a value that it took, as an
 * index for example, checks the status before. Only for files named *_json.c.
 */
#ifndef SYMM_PLANNER_MODEL_JSON_MEMBER_H
#define SYMM_PLANNER_MODEL_JSON_MEMBER_H

#include "model/json_read.h"
#include "util/pool.h"

/* The object in hand: element `index` of the root's list `list`; list NULL: the root. */
struct json_members {
    struct json_reader json;
    struct pool *pool; /* of names and lists */
    const json_t *object;
    const char *list;
    size_t index;
    symm_status status;
};

/* The member, or NULL; a complaint about it can follow. */
const json_t *symm__member(struct json_members *at, const char *name);
/* Refuses `found`, at the path of the last symm__member: at->status. The first refusal counts. */
void symm__member_refuse(struct json_members *at, const json_t *found,
                         const char *allowed);

void symm__take_integer(struct json_members *at, const char *name, int64_t least,
                        int64_t most, int64_t *number);
void symm__take_int(struct json_members *at, const char *name, int least, int most,
                    int *number);
void symm__take_size(struct json_members *at, const char *name, size_t most,
                     size_t *size);
/* An alloc_id: an integer above 0, or its digits as a string, since JSON's readers hold 63
 * bits and hashes have 64. */
void symm__take_id(struct json_members *at, const char *name, uint64_t *id);
void symm__take_flag(struct json_members *at, const char *name, bool *flag); /* absent: false */
/* A string that is not empty: borrowed from the document, or copied into the pool. */
void symm__take_text(struct json_members *at, const char *name, const char **text);
void symm__take_name(struct json_members *at, const char *name, const char **copy);

/* Zeroed memory of the pool for one element more than `count`; NULL after a complaint. */
void *symm__take_room(struct json_members *at, size_t count, size_t bytes);
/* The root's list and its length; NULL after a complaint. */
const json_t *symm__take_list(struct json_members *at, const json_t *root,
                              const char *name, size_t most, size_t *count);
/* Has each element of it read, as the object in hand. */
void symm__take_each(struct json_members *at, const json_t *list, const char *name,
                     void (*read)(struct json_members *at, void *arg), void *arg);

#endif
