//! How a sender that finds its ring full has the receiver make room.
//!
//! Rings are emptied by who receives. A rank that waits for something else looks at none of them;
//! so the sender leaves a request at the receiver's bell, then rings it, and whoever waits there
//! looks for a request before it sleeps. There is one request for all senders: a scan of the rings
//! serves all of them.

use std::sync::atomic::Ordering::*;

use super::endpoint::Endpoint;
use super::world::World;
use crate::sync::atomic::{AtomicU32, fence};

/// Sender, after its ring was full: asks for room. Whether it is to ring: not if a request lies
/// there already.
///
/// Of the two fences, here and in [`take`], one comes first. If this one, the receiver that takes
/// the request that this call saw or made sees all that was in the ring before; if the other, this
/// call sees that the earlier request was taken, and makes another.
fn ask(request: &AtomicU32) -> bool {
    fence(SeqCst);
    if request.load(Relaxed) != 0 {
        return false;
    }
    request.store(1, Release);
    true
}

/// Receiver: takes the request, if there is one. The rings are read after this.
fn take(request: &AtomicU32) -> bool {
    if request.load(Relaxed) == 0 {
        return false;
    }
    request.swap(0, AcqRel);
    fence(SeqCst);
    true
}

impl World {
    /// Has `receiver` make room, now if it waits, else when it next does.
    #[cold]
    pub(super) fn ask_for_room(&self, receiver: usize) {
        if ask(&self.memory.bell(receiver).crowded) {
            self.bell(receiver).ring();
        }
    }
}

impl Endpoint {
    /// Takes what lies in the rings to this rank, if a sender has asked for room. Whether one has.
    #[inline]
    pub(crate) fn make_room(&self) -> bool {
        let asked = take(&self.world.memory.bell(self.rank).crowded);
        if asked {
            self.collect_all();
        }
        asked
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::sync::atomic::AtomicU64;
    use loom::sync::Arc;
    use loom::thread;

    /// Two senders with a full ring each: whatever they do at once, a receiver that serves every
    /// request that it finds has seen both rings full in the end.
    #[test]
    fn loom_no_request_is_lost() {
        loom::model(|| {
            let request = Arc::new(AtomicU32::new(0));
            let rings = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
            let senders: Vec<_> = (0..2)
                .map(|sender| {
                    let (request, rings) = (request.clone(), rings.clone());
                    thread::spawn(move || {
                        rings[sender].store(1, Release);
                        ask(&request);
                    })
                })
                .collect();
            let mut seen = [0; 2];
            let mut serve = || {
                if take(&request) {
                    (0..2).for_each(|ring| seen[ring] |= rings[ring].load(Acquire));
                }
            };
            serve();
            senders.into_iter().for_each(|sender| sender.join().unwrap());
            serve();
            assert_eq!(seen, [1, 1]);
        });
    }
}
