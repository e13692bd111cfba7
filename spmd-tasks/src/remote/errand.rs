//! Something that a rank was asked to do, and that may be called off.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use parking_lot::Mutex;

/// Something that a rank was asked to do, as both ranks have it.
#[derive(Default)]
pub(crate) struct Errand {
    is_cancelled: AtomicBool,
    /// Tells the one who was asked.
    tell: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Errand {
    pub(crate) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(SeqCst)
    }

    /// Nobody wants it any more: whoever was asked, or is going to be, is told.
    pub(crate) fn cancel(&self) {
        self.is_cancelled.store(true, SeqCst);
        self.tell_once();
    }

    /// Somebody was asked, who is told by this.
    pub(crate) fn is_asked(&self, tell: impl FnOnce() + Send + 'static) {
        *self.tell.lock() = Some(Box::new(tell));
        if self.is_cancelled() {
            self.tell_once();
        }
    }

    fn tell_once(&self) {
        // Not locked meanwhile.
        let tell = self.tell.lock().take();
        tell.into_iter().for_each(|tell| tell());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;

    #[test]
    fn who_was_asked_is_told_once() {
        for is_asked_first in [true, false] {
            let (errand, told) = (Errand::default(), Arc::new(AtomicUsize::new(0)));
            let tells = told.clone();
            let tell = move || _ = tells.fetch_add(1, Relaxed);
            match is_asked_first {
                true => errand.is_asked(tell),
                false => errand.cancel(),
            }
            assert_eq!((told.load(Relaxed), errand.is_cancelled()), (0, !is_asked_first));
            let (told_again, tells) = (told.clone(), told.clone());
            match is_asked_first {
                true => errand.cancel(),
                false => errand.is_asked(move || _ = tells.fetch_add(1, Relaxed)),
            }
            errand.cancel();
            assert_eq!((told_again.load(Relaxed), errand.is_cancelled()), (1, true));
        }
    }
}
