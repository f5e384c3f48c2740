"""What a user may give for a program: a path, a model of ONNX or torch, a Relax module; and sizes for its inputs.

Imports ``errors``, ``tir`` and ``readers``. onnx and torch are used where their
objects or files are given, never imported otherwise.
"""
