#include "device.h"  // all that the simulator has of this header
