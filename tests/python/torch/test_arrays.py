# SPDX-License-Identifier: MIT
"""Tensors of torch as arguments of the core package's calls."""

import pytest

import symm

torch = pytest.importorskip("torch")


@pytest.fixture
def team():
    with symm.init(backend="host", rank=0, size=1) as ctx:
        yield ctx.world


class Derived(torch.Tensor):
    pass


@pytest.mark.parametrize("x", [
    torch.tensor(3.0), torch.arange(6.0).reshape(2, 3), torch.ones(2, 0), torch.ones(0, 2).T,
    torch.ones(1, 7).T, torch.arange(5, dtype=torch.int16)[2:], torch.ones(4).to(torch.bfloat16),
    torch.ones(4).to(torch.float8_e4m3fn), torch.ones(4, dtype=torch.uint16),
    torch.nn.Parameter(torch.arange(3.0)), torch.arange(3.0).as_subclass(Derived),
    torch.arange(8.0, requires_grad=True),
], ids=lambda x: f"{type(x).__name__}-{x.dtype}-{tuple(x.shape)}")
def test_taken(team, x):
    out = torch.zeros_like(x, memory_format=torch.contiguous_format).detach()
    team.all_gather(out, x)
    assert torch.equal(out.float(), x.detach().float())


@pytest.mark.parametrize("x, error, words", [
    (torch.ones(3, 3).T[1:], symm.Invalid, "not contiguous"),
    (torch.ones(4)[::2], symm.Invalid, "not contiguous"),
    (torch.ones(3).expand(2, 3), symm.Invalid, "not contiguous"),
    (torch.tensor(1 + 2j).conj().imag, symm.Invalid, "negated view"),
    (torch.tensor([1 + 2j]).conj().imag.as_subclass(Derived), symm.Invalid, "negated view"),
    (torch.ones(3, dtype=torch.bool), symm.Unsupported, "torch.bool"),
    (torch.ones(3, dtype=torch.complex64), symm.Unsupported, "torch.complex64"),
    (torch.ones(3, device="meta"), symm.Unsupported, "no memory to share"),
    (torch.eye(3).to_sparse(), symm.Unsupported, "no memory to share"),
], ids=["transposed", "strided", "expanded", "negative", "negative subclass", "bool", "complex",
        "meta", "sparse"])
def test_refused(team, x, error, words):
    with pytest.raises(error, match=words) as caught:
        team.all_reduce(x)
    assert "\n" not in str(caught.value)


def test_by_either_way(team):
    """DLPack's functions in C (2.11 and later), and a subclass, which is asked by its methods."""
    x = torch.arange(1000.0)
    out = torch.empty(1000), torch.empty(1000).as_subclass(Derived)
    for y in out:
        team.all_reduce(x, y)
        assert torch.equal(x, y.as_subclass(torch.Tensor))
    with pytest.raises(symm.Invalid):
        team.all_reduce(x, torch.empty(999))


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
def test_fake_tensor(team):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        fake = mode.from_tensor(torch.ones(3))
        with pytest.raises((symm.Error, RuntimeError)):
            team.all_reduce(fake)
