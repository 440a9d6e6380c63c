"""Arrays on several devices: no collective where batch or channels are sharded, and right results where pooled axes are."""

from .child import run

BEGIN = """
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
op, _ = CASES["max"]
mean, smooth = ln.AvgPool((2, 2)), ln.SmoothMaxPool((2, 2), 1.5)
x = array((4, 4, 8, 8), "float32", ties=False)
mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("a", "b"))

def collectives(compiled):
    text = compiled.as_text()
    return [n for n in ("all-gather", "all-reduce", "all-to-all", "collective-permute") if n in text]

def on(x, *spec):
    return jax.device_put(x, NamedSharding(mesh, P(*spec)))
"""


def test_jit_over_batch_and_channels_has_no_collective():
    run(
        BEGIN
        + """
import lunette.jax
for op in (op, mean, smooth):
    gy = np.ones(op(x).shape, np.float32)
    def gradient(x, gy, op=op):
        y, back = jax.vjp(op, x)
        return y, back(gy)[0]
    compiled = jax.jit(gradient).lower(on(x, "a", "b"), on(gy, "a", "b")).compile()
    assert collectives(compiled) == [], compiled.as_text()
    y, gx = compiled(on(x, "a", "b"), on(gy, "a", "b"))
    assert same_bits(y, op(x)) and same_bits(gx, op.vjp(x, gy))
    assert y.sharding.spec[:2] == ("a", "b") and gx.sharding.spec[:2] == ("a", "b")
    last = np.moveaxis(x, 1, -1)
    call = jax.jit(lambda x, op=op: lunette.jax.apply(op, x, channels_last=True))
    compiled = call.lower(on(last, "a")).compile()
    assert collectives(compiled) == [], compiled.as_text()
    assert same_bits(compiled(on(last, "a")), np.moveaxis(op(x), 1, -1))
    assert same_bits(call(on(last, "a", None, None, "b")), np.moveaxis(op(x), 1, -1))
dropped = ln.GlobalAvgPool(2, keepdims=False)
compiled = jax.jit(lambda x: jax.vjp(dropped, x)[1](jnp.ones((4, 4)))).lower(on(x, "a", "b")).compile()
assert collectives(compiled) == [], compiled.as_text()
""",
        devices=4,
    )


def test_sharded_pooled_axes_are_gathered():
    run(
        BEGIN
        + """
for op in (op, mean, smooth):
    for spec in (("a", None, "b"), (None, None, "a", "b"), (None, "a", None, "b")):
        assert same_bits(jax.jit(op)(on(x, *spec)), op(x))
        gy = np.ones(op(x).shape, np.float32)
        found = jax.jit(lambda x, op=op: jax.vjp(op, x)[1](gy)[0])(on(x, *spec))
        assert same_bits(found, op.vjp(x, gy))
""",
        devices=4,
    )


def test_shard_map_pmap_and_explicit_shardings():
    run(
        BEGIN
        + """
shard_map = getattr(jax, "shard_map", None)
gy = np.ones(op(x).shape, np.float32)
mapped = shard_map(lambda x, gy: jax.vjp(op, x)[1](gy)[0], mesh=mesh, in_specs=(P("a", "b"), P("a", "b")), out_specs=P("a", "b"))
assert same_bits(jax.jit(mapped)(x, gy), op.vjp(x, gy))
alike = shard_map(lambda x, gy: op.vjp(x, gy), mesh=mesh, in_specs=(P("a", "b"), P("a")), out_specs=P("a", "b"))
assert same_bits(jax.jit(alike)(x, gy[:, :2]), op.vjp(x, np.concatenate([gy[:, :2]] * 2, 1)))
assert same_bits(jax.pmap(op)(x), op(x))

explicit = jax.make_mesh((2, 2), ("a", "b"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
jax.set_mesh(explicit) if hasattr(jax, "set_mesh") else jax.sharding.set_mesh(explicit)
here = jax.device_put(x, NamedSharding(explicit, P("a", "b")))
y, back = jax.vjp(op, here)
assert jax.typeof(y).sharding.spec == P("a", "b", None, None), jax.typeof(y)
assert same_bits(y, op(x)) and same_bits(back(y)[0], op.vjp(x, op(x)))
dropped = ln.GlobalMaxPool(2, keepdims=False)
assert jax.typeof(dropped(here)).sharding.spec == P("a", "b")
assert same_bits(jax.jit(jax.grad(lambda x: dropped(x).sum()))(here), dropped.vjp(x, np.ones((4, 4), np.float32)))
try:
    op(jax.device_put(x, NamedSharding(explicit, P("a", None, "b"))))
except ValueError as error:
    assert "axis 2 of shape (4, 4, 8, 8) is pooled, and sharded over 'b'" in str(error), error
else:
    raise AssertionError("no error")
""",
        devices=4,
    )
