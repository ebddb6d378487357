/* SPDX-License-Identifier: MIT */
/*
 * team_docs.h - docstrings of Team's methods. The line before "--" is the signature that help(),
 * inspect.signature and the reference show; tests/python/test_api_reference.py compares it with
 * the stub _core.pyi.
 */
#ifndef SYMM_PYTHON_TEAM_DOCS_H
#define SYMM_PYTHON_TEAM_DOCS_H

/* At the end of a call's parameters: CORE_OPTIONS (request.h). */
#define DOC_OPTIONS                                                                    \
    "stream=None, site=None, algorithm=None, numerics=None, timeout=0, channel=0, "    \
    "work=False)\n--\n\n"

#define DOC_CALL                                                                       \
    "\n\nArrays are contiguous and on the team's device; they may lie in any\n"        \
    "memory, and are fastest in symmetric memory. stream: a stream of\n"               \
    "torch, CuPy or cuda.core, a symm.Stream or a handle; None: the current\n"         \
    "stream of the library that made an array on a device, else the default\n"         \
    "one (host: complete on return). site: a name of the call, which errors\n"         \
    "quote and ranks compare. algorithm: forces one by its name in\n"                  \
    "docs/guide.md. numerics: 'any', 'same_bits' on all ranks or\n"                    \
    "'rank_order', reduced in rank order. timeout: seconds to wait for\n"              \
    "peers; 0: the context's. channel: CUDA, 1 to 32. Returns None, with\n"            \
    "work=True a Work.\n\n"                                                            \
    "Raises symm.Invalid (arguments), symm.Unsupported (a dtype or\n"                  \
    "algorithm), symm.Mismatch (ranks that make other calls), symm.Timeout,\n"         \
    "symm.PeerDead, symm.Busy; TypeError for what is no array."

#define DOC_DESTROY                                                                    \
    "destroy($self)\n--\n\n"                                                           \
    "Ends the team on this rank; not collective. Its buffers go with it,\n"            \
    "once no exported array uses them; later calls raise symm.Invalid. So\n"           \
    "does destroy() of the world, which goes with its Context."

#define DOC_SPLIT                                                                      \
    "split($self, color=None, key=0)\n--\n\n"                                          \
    "Collective over the team. The ranks of one color (0 or more) become a\n"          \
    "Team, ordered by key, then by rank; color None: no team for this rank,\n"         \
    "and None is returned.\n\n"                                                        \
    "Raises symm.Timeout if a rank does not come, symm.PeerDead,\n"                    \
    "symm.NoMemory."

#define DOC_SUBSET                                                                     \
    "subset($self, ranks, key=0)\n--\n\n"                                              \
    "Makes a Team of the listed ranks of this team, in the list's order. Only\n"       \
    "these ranks call it, with the same list and key; the others do nothing,\n"        \
    "and may be in any other call.\n\n"                                                \
    "ranks: a sequence of 1 to size distinct ranks of this team, the caller's\n"       \
    "among them. key: any int. Calls of one key are made one after the other\n"        \
    "on each rank, and belong together in that order; threads that call at\n"          \
    "the same time give keys of their own.\n\n"                                        \
    "Raises symm.Timeout, which names the ranks that have not come (all may\n"         \
    "call again), symm.Mismatch if two ranks wait for each other with\n"               \
    "different lists, symm.PeerDead, symm.Busy if another thread is in such a\n"       \
    "call with this key, symm.NoMemory, symm.Invalid."

#define DOC_SHRINK                                                                     \
    "shrink($self)\n--\n\n"                                                            \
    "Makes a Team of the ranks that are alive, in the order of their ranks;\n"         \
    "every survivor calls it. A rank that is alive and does not call is\n"             \
    "left out after one timeout.\n\n"                                                  \
    "Raises symm.Timeout for a rank that came too late."

#define DOC_ABORT                                                                      \
    "abort($self, why=None)\n--\n\n"                                                   \
    "Not collective, from any thread: the team fails with symm.Aborted, so\n"          \
    "that the calls of its ranks that wait raise it. why: for people, at\n"            \
    "most 80 bytes."

#define DOC_SET_NAME                                                                   \
    "set_name($self, name, /)\n--\n\n"                                                 \
    "Names the team in this rank's error sentences: at most 31 bytes; None\n"          \
    "or '': no name. Raises symm.Invalid for a longer one."

