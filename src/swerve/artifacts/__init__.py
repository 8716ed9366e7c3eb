"""Everything that touches the disk: atomic files, manifests, tables and the run directory. Free of torch."""
