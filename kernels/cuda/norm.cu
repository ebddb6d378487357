/* SPDX-License-Identifier: MIT */
/*
 * norm.cu - the rest of an all_reduce_norm whose sums an all_reduce before it on the stream has put
 * into args.out: T[rows][hidden], of any alignment. It takes no channel and waits for no peer. The
 * same epilogue as all_reduce_norm.cu, and the same bits. args.out may be any of the outputs.
 *
 * Launch: groups x width threads (row_exchange.cuh), any number of blocks.
 *
 * symm_norm_{bfloat16,float16,float32}
 */
#include "kernels/cuda/norm.cuh"

struct rows {
    static constexpr int ranks = 1;
    static constexpr uint32_t threads = SYMM_MAX_BLOCK;
    static constexpr bool clusters = false;

    template <class EPILOGUE>
    static SYMM_DEVICE void of(const struct symm_cuda_args &args, bool whole)
    {
        typedef typename EPILOGUE::place_type place_type;
        const place_type place(args, blockDim.x, whole);
        EPILOGUE epilogue(args, place);
        symm_lamport::value s[place_type::most];

        epilogue.early();
        symm_round_depend(args);
        symm_round_trigger(args);
        epilogue.begin();
        __syncthreads();
        epilogue.ready();
        SYMM_NO_UNROLL
        for (uint64_t row = place.first; row < args.norm.rows; row += place.step) {
            epilogue.begin_row();
            SYMM_UNROLL_BY(place_type::unrolled)
            for (uint32_t k = 0; k < place.count(); k++) {
                epilogue.load(row, k);
                s[k] = epilogue.packet(row, k, place.get(args.out, row, k), true);
            }
            epilogue.row(row, s, true);
        }
    }
};

#define SYMM_NORM(name, dtype)                                                         \
    SYMM_KERNEL_BARE(symm_norm_##name)                                                 \
    {                                                                                  \
        symm_norm_any<rows, dtype>(args, args.out);                                    \
    }
SYMM_NORM(bfloat16, SYMM_BFLOAT16)
SYMM_NORM(float16, SYMM_FLOAT16)
SYMM_NORM(float32, SYMM_FLOAT32)
