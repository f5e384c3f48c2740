#include "device.h"  // nothing of nvcuda::wmma: whose use is an error of the compiler
