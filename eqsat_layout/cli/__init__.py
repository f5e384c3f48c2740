"""The commands of ``eqsat-layout``. Heavy rooms are imported by the commands that need them.

Imports every other room; nothing imports it.
"""
