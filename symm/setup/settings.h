/* SPDX-License-Identifier: MIT */
/*
 * settings.h - a rank's settings before it joins the others: from symm_config, else by the
 * environment, else by defaults.
 */
#ifndef SYMM_SETUP_SETTINGS_H
#define SYMM_SETUP_SETTINGS_H

#include "core/context.h"

/* Which job: the caller's, else the launcher's. */
symm_status symm__settings_job(symm_ctx *ctx,
                               const symm_config *config) SYMM_MUST_CHECK;
symm_status symm__settings_take(symm_ctx *ctx,
                                const symm_config *config) SYMM_MUST_CHECK;

#endif
