"""The demo's network as other runtimes take it, so that they can be run beside it.

In: the Relax module of :func:`~eqsat_layout.models.resnet50`, whose few ops are all that is known here. Out: functions
from an array to an array; :class:`ImportError` where a runtime is not installed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax

Array = npt.NDArray[Any]
Runner = Callable[[Array], Array]


@dataclass(frozen=True)
class _Op:
    """One binding: operands are names of earlier ones, or constants."""

    name: str
    kind: str
    operands: tuple[str | Array, ...]
    attrs: Any


def stock_tvm(mod: tvm.IRModule) -> Runner:
    """What ``tvm.compile`` makes of it."""
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    return lambda x: np.asarray(machine["main"](tvm.runtime.tensor(x)).numpy())


def torch(mod: tvm.IRModule) -> Runner:
    """Op by op, as torch runs a model in eager mode."""
    lib = importlib.import_module("torch")
    ops, result = list(_ops(mod)), _result(mod)
    fixed = {id(o): lib.from_numpy(o) for op in ops for o in op.operands if not isinstance(o, str)}
    run: dict[str, Callable[..., Any]] = {
        "relax.nn.conv2d": lambda a, x, w: lib.conv2d(x, w, stride=_ints(a.strides), padding=_ints(a.padding)[:2]),
        "relax.nn.max_pool2d": lambda a, x: lib.max_pool2d(
            x, _ints(a.pool_size), _ints(a.strides), _ints(a.padding)[:2]
        ),
        "relax.nn.relu": lambda a, x: lib.relu(x),
        "relax.mean": lambda a, x: lib.mean(x, dim=_ints(a.axis)),
        "relax.add": lambda a, x, y: x + y,
        "relax.matmul": lambda a, x, y: x @ y,
    }

    def forward(x: Array) -> Array:
        known = {str(mod["main"].params[0].name): lib.from_numpy(x)}
        with lib.inference_mode():
            for op in ops:
                operands = [known[o] if isinstance(o, str) else fixed[id(o)] for o in op.operands]
                known[op.name] = run[op.kind](op.attrs, *operands)
        return np.asarray(known[result].numpy())

    return forward


def onnx_runtime(mod: tvm.IRModule) -> Runner:
    """As an ONNX model."""
    runtime, data = importlib.import_module("onnxruntime"), onnx_model(mod).SerializeToString()
    session = runtime.InferenceSession(data, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda x: np.asarray(session.run(None, {name: x})[0])


def onnx_model(mod: tvm.IRModule) -> Any:
    """The network as an ONNX ``ModelProto``."""
    onnx = importlib.import_module("onnx")
    helper, from_array = onnx.helper, onnx.numpy_helper.from_array
    nodes: list[Any] = []
    constants: list[Any] = []

    def constant(array: Array) -> str:
        constants.append(from_array(array, f"constant_{len(constants)}"))
        return str(constants[-1].name)

    for op in _ops(mod):
        kind, attrs = _ONNX[op.kind]
        inputs = [o if isinstance(o, str) else constant(o) for o in op.operands]
        if op.kind == "relax.mean":
            inputs.append(constant(np.array(_ints(op.attrs.axis), "int64")))
        nodes.append(helper.make_node(kind, inputs, [op.name], name=op.name, **attrs(op.attrs)))
    (param,), out = mod["main"].params, mod["main"].ret_ty
    ports = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [int(e) for e in ty.shape])
        for name, ty in ((str(param.name), param.ty), (_result(mod), out))
    ]
    graph = helper.make_graph(nodes, "resnet50", ports[:1], ports[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


_ONNX: Final[dict[str, tuple[str, Callable[[Any], dict[str, Any]]]]] = {
    "relax.nn.conv2d": ("Conv", lambda a: {"strides": _ints(a.strides), "pads": _ints(a.padding)}),
    "relax.nn.max_pool2d": (
        "MaxPool",
        lambda a: {"kernel_shape": _ints(a.pool_size), "strides": _ints(a.strides), "pads": _ints(a.padding)},
    ),
    "relax.nn.relu": ("Relu", lambda a: {}),
    "relax.mean": ("ReduceMean", lambda a: {"keepdims": int(a.keepdims)}),
    "relax.add": ("Add", lambda a: {}),
    "relax.matmul": ("MatMul", lambda a: {}),
}


def _ops(mod: tvm.IRModule) -> Iterator[_Op]:
    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, relax.Call):
                call = binding.value
                operands = (str(o.name) if isinstance(o, relax.Var) else o.value.numpy() for o in call.args)
                yield _Op(str(binding.var.name), str(call.op.name), tuple(operands), call.attrs)


def _result(mod: tvm.IRModule) -> str:
    """The name of the last op: what follows are variables that stand for it."""
    return list(_ops(mod))[-1].name


def _ints(values: Sequence[Any]) -> list[int]:
    return [int(v) for v in values]


PEERS: Final[dict[str, Callable[[tvm.IRModule], Runner]]] = {"ONNX Runtime": onnx_runtime, "torch": torch}
"""Runtimes that may be installed, by the names that people know."""
