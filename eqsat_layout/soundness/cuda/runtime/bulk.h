// Copies that the unit for tensor maps does by itself, and the barriers in shared memory that count their bytes.
#pragma once
#include "state.h"

namespace sim {

void clear_bulk();       // a block begins
bool deliver_bulk();     // one copy that somebody waits for has arrived; false: there is none
void check_bulk_ended();  // the block ends, and no copy may be on its way
void check_bulk_waits();  // a fault where threads wait for a barrier that nothing completes
void fence_barriers();   // those that the thread has made are seen by the unit

// Whether `thread` knows that the copy of this number has arrived, by its own wait or a barrier since one's.
bool has_seen_bulk(const Thread& thread, unsigned copy);

}  // namespace sim
