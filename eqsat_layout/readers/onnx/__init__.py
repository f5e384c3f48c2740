"""What reads ONNX models."""
