#!/usr/bin/env bash
# triton 3.7.1: `do_not_specialize` does not reach into a tuple. A kernel that takes its sizes as one tuple is compiled again
# for each of them that is 1 or a multiple of 16, although the tuple's name is in the list.
#
# One guesses that a name in `do_not_specialize` holds for all that its argument contains, as it does for a plain integer. The
# key of a compiled kernel is computed here as a launch computes it, which needs no GPU (`triton.runtime.jit`); '' is any
# integer, 'D' a multiple of 16, and a constexpr the very number. Triton 3.6 and 3.9 do so too.
#
# Seen: 7, (7, 7)    i32 None        · ('i32', 'i32') ('', '')
#       1, (1, 1)    i32 None        · ('constexpr', 'constexpr') (1, 1)
#       16, (16, 7)  i32 None        · ('i32', 'i32') ('D', '')
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet triton==3.7.1
cat >"$folder/tuples.py" <<'PYTHON'
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend
from triton.runtime import jit


@triton.jit(do_not_specialize=["plain", "sizes"])
def kernel(plain, sizes, output):
    tl.store(output, plain + sizes[0] + sizes[1])


backend = make_backend(GPUTarget("cuda", 90, 32))
key_of = jit.create_function_from_signature(kernel.signature, kernel.params, backend)
expected = {
    (7, (7, 7)): (("i32", "i32"), ("", "")),
    (1, (1, 1)): (("constexpr", "constexpr"), (1, 1)),
    (16, (16, 7)): (("i32", "i32"), ("D", "")),
}
for (plain, sizes), in_tuple in expected.items():
    as_integer, as_tuple, _ = key_of(plain, sizes, 0, debug=False)[1]
    print(f"{plain}, {sizes}", *as_integer, "·", *as_tuple)
    assert as_integer == ("i32", None), "a plain integer is specialized"
    assert as_tuple == in_tuple, "tuples are treated in another way"
PYTHON
"$folder/venv/bin/python" "$folder/tuples.py"
