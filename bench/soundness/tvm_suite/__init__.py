"""TVM's own tests as a suite: their Relax modules, what becomes of each, and which are TVM's own fault."""
