# SPDX-License-Identifier: MIT
"""Stand-ins for vLLM 0.33, SGLang 0.5.23 and FlashInfer 0.7 in sys.modules: the paths and
signatures that the plug-ins of libsymm touch, and nothing else. A class here notes that it was made
and called."""

import contextlib
import enum
import importlib
import sys
import types

MIB = 1024 * 1024


def put(name, **members):
    """Puts a module with these members into sys.modules, under its parents."""
    parts = name.split(".")
    for i in range(1, len(parts) + 1):
        path = ".".join(parts[:i])
        if path not in sys.modules:
            sys.modules[path] = types.ModuleType(path)
            sys.modules[path].__path__ = []
            if i > 1:
                setattr(sys.modules[".".join(parts[:i - 1])], parts[i - 1], sys.modules[path])
    module = sys.modules[name]
    for member, value in members.items():
        setattr(module, member, value)
    return module


def remove(package):
    for name in [n for n in sys.modules if n == package or n.startswith(package + ".")]:
        del sys.modules[name]


class VllmCustomAllreduce:
    """The signatures of vLLM 0.33.0; does not run on any device."""

    made = []

    def __init__(self, group, device, max_size=8192 * 1024, max_all_gather_size=2 * MIB,
                 max_mnnvl_all_gather_size=None, max_reduce_scatter_size=16 * MIB,
                 max_mnnvl_reduce_scatter_size=16 * MIB,
                 max_mnnvl_multimem_reduce_scatter_size=64 * MIB, symm_mem_enabled=False,
                 *, register_graph_buffers=True):
        self.made.append(self)
        self.arguments = (max_size, max_all_gather_size, symm_mem_enabled, register_graph_buffers)
        self.disabled = False
        self.closed = False

    def should_custom_ar(self, inp):
        return "original"

    def all_reduce(self, inp, *, out=None, registered=False):
        return ("original", registered)

    def custom_all_reduce(self, input):
        return "original"

    def custom_all_gather(self, inp):
        return "original"

    def custom_reduce_scatter(self, inp):
        return "original"

    @contextlib.contextmanager
    def capture(self):
        yield "original"

    def close(self):
        self.closed = True

    @staticmethod
    def create_shared_buffer(size_in_bytes, group=None, uncached=False):
        return [size_in_bytes]

    @staticmethod
    def free_shared_buffer(pointers, group=None, rank=None):
        VllmCustomAllreduce.freed = pointers


def put_vllm(version="0.33.0", original=VllmCustomAllreduce):
    put("vllm", __version__=version)
    return put("vllm.distributed.device_communicators.custom_all_reduce",
               CustomAllreduce=original)


class HookType(enum.Enum):
    BEFORE, AFTER, AROUND, REPLACE = range(4)


class SglangCustomAllReduceV2:
    def __init__(self, group, device, max_size=16 * MIB):
        self.name = "SGLang's own"
        self.disabled = False

    def fused_allreduce_rmsnorm(self):
        raise AssertionError("of another class")


def put_sglang():
    class HookRegistry:
        """Registers hooks; apply_hooks puts AROUND hooks before their targets."""

        hooks = []

        @classmethod
        def register(cls, target, hook, hook_type=HookType.AROUND):
            cls.hooks.append((target, hook, hook_type))

        @classmethod
        def apply_hooks(cls):
            for target, hook, hook_type in cls.hooks:
                assert hook_type is HookType.AROUND
                path, name = target.rsplit(".", 1)
                module = importlib.import_module(path)
                original = getattr(module, name)
                setattr(module, name, lambda *a, _f=original, _h=hook, **k: _h(_f, *a, **k))

    put("sglang.srt.plugins.hook_registry", HookRegistry=HookRegistry, HookType=HookType)
    put("sglang.srt.distributed.device_communicators.custom_all_reduce",
        dispatch_custom_allreduce=lambda group, device: SglangCustomAllReduceV2)
    return HookRegistry


class FlashInferWorkspace:
    """FlashInfer's base class of workspaces."""

    def __init__(self, world_size, rank):
        self.world_size, self.rank, self._destroyed = world_size, rank, False


class TheirWorkspace(FlashInferWorkspace):
    """A workspace of FlashInfer's own; notes its making and its end."""

    backend, made = "theirs", []

    def __init__(self, **arguments):
        super().__init__(arguments["world_size"], arguments["rank"])
        self.arguments = arguments
        self.made.append(self)

    def destroy(self):
        self._destroyed = True


def put_flashinfer():
    """FlashInfer whose functions return what they were called with."""
    put("flashinfer.comm.workspace_base", AllReduceFusionWorkspace=FlashInferWorkspace)
    return put("flashinfer.comm", create_allreduce_fusion_workspace=TheirWorkspace,
               allreduce_fusion=lambda **arguments: ("theirs", arguments))


def put_vllm_fusion():
    """vLLM's fusion pass as far as it calls FlashInfer: how its operator takes a workspace and
    passes on tensors, in place where it has no norm_out."""
    import flashinfer.comm as flashinfer_comm

    held = {}

    def workspace_of(group, **arguments):
        if "workspace" not in held:
            held["workspace"] = flashinfer_comm.create_allreduce_fusion_workspace(
                backend="trtllm", comm_backend=None, group=group, **arguments)
        return held["workspace"]

    def call_trtllm_fused_allreduce_norm(allreduce_in, residual, rms_gamma, rms_eps, group,
                                         pattern_code, norm_out=None, quant_out=None,
                                         scale_out=None, scale_factor=None, weight_bias=0.0):
        workspace = workspace_of(
            group, world_size=group.size(), rank=group.rank(), max_token_num=1024,
            hidden_dim=allreduce_in.shape[-1], dtype=allreduce_in.dtype)
        in_place = norm_out is None
        flashinfer_comm.allreduce_fusion(
            input=allreduce_in, workspace=workspace, pattern=pattern_code, launch_with_pdl=True,
            output=None, residual_out=residual if in_place else allreduce_in,
            norm_out=allreduce_in if in_place else norm_out, quant_out=quant_out,
            scale_out=scale_out, residual_in=residual, rms_gamma=rms_gamma, rms_eps=rms_eps,
            scale_factor=scale_factor, layout_code=0 if workspace.backend == "trtllm" else None,
            use_oneshot=True, fp32_acc=True, weight_bias=weight_bias,
            trigger_completion_at_end=True)
        return workspace

    return put("vllm.compilation.passes.fusion.allreduce_rms_fusion",
               flashinfer_comm=flashinfer_comm,
               call_trtllm_fused_allreduce_norm=call_trtllm_fused_allreduce_norm)
