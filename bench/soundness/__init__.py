"""What is wrong and what is refused: corpora of rules, damaged files, the test suites of ONNX and of TVM."""
