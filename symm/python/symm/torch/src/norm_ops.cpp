// SPDX-License-Identifier: MIT
// norm_ops.cpp - torch.ops.symm.all_reduce_norm: symm_all_reduce_norm (norm.h) as an operator that
// returns what it is asked for, and one that writes into tensors it is given. Both have kernels for
// CPU, CUDA and Meta tensors, so torch.compile traces them. The ranks are those of a process
// group, on the context of libsymm that symmetric memory uses too (memory.hpp).
#include "memory.hpp"

#include <ATen/core/op_registration/op_registration.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>

#include "calls.hpp"
#include "symm/norm.h"

namespace symm_torch {

namespace {

using OptionalTensor = std::optional<at::Tensor>;

// ---- Arguments --------------------------------------------------------------------------

symm_norm_quant quant_of(const std::string &name)
{
    static const char *const names[SYMM_NORM_QUANT_COUNT] = {"none", "tensor", "row", "group",
                                                             "group_column"};

    for (int i = 0; i < SYMM_NORM_QUANT_COUNT; i++)
        if (name == names[i])
            return static_cast<symm_norm_quant>(i);
    TORCH_CHECK(false, "symm: all_reduce_norm: quant '", name,
                "' is unknown; there are none, tensor, row, group, group_column");
}

bool writes_scale(symm_norm_quant quant)
{
    return quant > SYMM_NORM_QUANT_TENSOR;
}

// The two operators' common arguments.
struct Arguments {
    const at::Tensor &input;
    const std::string &group;
    const OptionalTensor &weight, &residual, &bias, &scale;
    double eps, weight_offset;
    symm_norm_quant quant;
    bool round_partial, constant;
};

// An output's tensors: the caller's, and a dense one that the call writes.
struct Output {
    OptionalTensor given;
    at::Tensor flat;

    void *take(const OptionalTensor &out, const at::Tensor &like, at::ScalarType type,
               const char *name)
    {
        if (!out)
            return nullptr;
        TORCH_CHECK(out->scalar_type() == type && out->numel() == like.numel() &&
                        out->device() == like.device(),
                    "symm: all_reduce_norm: ", name, " is ", out->sizes(), " of ",
                    out->scalar_type(), " on ", out->device(), ", input ", like.sizes(),
                    " on ", like.device(), "; it must be of ", type);
        given = out;
        flat = dense_like(*out);
        return flat.data_ptr();
    }

