"""A torch network with cuDNN's fused calls: a convolution, its bias, maybe a sum with something else, and a ReLU.

In: a network that torch's tracer has followed, its batch norms folded. Out: the same with as many of these calls as
there are such places. They run on a card only.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any, Final

_RELU: Final = ("relu", "relu_", "relu_default", "ReLU")
_SUMS: Final = (operator.add, operator.iadd)


def with_fused_calls(network: Any) -> int:
    """How many there are now; ``network`` is changed."""
    import torch

    graph, count = network.graph, 0
    modules = dict(network.named_modules())
    for node in list(graph.nodes):
        conv = modules.get(node.target) if node.op == "call_module" else None
        if not isinstance(conv, torch.nn.Conv2d) or conv.bias is None or not isinstance(conv.padding, tuple):
            continue
        between, last = _follower(node, modules)
        if last is None or conv.padding_mode != "zeros":
            continue
        with graph.inserting_before(last):
            weight, bias = (graph.get_attr(f"{node.target}.{name}") for name in ("weight", "bias"))
            said = (conv.stride, conv.padding, conv.dilation, conv.groups)
            if between is None:
                call, given = torch.cudnn_convolution_relu, [node.args[0], weight, bias, *said]
            else:
                (other,) = (one for one in between.args[:2] if one is not node)
                call, given = torch.cudnn_convolution_add_relu, [node.args[0], weight, other, 1.0, bias, *said]
            fused = graph.call_function(call, tuple(given))
        last.replace_all_uses_with(fused)
        for gone in filter(None, (last, between, node)):
            graph.erase_node(gone)
        count += 1
    network.recompile()
    return count


def _follower(node: Any, modules: Any) -> tuple[Any, Any]:
    """The sum that only reads ``node``, if there is one, and the ReLU after it; ``None`` for no ReLU."""
    users = list(node.users)
    if len(users) != 1:
        return None, None
    user = users[0]
    if _is_relu(user, modules):
        return None, user
    is_sum = user.op == "call_function" and user.target in (*_SUMS, *_torch_sums()) and len(user.args) == 2
    both = is_sum and len(user.all_input_nodes) == 2 and not user.kwargs
    readers = [*user.users] if both else []
    return (user, readers[0]) if len(readers) == 1 and _is_relu(readers[0], modules) else (None, None)


def _torch_sums() -> Iterator[Any]:
    import torch

    yield torch.add


def _is_relu(node: Any, modules: Any) -> bool:
    if node.op == "call_module":
        return type(modules[node.target]).__name__ in _RELU
    return getattr(node.target, "__name__", node.target) in _RELU
