//! What workers do, whatever it is.

use crossbeam_deque::Steal;

/// Something that a worker does.
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct Job {
    what: *const (),
    act: Act,
}

/// Does something with what a job is of.
pub(crate) type Act = unsafe fn(*const (), Ask) -> *const ();

/// What a job is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    /// To be done.
    Run,
    /// To fail, as there is no stack for it.
    Fail,
    /// To which group it belongs, if to one.
    Group,
}

// SAFETY: what it does may be done on any thread (the contract of `Job::new`).
unsafe impl Send for Job {}

impl Job {
    /// # Safety
    /// `act` may be called with `what` and `Run` or `Fail` once, on any thread, whenever that may be, and
    /// with `Group` before that.
    pub(crate) unsafe fn new(what: *const (), act: Act) -> Job {
        Job { what, act }
    }

    pub(crate) fn is(&self, what: *const ()) -> bool {
        self.what == what
    }

    /// To which group it belongs, if to one.
    pub(crate) fn group(&self) -> *const () {
        // SAFETY: as `Job::new` was told; it has not been run.
        unsafe { (self.act)(self.what, Ask::Group) }
    }

    pub(crate) fn run(self) {
        // SAFETY: as `Job::new` was told; it is called once, as this takes the job.
        unsafe { (self.act)(self.what, Ask::Run) };
    }

    /// Has it fail with [`NO_STACK`].
    pub(crate) fn fail(self) {
        // SAFETY: as above.
        unsafe { (self.act)(self.what, Ask::Fail) };
    }
}

/// Why a job fails for which the system has no stack.
pub(crate) const NO_STACK: &str = "the system has no memory for the stack of a task, or refuses a thread for it; fewer may wait at a time (SPMD_STACK_SIZE=bytes)";

/// What `steal` gives, asked again as long as others are in its way.
pub(crate) fn taken(steal: impl Fn() -> Steal<Job>) -> Option<Job> {
    loop {
        match steal() {
            Steal::Success(job) => return Some(job),
            Steal::Empty => return None,
            Steal::Retry => std::hint::spin_loop(),
        }
    }
}
