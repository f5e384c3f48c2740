"""What a module of a file may not do, whatever it was read from."""
