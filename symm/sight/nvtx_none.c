/* SPDX-License-Identifier: MIT */
/* nvtx_none.c - nvtx.h for a build without NVTX's headers: there is never a struct symm_nvtx. */
#include "sight/nvtx.h"

struct symm_nvtx *symm__nvtx_open(void)
{
    return NULL;
}

void symm__nvtx_close(struct symm_nvtx *nvtx)
{
    (void)nvtx;
}

void symm__nvtx_queued(struct symm_nvtx *nvtx, uint64_t number, uint32_t site)
{
    (void)nvtx, (void)number, (void)site;
}

uint32_t symm__nvtx_queued_site(struct symm_nvtx *nvtx, uint64_t number)
{
    (void)nvtx, (void)number;
    return 0;
}

bool symm__nvtx_push(struct symm_nvtx *nvtx, uint64_t number, uint32_t site)
{
    (void)nvtx, (void)number, (void)site;
    return true;
}

void symm__nvtx_site(struct symm_nvtx *nvtx, const struct symm_sight_site *site)
{
    (void)nvtx, (void)site;
}

void symm__nvtx_pop(struct symm_nvtx *nvtx, uint64_t number)
{
    (void)nvtx, (void)number;
}
