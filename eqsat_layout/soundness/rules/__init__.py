"""Rules under test: models and their meanings, matches, the prover, mutations, and what is said of each rule."""
