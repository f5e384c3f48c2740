import onnx, numpy as np
from onnx import parser, numpy_helper
