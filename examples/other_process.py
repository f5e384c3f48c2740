"""A library: compiled here, opened and run in another process, which needs neither the model nor its weights."""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import eqsat_layout
from eqsat_layout.models import resnet50

SERVER = """
import sys
import numpy as np
import eqsat_layout

library, image, answer = sys.argv[1:]
session = eqsat_layout.Session(library)
np.save(answer, session.run(None, {"x": np.load(image)})[0])
"""

with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    session = eqsat_layout.Session(resnet50(image=32, width=16, blocks=(1, 1, 1, 1)))
    session.save(folder / "model.so")

    image = np.random.default_rng(0).standard_normal((1, 3, 32, 32), dtype=np.float32)
    np.save(folder / "image.npy", image)
    files = [folder / "model.so", folder / "image.npy", folder / "answer.npy"]
    subprocess.run([sys.executable, "-c", SERVER, *map(str, files)], check=True)

    theirs, ours = np.load(folder / "answer.npy"), session.run(None, {"x": image})[0]
print("the other process answers", theirs.shape, "and differs by", np.abs(theirs - ours).max())
assert np.array_equal(theirs, ours)
