/* SPDX-License-Identifier: MIT */
/*
 * prepare.h - a call's entry in its channel's cache: algorithm, barriers, kernel, arguments,
 * site. All of it is the same on all ranks that make the same call.
 */
#ifndef SYMM_CALL_PREPARE_H
#define SYMM_CALL_PREPARE_H

#include "call/request.h"

/* The tag by which all members recognise a stream's first call: a hash of site, shape and the
 * offsets of symmetric arrays, but not of the algorithm, which may depend on the channel. */
uint32_t symm__request_tag(const symm_team *team, const struct symm_request *rq,
                           const symm_call *call, const struct symm_checked *checked);
/* Fills the entry for this call and its repetitions. checked: the results of the call's check;
 * NULL: it is checked here. */
symm_status symm__call_prepare(struct symm_team_channel *channel,
                               const struct symm_request *rq, const symm_call *call,
                               const struct symm_checked *checked, size_t index,
                               struct symm_prepared_call *entry) SYMM_MUST_CHECK;

#endif