#define DOC_EMPTY                                                                      \
    "empty($self, shape, dtype='float32', *, strides=None, site=None, "                \
    "alloc_id=0)\n--\n\n"                                                              \
    "A symmetric Buffer without defined values: local, at the same offset\n"           \
    "on ranks that make the same calls. Peers' copies can be used after\n"             \
    "rendezvous().\n\n"                                                                \
    "shape: lengths of up to 16 dimensions, or one length. dtype: a name\n"            \
    "('bfloat16'), or one of numpy's or torch's. strides: in elements, 0 or\n"         \
    "more; None: row-major. site (a name) or alloc_id (a number, not 0):\n"            \
    "the buffer of a call site, which keeps its memory while the team\n"               \
    "lives; without them each call makes another buffer, freed when it is\n"           \
    "dropped.\n\n"                                                                     \
    "Raises symm.InUse (the site's Buffer is still held), symm.Mismatch\n"             \
    "(another size or dtype than at first), symm.NoMemory, symm.Overflow,\n"           \
    "symm.Invalid."

#define DOC_RENDEZVOUS                                                                 \
    "rendezvous($self)\n--\n\n"                                                        \
    "Collective: checks that all ranks have allocated alike since the last\n"          \
    "one, and maps all new memory into every rank. Freed memory may be used\n"         \
    "again from here on.\n\n"                                                          \
    "Raises symm.Mismatch on every rank, with the first difference and its\n"          \
    "rank; the team stays usable. symm.Timeout, symm.PeerDead."

#define DOC_REGISTER                                                                   \
    "register($self, array, /)\n--\n\n"                                                \
    "Maps an array's memory into all peers (a device's, or of\n"                       \
    "symm_mem_alloc on the host): a Buffer over it, of one\n"                          \
    "dimension, that holds the array. Puts and gets reach it after\n"                  \
    "rendezvous(), and Buffer.peer; for collectives it is private memory.\n"           \
    "Ranks register as many bytes in the same order. Keep the array until\n"           \
    "the rendezvous() after the Buffer's release.\n\n"                                 \
    "Raises symm.Unsupported for other memory of the host, symm.Invalid."

#define DOC_FREE                                                                       \
    "free($self, site=None, *, alloc_id=0)\n--\n\n"                                    \
    "Gives a call site's memory back, named by site or by alloc_id; other\n"           \
    "ranks do the same before the next rendezvous().\n\n"                              \
    "Raises symm.InUse while its Buffer is held, symm.NotFound,\n"                     \
    "symm.Invalid if both or none are given."

#define DOC_CAPTURE                                                                    \
    "capture($self)\n--\n\n"                                                           \
    "A context manager around captures of CUDA graphs, any number of them:\n"          \
    "calls of the team that they capture use device memory that is not\n"              \
    "symmetric without a copy. Enters with capture_begin(), leaves with\n"             \
    "capture_end(), which is collective: replay the graphs after it.\n\n"              \
    "If the body raises, leaves with capture_abandon(), which waits 10 seconds\n"      \
    "at most: the exception goes on, and the other ranks' brackets raise\n"            \
    "symm.Aborted with its text."

#define DOC_CAPTURE_BEGIN                                                              \
    "capture_begin($self)\n--\n\n"                                                     \
    "Begins a bracket around captures of graphs; local. All ranks capture the\n"       \
    "same calls in one order. Memory that peers cannot map is copied by its\n"         \
    "calls, as outside of a bracket. A replay before capture_end() is an error\n"      \
    "on all ranks.\n\n"                                                                \
    "Raises symm.InUse (begun already), symm.Unsupported (host backend, ranks\n"       \
    "on several hosts)."

#define DOC_CAPTURE_END                                                                \
    "capture_end($self)\n--\n\n"                                                       \
    "Collective: ends the bracket. Exchanges all addresses; the captured\n"            \
    "graphs may be replayed from here on, on every rank.\n\n"                          \
    "Raises, and leaves the bracket's calls unusable on every rank:\n"                 \
    "symm.Mismatch, which names the first call that differs, symm.Aborted (a\n"        \
    "rank has called capture_abandon()), symm.Timeout, symm.PeerDead.\n"               \
    "symm.Invalid: there is no bracket."

#define DOC_CAPTURE_ABANDON                                                            \
    "capture_abandon($self, why=None)\n--\n\n"                                         \
    "Ends the bracket of a rank that could not capture all of it; collective\n"        \
    "with capture_end() of the other ranks, which raises symm.Aborted. why: for\n"     \
    "people, at most 80 bytes. The bracket's calls stay unusable, the team\n"          \
    "goes on. If the others do not come to capture_end() within 10 seconds,\n"         \
    "the team fails with this reason, and so do calls that wait for this rank.\n\n"    \
    "Raises symm.Aborted (the others have not come), symm.PeerDead;\n"                 \
    "symm.Invalid: there is no bracket."

