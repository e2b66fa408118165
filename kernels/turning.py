"""Sixteen rows by sixteen columns of a table, turned in registers: a load, four shuffles and a store for sixteen values, where
one value at a time takes a load and a store.

    step d = 1, 2, 4, 8        of vectors i and i + d, where i lacks the bit d, lanes l + d and l change places
                               (l lacks it, too): row i keeps column l, and takes from row i + d its column l
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

__all__ = ["TILE", "can_turn", "turn_tile"]

TILE = 16

_BYTE, _WORD, _PLACE = map(ir.IntType, (8, 32, 64))
_LANES = ir.VectorType(_WORD, TILE)


@intrinsic
def can_turn(typing_context, table):
    """Whether turn_tile takes a table: of float32, the values of each row side by side."""

    def codegen(context, builder, signature, args):
        (of,) = signature.args
        if of.dtype != types.float32:
            return ir.IntType(1)(0)
        strides = context.make_array(of)(context, builder, args[0]).strides
        return builder.icmp_signed("==", builder.extract_value(strides, 1), _PLACE(_LANES.element.width // 8))

    return types.boolean(table), codegen


@intrinsic
def turn_tile(typing_context, rows, column, target, place, step):
    """target[place + k · step :][:16] = the bits of column + k of sixteen rows, for each k below 16.

    rows : float32 (at least 16, at least column + 16), IN. target : uint32, or float32 for the values (at least place + 15 · step
    + 16 of them), OUT. Nothing, unless can_turn(rows).
    """

    def codegen(context, builder, signature, args):
        if signature.args[0].dtype == types.float32:
            table, out = (context.make_array(signature.args[k])(context, builder, args[k]) for k in (0, 2))

            def lanes(place):
                return builder.bitcast(place, _LANES.as_pointer())

            row_bytes = builder.extract_value(table.strides, 0)
            first = builder.bitcast(builder.gep(table.data, [args[1]]), _BYTE.as_pointer())
            starts = [builder.gep(first, [builder.mul(row_bytes, _PLACE(row))]) for row in range(TILE)]
            columns = _turned(builder, [builder.load(lanes(start), align=4) for start in starts])
            for k, values in enumerate(columns):
                at = builder.add(args[3], builder.mul(args[4], _PLACE(k)))
                builder.store(values, lanes(builder.gep(out.data, [at])), align=4)
        return context.get_dummy_value()

    return types.none(rows, types.int64, target, types.int64, types.int64), codegen


def _turned(builder, rows):
    """Sixteen vectors, of which vector i holds lane i of each of those given."""
    vectors = list(rows)
    for d in (1, 2, 4, 8):
        stays = [lane if not lane & d else TILE + lane - d for lane in range(TILE)]
        comes = [lane + d if not lane & d else TILE + lane for lane in range(TILE)]
        for i in range(TILE):
            if not i & d:
                pair = vectors[i], vectors[i + d]
                vectors[i], vectors[i + d] = (builder.shuffle_vector(*pair, ir.Constant(_LANES, of)) for of in (stays, comes))
    return vectors
