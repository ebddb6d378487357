/* SPDX-License-Identifier: MIT */
/*
 * fence.h - fences between a rank and readers that are other processes (sight/page.h).
 *
 * ThreadSanitizer refuses fences, since it does not follow them. It knows nothing of other
 * processes either, so a build with it has the compiler's part of a fence alone: not for
 * threads of one process, which order by the atomics themselves.
 */
#ifndef SYMM_UTIL_FENCE_H
#define SYMM_UTIL_FENCE_H

#if defined(__has_feature)
#if __has_feature(thread_sanitizer) && !defined(__SANITIZE_THREAD__)
#define __SANITIZE_THREAD__ 1
#endif
#endif

#ifdef __SANITIZE_THREAD__
#define symm__process_fence(order) __atomic_signal_fence(order)
#else
#define symm__process_fence(order) __atomic_thread_fence(order)
#endif

#endif
