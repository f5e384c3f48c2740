"""What the package needs of the operating system: processes beside this one, files that are kept."""
