"""A torch module: compiled by itself, and as a backend of ``torch.compile``. Needs torch."""

import numpy as np
import torch
from torch import nn

import eqsat_layout

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)).eval()
image = torch.randn(1, 16, 32, 32)
with torch.no_grad():
    wanted = model(image).numpy()

# A session: the module is exported with these inputs, and runs without torch from then on.
session = eqsat_layout.Session(model, inputs=(image,))
(name,) = [port.name for port in session.inputs]
(answer,) = session.run(None, {name: image})
print("session      differs by", np.abs(answer - wanted).max())
assert np.allclose(answer, wanted, rtol=1e-3, atol=1e-4)

# A backend: torch finds the graphs, each is compiled once; what can't be compiled torch runs itself.
compiled = torch.compile(model, backend="eqsat_layout")
with torch.no_grad():
    answer = compiled(image).numpy()
print("torch.compile differs by", np.abs(answer - wanted).max())
assert np.allclose(answer, wanted, rtol=1e-3, atol=1e-4)
