"""What the tests run in the process where Triton interprets: imported there, by name."""

from contextlib import contextmanager


def check(*case, **options):
    from triton_agreement import check as agreement

    with preferring("band"):
        agreement(*case, **options)


def check_flat(*case):
    """The same where the flat kernels come before all others that could serve."""
    from triton_agreement import check as agreement

    with preferring("flat"):
        agreement(*case)


@contextmanager
def preferring(kind):
    """Which of two kernels comes first where either can serve; large shapes would measure both."""
    from lunette.kernels.triton import gradients, values

    names = {
        values: ("_ranked",),
        gradients: ("gradient_tiles", "_tiling", "SHORT_ROW", "SHORTEST_ROW"),
    }
    kept = [(m, name, getattr(m, name)) for m, found in names.items() for name in found]
    if kind == "flat":
        values._ranked = lambda plan, bands, flats: flats or bands
        gradients.gradient_tiles = lambda plan, itemsize: []
        gradients._tiling = lambda plan: False
        gradients.SHORTEST_ROW = 1 << 30
    else:
        values._ranked = lambda plan, bands, flats: bands or flats
        gradients.SHORT_ROW = 0
    try:
        yield
    finally:
        for module, name, value in kept:
            setattr(module, name, value)


def divisions(divisors, numbers):
    """Quotients of every number by every divisor, as the flat kernels divide."""
    import torch
    from quotients import quotients

    from lunette.kernels.triton.launch import magic

    given = torch.tensor(numbers, dtype=torch.int32)
    found = []
    for d in divisors:
        out = torch.empty_like(given)
        quotients[(1,)](given, out, d, *magic(d), len(numbers))
        found.append(out.tolist())
    return found


def refusals(questions):
    """The answers of `refuses` to (op, verb, shape, dtype) questions."""
    from lunette.kernels import triton as kernels

    return [kernels.refuses(op, verb, (shape,), (dtype,)) for op, verb, shape, dtype in questions]


def empty_batch(op):
    """Shapes of every verb's results for a batch of length zero."""
    import torch

    from lunette.kernels import triton as kernels

    x = torch.zeros((0, 6, 8))
    y = kernels.forward(op, (x,))
    (gx,) = kernels.vjp(op, (x,), y)
    return tuple(y.shape), tuple(gx.shape), tuple(kernels.jvp(op, (x,), (x,)).shape)


def kernels_met(cases):
    """Which kernels these (op, shape, verb) calls launch."""
    import torch

    from lunette.kernels import triton as kernels
    from lunette.kernels.triton import gradients, values

    places = dict.fromkeys(("band", "band_smooth", "flat", "window", "locate"), values)
    names = (
        "band_gather",
        "band_smooth_gradient",
        "disjoint",
        "flat_gather",
        "whole_gradient",
        "gather",
    )
    places |= dict.fromkeys(names, gradients)
    met, kept = set(), {name: getattr(module, name) for name, module in places.items()}

    class Noted:
        def __init__(self, name):
            self.name = name

        def __getitem__(self, grid):
            def launched(*arguments, **constants):
                met.add(self.name)

            return launched

    try:
        for name, module in places.items():
            setattr(module, name, Noted(name))
        for op, shape, verb in cases:
            x = torch.zeros(shape)
            if verb == "vjp":
                kernels.vjp(op, (x,), torch.zeros(op.out_shape(shape)))
            elif verb == "indices":
                kernels.forward_with_indices(op, (x,))
            else:
                kernels.forward(op, (x,))
    finally:
        for name, kernel in kept.items():
            setattr(places[name], name, kernel)
    return met, set(places)


def complaints():
    """Messages for tensors that no launch may touch."""
    import torch

    import lunette as ln
    from lunette.kernels import triton as kernels
    from lunette.kernels.triton import accept

    op, x = ln.MaxPool((2, 2)), torch.zeros((2, 4, 4))

    def message(call):
        try:
            call()
        except (TypeError, ValueError) as error:
            return type(error).__name__, str(error)
        return None

    found = [
        message(lambda: kernels.forward(op, (x.to_sparse(),))),
        message(lambda: kernels.vjp(op, (x,), torch.zeros((2, 2, 2), device="meta"))),
        message(lambda: kernels.jvp(op, (x,), (x.to("meta"),))),
    ]
    kept, accept._interpreted = accept._interpreted, lambda: False
    try:
        found.append(message(lambda: kernels.forward(op, (x,))))
    finally:
        accept._interpreted = kept
    return found


def too_many_programs():
    """The message for a launch past the largest grid."""
    from lunette.kernels.triton.launch import grid_of

    try:
        grid_of(1 << 20, 1, 1 << 20, 64)
    except ValueError as error:
        return str(error)
    return None


