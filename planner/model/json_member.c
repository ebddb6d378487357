/* SPDX-License-Identifier: MIT */
/* json_member.c - see json_member.h. Paths are worked out only where a complaint is due. */
#include "model/json_member.h"

#include <errno.h>
#include <stdlib.h>

#include "util/status.h"

static void fail_nomem(struct json_members *at)
{
    at->status = symm__fail(SYMM_ERR_NOMEM, "%s: memory is exhausted", at->json.file);
}

const json_t *symm__member(struct json_members *at, const char *name)
{
    if (!at->list)
        return symm__json_at(&at->json, at->object, "%s", name);
    return symm__json_at(&at->json, at->object, "%s[%zu].%s", at->list, at->index,
                         name);
}

void symm__member_refuse(struct json_members *at, const json_t *found,
                         const char *allowed)
{
    if (at->status == SYMM_OK)
        at->status = symm__json_refuse(&at->json, found, "%s", allowed);
}

/* ---- Members ----------------------------------------------------------------------- */

void symm__take_integer(struct json_members *at, const char *name, int64_t least,
                        int64_t most, int64_t *number)
{
    const json_t *value = json_object_get(at->object, name);

    *number = json_integer_value(value);
    if (json_is_integer(value) && *number >= least && *number <= most)
        return;
    if (at->status == SYMM_OK)
        at->status =
            symm__json_integer(&at->json, symm__member(at, name), least, most, number);
    *number = least; /* callers count with it before they look at the status */
}

void symm__take_int(struct json_members *at, const char *name, int least, int most,
                    int *number)
{
    int64_t wide;

    symm__take_integer(at, name, least, most, &wide);
    *number = (int)wide;
}

void symm__take_size(struct json_members *at, const char *name, size_t most,
                     size_t *size)
{
    int64_t wide;

    symm__take_integer(at, name, 0, (int64_t)most, &wide);
    *size = (size_t)wide;
}

void symm__take_id(struct json_members *at, const char *name, uint64_t *id)
{
    const json_t *value = json_object_get(at->object, name);
    const char *text = json_string_value(value);
    char *end = NULL;

    *id = (uint64_t)json_integer_value(value);
    if (at->status != SYMM_OK || json_integer_value(value) > 0)
        return;
    errno = 0;
    if (text && *text >= '0' && *text <= '9')
        *id = strtoull(text, &end, 10);
    if (!end || *end != '\0' || *id == 0 || errno != 0)
        at->status = symm__json_refuse(
            &at->json, symm__member(at, name),
            "an integer from 1 to %lld, or a larger one's digits in quotes",
            (long long)INT64_MAX);
}

void symm__take_flag(struct json_members *at, const char *name, bool *flag)
{
    const json_t *value = json_object_get(at->object, name);

    *flag = json_is_true(value);
    if (value && !json_is_boolean(value))
        symm__member_refuse(at, symm__member(at, name), "true or false");
}

void symm__take_text(struct json_members *at, const char *name, const char **text)
{
    const char *found = json_string_value(json_object_get(at->object, name));

    if (at->status != SYMM_OK)
        return;
    if (found && *found)
        *text = found;
    else
        at->status = symm__json_name(&at->json, symm__member(at, name), text);
}

void symm__take_name(struct json_members *at, const char *name, const char **copy)
{
    symm__take_text(at, name, copy);
    if (at->status != SYMM_OK)
        return;
    *copy = symm__pool_copy(at->pool, *copy);
    if (!*copy)
        fail_nomem(at);
}

/* ---- Lists ------------------------------------------------------------------------- */

void *symm__take_room(struct json_members *at, size_t count, size_t bytes)
{
    void *room;

    if (at->status != SYMM_OK)
        return NULL;
    room = symm__pool_alloc(at->pool, count + 1, bytes);
    if (!room)
        fail_nomem(at);
    return room;
}

const json_t *symm__take_list(struct json_members *at, const json_t *root,
                              const char *name, size_t most, size_t *count)
{
    const json_t *list = json_object_get(root, name);

    *count = json_array_size(list);
    if (at->status != SYMM_OK)
        return NULL;
    if (json_is_array(list) && *count <= most)
        return list;
    at->status =
        symm__json_refuse(&at->json, symm__json_at(&at->json, root, "%s", name),
                          "a list of at most %zu", most);
    return NULL;
}

void symm__take_each(struct json_members *at, const json_t *list, const char *name,
                     void (*read)(struct json_members *at, void *arg), void *arg)
{
    at->list = name;
    for (size_t i = 0; i < json_array_size(list) && at->status == SYMM_OK; i++) {
        at->object = json_array_get(list, i);
        at->index = i;
        if (json_is_object(at->object))
            read(at, arg);
        else
            at->status = symm__json_refuse(
                &at->json, symm__json_at(&at->json, list, "%s[%zu]", name, i),
                "an object");
    }
}
