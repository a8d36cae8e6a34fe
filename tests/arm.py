"""Compile kernels for 64-bit ARM, and print their LLVM code and their machine code as JSON.

To be run in a process of its own: `python tests/arm.py train_epoch contract_hats`.
"""

import json
import sys

import llvmlite.binding as llvm
from numba import njit, typeof

from polyadic.kernels import examples, jit, sharing, vectors
from polyadic.kernels.examples import Form

TRIPLE = "aarch64-unknown-linux-gnu"


def arm_code(kernel, args):
    """Return the kernel's LLVM code and its machine code, both as text."""
    options = {**jit._OPTIONS, "fastmath": jit.FAST, "no_cfunc_wrapper": True}
    options["no_cpython_wrapper"] = True  # not called here, and a sixth of the code
    fresh = njit(**options)(kernel.py_func)  # code from the cache cannot be read
    fresh.compile(tuple(typeof(arg) for arg in args))
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(opt=2, jit=False)
    text = fresh.inspect_llvm(fresh.signatures[0])
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = TRIPLE, str(machine.target_data)
    module.verify()
    return text, machine.emit_assembly(module)


def main():
    """Compile as if this machine were not x86."""
    vectors._ON_X86 = sharing._ON_X86 = False
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    found = {k.py_func.__name__: (k, args) for k, args in examples.all_examples([Form()])}
    print(json.dumps({name: arm_code(*found[name]) for name in sys.argv[1:]}))


if __name__ == "__main__":
    main()