def offsets_as_operators(op, shape):
    """torch's checks of the operators with offsets, served here by the interpreted kernels."""
    import torch

    from lunette.encoding import encode
    from lunette.torch import library, offsets

    for name, kernel in offsets.KERNELS.items():
        library.LIBRARY.impl(name, kernel, "CPU", allow_override=True)
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(torch.Size(shape).numel(), generator=generator)
    x, text = order.double().reshape(shape), encode(op)
    _, winners = offsets.max_with_offsets(x, text)
    grad = torch.randn(winners.shape, generator=generator, dtype=torch.float64).requires_grad_()
    dx = torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
    x.requires_grad_()
    torch.library.opcheck(offsets.max_with_offsets, (x, text))
    torch.library.opcheck(offsets.max_vjp_from_offsets, (winners, grad, shape, text))
    torch.library.opcheck(offsets.max_jvp_from_offsets, (winners, dx, text))

    def pool(x):
        return offsets.max_with_offsets(x, text)[0]

    modes = {"check_forward_ad": True, "check_batched_grad": True, "fast_mode": True}
    assert torch.autograd.gradcheck(pool, x, eps=1e-3, **modes)
    assert torch.autograd.gradgradcheck(
        pool, x, eps=1e-3, check_fwd_over_rev=True, check_rev_over_rev=True, fast_mode=True
    )


def forged_offsets(seed, device="cpu"):
    """Derivatives from bytes that no forward gave: nothing outside x is read, and each sends at most once."""
    import torch

    import lunette as ln
    from lunette.kernels import triton as kernels

    generator = torch.Generator().manual_seed(seed)
    shapes = [
        (ln.MaxPool((3,), 2, 1), (2, 9)),
        (ln.MaxPool((3, 2), 2, 1), (2, 5, 6)),
        (ln.AdaptiveMaxPool((3, 2)), (2, 7, 5)),
        (ln.MaxPool((2, 2, 3), 1, 1, 2), (1, 4, 4, 6)),
    ]
    for op, shape in shapes:
        size = torch.Size(shape).numel()
        memory = torch.full((3 * size,), 1e30, device=device)
        dx = memory[size : 2 * size].view(shape)
        dx.copy_(torch.rand(shape, generator=generator).to(device))
        result = op.out_shape(shape)
        offsets = torch.randint(0, 256, result, generator=generator, dtype=torch.uint8).to(device)
        taken = kernels.jvp_from_offsets(op, offsets, dx)
        assert bool((taken >= 0).all()) and bool((taken <= 1).all()), op
        grad = torch.ones(result, device=device)
        sent = kernels.vjp_from_offsets(op, shape, offsets, grad)
        assert bool((sent >= 0).all()) and float(sent.sum()) <= grad.numel(), op


def wrong_offsets(cases):
    """For each (op, shape, codes): those codes that, as the offset of every window, reached another gradient or tangent than a cell's.

    The tangent lies between NaNs: what is read outside it shows.
    """
    import numpy as np
    import torch

    from lunette import offsets
    from lunette.kernels import triton as kernels

    found = []
    for op, shape, codes in cases:
        around = torch.full((3, *shape), float("nan"))
        around[1] = torch.arange(1.0, 1.0 + around[1].numel()).reshape(shape)
        out, reached = op.out_shape(shape), []
        winners = kernels.forward_with_offsets(op, (around[1],))[1].numpy()
        for code in codes:
            given = torch.full(out, code, dtype=torch.uint8)
            gx = kernels.vjp_from_offsets(op, shape, given, torch.ones(out))
            y = kernels.jvp_from_offsets(op, given, around[1])
            right = np.zeros(out, bool)
            for place in np.ndindex(out):
                one = winners.copy()
                one[place] = code
                try:
                    offsets.indices_of(op, shape, one)
                except ValueError:
                    continue
                right[place] = code != offsets.NOWHERE
            if float(gx.sum()) != right.sum() or ((y.numpy() != 0) != right).any():
                reached.append(code)
        found.append(reached)
    return found


def learned_betas(op, shape, betas):
    """How far results for a told beta are from the specification, and how often something is decided anew after the first."""
    import torch

    import lunette as ln
    from lunette.encoding import encode
    from lunette.kernels import triton as kernels
    from lunette.torch import library

    caches = kernels._plan, kernels._lengths, library._choose_triton
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    grad = torch.randn(op.out_shape(shape), generator=generator, dtype=torch.float64)
    errors, misses = [], []
    for beta in betas:
        told, text = torch.tensor(beta), encode(op)
        y = library._pool_cuda(x, told, text, None)
        gx = library._pool_vjp_cuda(x, grad, told, text, None)
        dy = library._pool_jvp_cuda(x, x, told, text, None)
        fixed = ln.SmoothMaxPool(op.kernel, told.item())
        value = ln.spec.forward(fixed, x.numpy())
        slope = ln.spec.vjp(fixed, x.numpy(), grad.numpy())
        tangent = ln.spec.jvp(fixed, x.numpy(), x.numpy())
        pairs = (y, value), (gx, slope), (dy, tangent)
        errors.append(max(float(abs(a.numpy() - b).max()) for a, b in pairs))
        misses.append(sum(cache.cache_info().misses for cache in caches))
    return errors, misses
