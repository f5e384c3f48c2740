"""What is planned, compiled and run: real networks with random weights, and generated ones."""