#define DOC_CAPTURE_RELEASE                                                            \
    "capture_release($self, x, nbytes=None)\n--\n\n"                                   \
    "Call it before captured memory goes back to the driver; local. From here\n"       \
    "on a replay that uses the memory is an error: on this rank at once, on\n"         \
    "the others when they wait for this rank. Free the memory when this rank's\n"      \
    "replays have ended. symm.torch.capture does this for torch's allocator.\n\n"      \
    "x: an array, or an address with nbytes. nbytes: in place of the array's."

#define DOC_LOAD_PLAN                                                                  \
    "load_plan($self, path, /)\n--\n\n"                                                \
    "Loads a plan (symm-plan/2), once in the team's life and before the\n"             \
    "plan's buffers are allocated; every rank loads the same one, which the\n"         \
    "next rendezvous() checks.\n\n"                                                    \
    "Raises symm.Invalid with the plan's field, symm.InUse,\n"                         \
    "symm.Unsupported."

#define DOC_EXPLAIN                                                                    \
    "explain($self)\n--\n\n"                                                           \
    "Why the team's last call took its path: a sentence; '' before the\n"              \
    "first."

#define DOC_RECORD_WRITE                                                               \
    "record_write($self, x, stream=None)\n--\n\n"                                      \
    "While SYMM_RECORD records the program (docs/planner.md): work of\n"               \
    "`stream`, after all that was given to it before, writes the array x, a\n"         \
    "part of one of the world's buffers. Once a buffer is named here, all\n"           \
    "accesses to it must be.\n\n"                                                      \
    "Raises what calls raise for their array and stream."

#define DOC_RECORD_READ                                                                \
    "record_read($self, x, stream=None)\n--\n\n"                                       \
    "As record_write, for work that reads x."

#define DOC_RECORD_DEPEND                                                              \
    "record_depend($self, stream, on)\n--\n\n"                                         \
    "Later work of `stream` waits for all that was given to `on`: an event\n"          \
    "of the program's own."

#define DOC_RECORD_PERIOD                                                              \
    "record_period($self)\n--\n\n"                                                     \
    "Between two periods of a program that repeats its calls: every rank\n"            \
    "calls it at the same place."

#define DOC_PREPARE                                                                    \
    "prepare($self, operation, /, *args, **options)\n--\n\n"                           \
    "The call of that name with these arguments, everything resolved\n"                \
    "once: a Call; call() makes it. It holds the arrays, which must stay\n"            \
    "where they are.\n\n"                                                              \
    "Raises what the call raises for its arguments, symm.Invalid for a name\n"         \
    "that is no call."

#define DOC_ALL_REDUCE                                                                 \
    "all_reduce($self, x, out=None, op='sum', *, " DOC_OPTIONS                         \
    "Collective: reduces x of all ranks in rank order into out; None: in\n"            \
    "place. out has as many elements as x, and its dtype. op: 'sum', 'avg',\n"         \
    "'prod', 'min', 'max', of integers also 'band', 'bor', 'bxor'. float16,\n"         \
    "bfloat16 and float8 are reduced in float32 and rounded once." DOC_CALL

#define DOC_ALL_REDUCE_NORM                                                            \
    "all_reduce_norm($self, input, weight=None, eps=1e-06, *, residual=None, "         \
    "bias=None, weight_offset=0.0, sum_out=None, residual_out=None, "                  \
    "norm_out=None, quant_out=None, quant=None, scale=None, hidden=None, "             \
    "round_partial=False, constant=False, " DOC_OPTIONS                                \
    "Collective: input of all ranks is reduced by sum, then\n\n"                       \
    "    s = the sum, in float32 in rank order, rounded once\n"                        \
    "    r = s + bias + residual, rounded after each addition\n"                       \
    "    n = r / sqrt(mean of r * r over a row + eps) * (weight_offset + weight)\n"    \
    "    q = n / scale in float8_e4m3, at most 448\n\n"                                \
    "and those of s, r, n and q are written that have an array: sum_out,\n"            \
    "residual_out, norm_out, quant_out. Between roundings to input's dtype the\n"      \
    "arithmetic is in float32; norm.h states it. input, residual, sum_out,\n"          \
    "residual_out and norm_out are rows x hidden in input's dtype: bfloat16,\n"        \
    "float16 or float32; weight and bias have hidden elements, 1 to 16384.\n"          \
    "hidden: None: input's last dimension. An output may be input or residual\n"       \
    "itself; no other arrays overlap.\n\n"                                             \
    "quant_out is rows x hidden in float8_e4m3, or uint8 for its bytes. quant says\n"  \
    "what the float32 array scale is: 'tensor' (None): one element, read when the\n"   \
    "call runs; 'row': one for each row, written; 'group' and 'group_column': one\n"   \
    "for 128 columns of a row, written as rows x groups and as groups x rows.\n"       \
    "round_partial: every partial sum is rounded to input's dtype, as FlashInfer\n"    \
    "does. constant: no kernel before the call on its stream writes weight and\n"      \
    "bias. Ranks agree on all but the arrays' places." DOC_CALL

