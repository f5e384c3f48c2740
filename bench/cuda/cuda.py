"""CUDA without a card and with one: tables of what programs launch, and bundles that are measured on a card.

    python bench/cuda.py NETWORK... --no-device          what is launched, beside the machine's floor
    python bench/cuda.py NETWORK... --bundle FOLDER      a folder for a machine with a card: see bundles/write.py
    python FOLDER/run_bundle.py --json result.json       there: all that is measured

In: names of networks, precisions and a machine. Out: tables and, with ``--json``, the rows; or the folder. The ten
networks of zoo.py need the dependency group ``bench``; ``--small`` gives them smaller inputs. ``--simulate`` runs
programs on the simulator and compares them with the CPU. Nothing here is measured: seconds are those of the model.
"""

# Other scripts of this folder import torch, which looks for CUDA's bindings under this name: nothing is done then.
if __name__ == "__main__":
    from cuda_command import main

    main()
