"""The zoo: architectures that nobody tunes to, in families, and the small networks that are written for it."""
