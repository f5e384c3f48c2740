"""Random programs: what they are made of, how they are written, run and compared, and shrunk where they differ."""
