//! What a rank uses beside the library, a device say, may be lost while the rank waits for others: who
//! waits for what it was to do would wait for ever, as nobody else can see that.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::error::Result;

/// What a rank looks after in its waits.
pub trait Health: Send + Sync {
    /// Looks whether it still works, without a wait, on any thread, some times a second.
    ///
    /// Errors: it does not, of which the program is to be told now. It ends the rank's wait.
    fn check(&self) -> Result<()>;
}

/// All that a rank looks after: a device or two.
#[derive(Default)]
pub(crate) struct LookedAfter(Mutex<Vec<Weak<dyn Health>>>);

impl LookedAfter {
    /// It is looked after from now on, as long as it lives.
    pub(crate) fn add(&self, it: &Arc<dyn Health>) {
        let mut all = self.0.lock();
        all.retain(|known| known.strong_count() > 0);
        if !all.iter().any(|known| std::ptr::addr_eq(known.as_ptr(), Arc::as_ptr(it))) {
            all.push(Arc::downgrade(it));
        }
    }

    /// Looks after all of it.
    ///
    /// Errors: that of the first that does not work any more.
    pub(super) fn check(&self) -> Result<()> {
        let all: Vec<Arc<dyn Health>> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        all.iter().map(|it| it.check()).fold(Ok(()), Result::and)
    }
}
