/* SPDX-License-Identifier: MIT */
/*
 * interop.h - symmetric memory in the hands of tensor libraries: DLPack, and the functions
 * that PyTorch's pluggable allocator calls.
 */
#ifndef SYMM_INTEROP_H
#define SYMM_INTEROP_H

#include "symm/symm.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The buffer as a DLPack tensor of its shape, stride (elements) and dtype, on the device of
 * this rank (kDLCUDA) or in host memory (kDLCPU). *managed is a DLManagedTensor (legacy) or
 * a DLManagedTensorVersioned (DLPack 1.1); wrap it in a capsule named "dltensor" or
 * "dltensor_versioned". The tensor takes over the hold on the buffer: its deleter, which the
 * consumer calls from any thread, ends it as symm_buffer_release does. Until then
 * symm_buffer_release does nothing to this buffer, and a second tensor of it is refused.
 * The deleter must run before symm_finalize or symm_team_destroy; afterwards it must not.
 * Errors: SYMM_ERR_INVALID (NULL, a buffer that is not held, or that a tensor has already),
 * SYMM_ERR_NOMEM, SYMM_ERR_UNSUPPORTED (a registered pointer: it has no shape).
 */
SYMM_API symm_status symm_buffer_dlpack(symm_buffer *buffer,
                                        void **managed) SYMM_MUST_CHECK;
SYMM_API symm_status symm_buffer_dlpack_versioned(symm_buffer *buffer,
                                                  void **managed) SYMM_MUST_CHECK;

/*
 * torch.cuda.memory.CUDAPluggableAllocator("libsymm.so", "symm_torch_alloc",
 * "symm_torch_free") and a torch.cuda.MemPool over it: tensors of that pool lie in the heap
 * of the team bound to their device (on the host backend the "device" is the local rank).
 * Allocation is local; ranks that allocate the same sizes in the same order get the same
 * offsets, and symm_rendezvous, to be called before collectives use the memory without
 * staging, checks that they did. PyTorch's functions have no argument for a team, so the
 * binding is the process's: one team for each device. A team that is destroyed is unbound.
 * Errors: SYMM_ERR_INVALID, SYMM_ERR_IN_USE (another team is bound to the device).
 */
SYMM_API symm_status symm_torch_bind(symm_team *team) SYMM_MUST_CHECK;
/* Afterwards another team can be bound to the device. Free the pool first: memory that is freed
 * afterwards stays allocated until the team is destroyed. SYMM_ERR_NOT_FOUND: the team is not
 * bound. */
SYMM_API symm_status symm_torch_unbind(symm_team *team) SYMM_MUST_CHECK;
/* NULL: no team bound, no memory; symm_last_error() says which. The stream is ignored:
 * freed memory is used again only after the next rendezvous. */
SYMM_API void *symm_torch_alloc(size_t bytes, int device, void *stream);
SYMM_API void symm_torch_free(void *ptr, size_t bytes, int device, void *stream);

#ifdef __cplusplus
}
#endif
#endif
