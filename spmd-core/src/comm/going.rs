//! What goes on while its rank does something else, as requests and scopes hold it.

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::pooled::Pooled;
use crate::transport::shared::Endpoint;
use crate::wait::{self, AgentKey, Completion};

/// A call or a message that goes on, whether anybody holds this or not.
pub(super) trait Going {
    fn completion(&self) -> &Completion;

    /// Whether it is over, as far as is known.
    fn is_over(&self) -> bool {
        self.completion().is_over()
    }

    /// Who has started it.
    fn agent(&self) -> AgentKey;

    /// Goes on with what whoever runs here has started. Whether this is over.
    fn test(&self) -> bool;

    /// The same for who has awaited it for so long, and asks only when something may have happened.
    fn test_awaited(&self, _waited: Duration) -> bool {
        self.test()
    }

    /// Where the bell hangs that is rung for it; nowhere if it is over.
    fn endpoint(&self) -> Option<Arc<Endpoint>>;

    /// Whether whoever runs here, who has started this or not, can wait for it.
    ///
    /// Errors: it is not over, and another agent has started it; a virtual rank panics.
    fn check_own(&self) -> Result<()> {
        if self.is_over() {
            return Ok(());
        }
        let wrong = match self.agent() == wait::agent() {
            false => "a request belongs to the rank or thread that has started it",
            true if wait::cannot_wait() => {
                "a rank that is panicking cannot wait for others; don't communicate in Drop"
            }
            true => return Ok(()),
        };
        Err(Error::argument(format!("{}: {wrong}", self.described())))
    }

    /// Waits until it is over.
    ///
    /// Errors: another agent has started it.
    fn until_over(&self) -> Result<()>;

    /// Who can bring it about, as a number: equal ones can wait for the end of any of them as one.
    fn releasers(&self) -> u64;

    /// Waits until `over`, which what the agent has started brings about, this among others: all of
    /// them `alike` in [`Going::releasers`], or not.
    ///
    /// Errors: whoever runs here cannot wait for it any longer, though it goes on.
    fn until_any(&self, alike: bool, over: &dyn Fn() -> bool) -> Result<()>;

    /// What went wrong with it, which is over, if nobody knows. A panic goes on here.
    fn failure(&self) -> Result<()>;

    /// Whether it is over, and nobody has to know more.
    fn is_settled(&self) -> bool;

    /// Ends it, whatever happens: where its rank panics, it gives up.
    fn end(&self);

    /// Takes a receive back to which no message has come. Whether it has.
    fn cancel(&self) -> bool {
        false
    }

    /// The call, in words.
    fn described(&self) -> String;

    /// Of one whose failure has been told: that it was.
    fn told(&self) -> Error {
        Error::argument(format!("{}: it has failed, which was told before", self.described()))
    }
}

/// It, as whatever goes on.
pub(super) fn goes<'a>(it: Pooled<impl Going + 'a>) -> Pooled<dyn Going + 'a> {
    // SAFETY: the same pointer.
    unsafe { it.unsize(|it| it as NonNull<dyn Going + 'a>) }
}