    void finish() const
    {
        if (given)
            copy_back(*given, flat);
    }
};

struct Outputs {
    OptionalTensor sum, residual, norm, quant, scale;
};

// A dense tensor with an optional argument's values, as many as `count`; none: NULL.
const void *take_input(const OptionalTensor &tensor, const at::Tensor &input, int64_t count,
                       const char *name, at::Tensor *held)
{
    if (!tensor)
        return nullptr;
    check_same("all_reduce_norm", *tensor, input);
    TORCH_CHECK(tensor->numel() == count, "symm: all_reduce_norm: ", name, " has ",
                tensor->numel(), " elements, not ", count);
    *held = dense(*tensor);
    return held->data_ptr();
}

// A kernel is chosen by one of the tensors alone: with one of Meta, by that.
void check_devices(
    const at::Tensor &input,
    std::initializer_list<std::reference_wrapper<const OptionalTensor>> others)
{
    for (const OptionalTensor &other : others)
        TORCH_CHECK(!other || other->device() == input.device(),
                    "symm: all_reduce_norm: tensors on ", other->device(), " and on ",
                    input.device());
}

// Where the scales are: rows x groups row by row, or its transpose, which a tensor of rows x groups
// with strides (1, rows) is too.
at::Tensor scale_memory(const at::Tensor &scale, const symm_norm &norm)
{
    const int64_t rows = static_cast<int64_t>(norm.rows);
    const int64_t groups =
        (static_cast<int64_t>(norm.hidden) + SYMM_NORM_GROUP - 1) / SYMM_NORM_GROUP;
    const auto count =
        static_cast<int64_t>(symm_norm_scales(norm.quant, norm.rows, norm.hidden));
    const bool turned = norm.quant == SYMM_NORM_QUANT_GROUP_COLUMN && scale.dim() == 2 &&
                        scale.size(0) == rows && scale.size(1) == groups;
    const at::Tensor memory = turned ? scale.t() : scale;

    TORCH_CHECK(scale.scalar_type() == at::kFloat && scale.numel() == count &&
                    memory.is_contiguous(),
                "symm: all_reduce_norm: the scale is ", scale.sizes(), " with strides ",
                scale.strides(), " of ", scale.scalar_type(), "; it must be ", count,
                " dense elements of float32, of group_column rows x groups with strides (1, rows)");
    return memory;
}

// ---- The call ---------------------------------------------------------------------------

symm_norm describe(const Arguments &a)
{
    symm_norm norm = {};

    TORCH_CHECK(a.input.dim() > 0 && a.input.size(-1) > 0,
                "symm: all_reduce_norm: input is ", a.input.sizes(),
                "; its last dimension is normalised, and must have an element");
    norm.size = sizeof(norm);
    norm.hidden = static_cast<size_t>(a.input.size(-1));
    norm.rows = static_cast<size_t>(a.input.numel()) / norm.hidden;
    norm.dtype = dtype_of(a.input.scalar_type());
    norm.quant = a.quant;
    norm.flags = (a.round_partial ? SYMM_NORM_ROUND_PARTIAL : 0) |
                 (a.constant ? SYMM_NORM_CONSTANT : 0);
    norm.eps = static_cast<float>(a.eps);
    norm.weight_offset = static_cast<float>(a.weight_offset);
    return norm;
}

void run(const Arguments &a, const Outputs &out)
{
    symm_norm norm = describe(a);
    const at::Tensor in = dense(a.input);

    check_devices(in, {a.scale, out.scale});
    const at::ScalarType type = in.scalar_type();
    const int64_t row = in.size(-1);
    at::Tensor weight, residual, bias, scale;
    Output sum, residual_out, norm_out, quant_out;

    norm.in = in.data_ptr();
    norm.weight = take_input(a.weight, in, row, "weight", &weight);
    norm.bias = take_input(a.bias, in, row, "bias", &bias);
    norm.residual_in = take_input(a.residual, in, in.numel(), "residual", &residual);
    norm.sum_out = sum.take(out.sum, in, type, "sum_out");
    norm.residual_out = residual_out.take(out.residual, in, type, "residual_out");
    norm.norm_out = norm_out.take(out.norm, in, type, "norm_out");
    norm.quant_out = quant_out.take(out.quant, in, at::kFloat8_e4m3fn, "quant_out");
    const OptionalTensor &scales = writes_scale(norm.quant) ? out.scale : a.scale;
    const OptionalTensor &unused = writes_scale(norm.quant) ? a.scale : out.scale;
    TORCH_CHECK(scales.has_value() == (norm.quant != SYMM_NORM_QUANT_NONE) && !unused,
                "symm: all_reduce_norm: quant 'tensor' takes scale, the others scale_out, and "
                "'none' takes no scale");
    if (scales) {
        scale = scale_memory(*scales, norm);
        norm.scale = static_cast<float *>(scale.data_ptr());
    }

    const MemoryGroupPtr group = memory_group(a.group, in.device());
    const symm_call call = memory_call(*group, in.device(), 0);
    {
        const std::lock_guard<std::mutex> lock(group->mutex());

        check(symm_all_reduce_norm(group->team(), &norm, &call, nullptr));
    }
    count(COUNT_ALL_REDUCE_NORM, in.nbytes());
    for (const Output *output : {&sum, &residual_out, &norm_out, &quant_out})
        output->finish();
}

// ---- Operators --------------------------------------------------------------------------

at::Tensor make_scale(const at::Tensor &input, symm_norm_quant quant)
{
    const auto options = input.options().dtype(at::kFloat);
    std::vector<c10::SymInt> sizes = input.sym_sizes().vec();
    const c10::SymInt groups = (sizes.back() + (SYMM_NORM_GROUP - 1)) / SYMM_NORM_GROUP;

    if (quant == SYMM_NORM_QUANT_GROUP_COLUMN) {
        c10::SymInt rows = 1;

        for (size_t i = 0; i + 1 < sizes.size(); i++)
            rows = rows * sizes[i];
        return at::empty_symint({groups, rows}, options).t();
    }
    sizes.back() = quant == SYMM_NORM_QUANT_ROW ? c10::SymInt(1) : groups;
    return at::empty_symint(sizes, options);
}

// Makes the tensors that `names` has, in its order; *out holds them too.
std::vector<at::Tensor> make_outputs(const at::Tensor &input, const std::string &names,
                                     symm_norm_quant quant, Outputs *out)
{
    std::vector<at::Tensor> made;
    const auto place = [&](const std::string &name, OptionalTensor *output, bool is_known) {
        TORCH_CHECK(is_known && !*output, "symm: all_reduce_norm: outputs '", names,
                    "': some of sum, residual, norm, with a quant also quant, and scale if it is "
                    "not 'tensor', once each");
        *output = name == "scale" ? make_scale(input, quant)
                                  : at::empty_symint(input.sym_sizes(),
                                                     name == "quant" ? input.options().dtype(
                                                                           at::kFloat8_e4m3fn)
                                                                     : input.options());
        made.push_back(**output);
    };

    TORCH_CHECK(input.dim() > 0, "symm: all_reduce_norm: input has no dimension");
    for (size_t at = 0, end; at <= names.size(); at = end + 1) {
        end = std::min(names.find(',', at), names.size());
        const std::string name = names.substr(at, end - at);

        if (name == "sum")
            place(name, &out->sum, true);
        else if (name == "residual")
            place(name, &out->residual, true);
        else if (name == "norm")
            place(name, &out->norm, true);
        else if (name == "quant")
            place(name, &out->quant, quant != SYMM_NORM_QUANT_NONE);
        else
            place(name, &out->scale, name == "scale" && writes_scale(quant));
    }
    TORCH_CHECK(out->quant.has_value() == (quant != SYMM_NORM_QUANT_NONE) &&
                    out->scale.has_value() == writes_scale(quant),
                "symm: all_reduce_norm: outputs '", names,
                "' lacks quant, or the scale that is written");
    return made;
}

std::vector<at::Tensor> all_reduce_norm(const at::Tensor &input, std::string group,
                                        const OptionalTensor &weight, double eps,
                                        const OptionalTensor &residual,
                                        const OptionalTensor &bias, double weight_offset,
                                        std::string outputs, std::string quant,
                                        const OptionalTensor &scale, bool round_partial,
                                        bool constant)
{
    const Arguments a{input,        group,           weight,        residual, bias, scale, eps,
                      weight_offset, quant_of(quant), round_partial, constant};
    Outputs out;
    std::vector<at::Tensor> made = make_outputs(input, outputs, a.quant, &out);

    run(a, out);
    return made;
}

std::vector<at::Tensor> all_reduce_norm_meta(
    const at::Tensor &input, std::string /* group */, const OptionalTensor &weight,
    double /* eps */, const OptionalTensor &residual, const OptionalTensor &bias,
    double /* weight_offset */, std::string outputs, std::string quant,
    const OptionalTensor &scale, bool /* round_partial */, bool /* constant */)
{
    Outputs out;

    check_devices(input, {weight, residual, bias, scale});
    return make_outputs(input, outputs, quant_of(quant), &out);
}

void all_reduce_norm_out(const at::Tensor &input, std::string group, const OptionalTensor &weight,
                         double eps, const OptionalTensor &residual, const OptionalTensor &bias,
                         double weight_offset, std::string quant, const OptionalTensor &scale,
                         bool round_partial, bool constant, const OptionalTensor &sum_out,
                         const OptionalTensor &residual_out, const OptionalTensor &norm_out,
                         const OptionalTensor &quant_out, const OptionalTensor &scale_out)
{
    const Arguments a{input,        group,           weight,        residual, bias, scale, eps,
                      weight_offset, quant_of(quant), round_partial, constant};

    run(a, {sum_out, residual_out, norm_out, quant_out, scale_out});
}

void all_reduce_norm_out_meta(
    const at::Tensor &input, std::string, const OptionalTensor &weight, double,
    const OptionalTensor &residual, const OptionalTensor &bias, double, std::string,
    const OptionalTensor &scale, bool, bool, const OptionalTensor &sum_out,
    const OptionalTensor &residual_out, const OptionalTensor &norm_out,
    const OptionalTensor &quant_out, const OptionalTensor &scale_out)
{
    check_devices(input, {weight, residual, bias, scale, sum_out, residual_out,
                          norm_out, quant_out, scale_out});
}

// The outputs that are written get no history, so gradients that a caller waits for would be left
// out without a word: as torch's own out= functions do, it refuses arguments that record them. What
// is written may have been saved for a backward pass, which sees that by the version.
void all_reduce_norm_out_autograd(const c10::OperatorHandle &op,
                                  c10::DispatchKeySet keys, torch::jit::Stack *stack)
{
    const std::vector<c10::Argument> &arguments = op.schema().arguments();
    std::vector<at::Tensor> written;

    for (size_t i = 0; i < arguments.size(); i++) {
        const c10::IValue &value = (*stack)[stack->size() - arguments.size() + i];
        const c10::AliasInfo *alias = arguments[i].alias_info();

        if (!value.isTensor())
            continue;
        TORCH_CHECK(!at::GradMode::is_enabled() || !value.toTensor().requires_grad(),
                    "symm: all_reduce_norm.out has no derivative, but ",
                    arguments[i].name(), " requires grad: call it in torch.no_grad()");
        if (alias && alias->isWrite() && !value.toTensor().is_inference())
            written.push_back(value.toTensor());
    }
    {
        const at::AutoDispatchBelowADInplaceOrView guard;

        op.redispatchBoxed(keys & c10::after_ADInplaceOrView_keyset, stack);
    }
    for (const at::Tensor &tensor : written)
        torch::autograd::impl::bump_version(tensor);
}

// ---- Registration -----------------------------------------------------------------------

const char functional_schema[] =
    "all_reduce_norm(Tensor input, str group_name, Tensor? weight=None, float eps=1e-06, *, "
    "Tensor? residual=None, Tensor? bias=None, float weight_offset=0.0, str outputs='norm', "
    "str quant='none', Tensor? scale=None, bool round_partial=False, bool constant=False) "
    "-> Tensor[]";
const char out_schema[] =
    "all_reduce_norm.out(Tensor input, str group_name, Tensor? weight=None, float eps=1e-06, *, "
    "Tensor? residual=None, Tensor? bias=None, float weight_offset=0.0, str quant='none', "
    "Tensor? scale=None, bool round_partial=False, bool constant=False, "
    "Tensor(a!)? sum_out=None, Tensor(b!)? residual_out=None, Tensor(c!)? norm_out=None, "
    "Tensor(d!)? quant_out=None, Tensor(e!)? scale_out=None) -> ()";

} // namespace

void register_norm_ops()
{
    static std::once_flag once;

    std::call_once(once, [] {
        // Never freed: its end would take the operators back.
        auto *library = new torch::Library(torch::Library::FRAGMENT, "symm", std::nullopt,
                                           __FILE__, __LINE__);

        library->def(functional_schema, {at::Tag::pt2_compliant_tag});
        library->def(out_schema, {at::Tag::pt2_compliant_tag});
        // Else a backward pass goes on without the gradients of what the call was given.
        library->impl("all_reduce_norm", c10::DispatchKey::Autograd,
                      torch::autograd::autogradNotImplementedFallback());
        library->impl(
            "all_reduce_norm.out", c10::DispatchKey::Autograd,
            torch::CppFunction::makeFromBoxedFunction<&all_reduce_norm_out_autograd>());
        for (const c10::DispatchKey key : {c10::DispatchKey::CPU, c10::DispatchKey::CUDA}) {
            library->impl("all_reduce_norm", torch::dispatch(key, TORCH_FN(all_reduce_norm)));
            library->impl("all_reduce_norm.out",
                          torch::dispatch(key, TORCH_FN(all_reduce_norm_out)));
        }
        library->impl("all_reduce_norm",
                      torch::dispatch(c10::DispatchKey::Meta, TORCH_FN(all_reduce_norm_meta)));
        library->impl("all_reduce_norm.out", torch::dispatch(c10::DispatchKey::Meta,
                                                             TORCH_FN(all_reduce_norm_out_meta)));
    });
}

} // namespace symm_torch
