"""Models in ONNX: `models` reads a file, `shapes` infers sizes, and `operators` has the costs of each operator."""
