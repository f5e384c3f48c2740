"""Programs for CUDA: what they launch, by the model; and bundles, by which a card is measured."""
