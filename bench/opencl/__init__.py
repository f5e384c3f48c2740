"""Programs for OpenCL devices: what they launch, move and hold, beside the policies of other engines and TVM's."""