#define DOC_REDUCE_SCATTER                                                             \
    "reduce_scatter($self, out, x, op='sum', *, " DOC_OPTIONS                          \
    "Collective: block `rank` of the reduced x into out: x has team.size x\n"          \
    "out.size elements, and out's dtype. op: as all_reduce." DOC_CALL

#define DOC_ALL_GATHER                                                                 \
    "all_gather($self, out, x, *, " DOC_OPTIONS                                        \
    "Collective: x of all ranks into out, in rank order: out has team.size\n"          \
    "x x.size elements, and x's dtype. In place if x is block `rank` of\n"             \
    "out." DOC_CALL

#define DOC_BROADCAST                                                                  \
    "broadcast($self, x, root=0, *, " DOC_OPTIONS                                      \
    "Collective: x of rank root into every rank's x, of as many elements\n"            \
    "and the same dtype." DOC_CALL

#define DOC_ALL_TO_ALL                                                                 \
    "all_to_all($self, out, x, *, " DOC_OPTIONS                                        \
    "Collective: block p of x into block `rank` of rank p's out. Both have\n"          \
    "the same multiple of team.size elements, and one dtype." DOC_CALL

#define DOC_BARRIER                                                                    \
    "barrier($self, *, " DOC_OPTIONS "Collective: waits for all ranks." DOC_CALL

#define DOC_SEND                                                                       \
    "send($self, x, peer, *, " DOC_OPTIONS                                             \
    "Sends x to rank peer, whose recv has as many elements of the same\n"              \
    "dtype. The k-th send to a rank meets its k-th recv from here. On CUDA\n"          \
    "and between hosts by an engine: symm.Unsupported without one." DOC_CALL

#define DOC_RECV                                                                       \
    "recv($self, x, peer, *, " DOC_OPTIONS                                             \
    "Receives into x from rank peer; see send." DOC_CALL

#define DOC_RECV_ANY                                                                   \
    "recv_any($self, x, *, site=None, timeout=None)\n--\n\n"                           \
    "Receives into x the next message of any rank, and returns that rank.\n"           \
    "Waits up to timeout seconds; None: the context's. Host backend only.\n\n"         \
    "Raises symm.Timeout, symm.PeerDead, symm.Unsupported on CUDA."

#define DOC_P2P                                                                        \
    "p2p($self, operations, *, " DOC_OPTIONS                                           \
    "Sends and receives as one call: operations is [('send' or 'recv',\n"              \
    "array, peer), ...], in any order on each rank." DOC_CALL

#define DOC_PUT                                                                        \
    "put($self, dst, src, peer, *, signal=None, " DOC_OPTIONS                          \
    "Copies src into rank peer's copy of dst, which is this rank's own\n"              \
    "symmetric array of as many bytes; then raises signal (0 to 255) there,\n"         \
    "if given. The peer sees the bytes after that signal, or after a\n"                \
    "collective." DOC_CALL

#define DOC_GET                                                                        \
    "get($self, dst, src, peer, *, " DOC_OPTIONS                                       \
    "Copies rank peer's copy of src, which is this rank's own symmetric\n"             \
    "array, into dst, of as many bytes." DOC_CALL

#define DOC_SIGNAL                                                                     \
    "signal($self, peer, signal, *, " DOC_OPTIONS                                      \
    "Raises signal (0 to 255) at rank peer, after what this rank has put\n"            \
    "there on the same stream. Signals are counted: the k-th signal_wait\n"            \
    "meets the k-th signal." DOC_CALL

#define DOC_SIGNAL_WAIT                                                                \
    "signal_wait($self, peer, signal, *, " DOC_OPTIONS                                 \
    "Waits for rank peer's next signal of that number (0 to 255)." DOC_CALL

#endif
