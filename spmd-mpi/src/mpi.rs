//! The one MPI of this process: who may call it, and its end.

use std::ffi::c_int;
use std::ops::Deref;
use std::process;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use spmd_core::{Error, Result};

use crate::handles::{Comm, Errhandler};
use crate::heard;
use crate::library::{Constants, Library, raise};
use crate::ulfm::{self, Survival};

/// How long the end of the process waits for a thread that is inside MPI.
pub const PATIENCE: Duration = Duration::from_millis(500);

/// An initialised library. MPI is asked for calls from one thread at a time, which costs less than
/// calls from all: one lock is held around each.
pub struct Mpi {
    library: Library,
    handler: Errhandler,
    /// How to go on when processes fail, if that has been asked for.
    survival: Option<Survival>,
    /// Whether it takes memory of devices.
    takes_devices: bool,
    /// Whether MPI may be called still.
    open: Mutex<bool>,
    /// Whether the process is being ended by force: then nothing is finalised.
    aborting: AtomicBool,
}

/// The right to call MPI, while it lives.
pub struct Calls<'a> {
    mpi: &'a Mpi,
    open: MutexGuard<'a, bool>,
}

impl Deref for Calls<'_> {
    type Target = Library;

    #[inline(always)]
    fn deref(&self) -> &Library {
        &self.mpi.library
    }
}

impl Mpi {
    /// Initialises `library`, unless the program has done so. Says whether it was done here.
    pub fn initialise(library: Library) -> Result<(Mpi, bool)> {
        let (mut initialised, mut finalised) = (0, 0);
        // SAFETY: these may be called at any time; the flags are writable.
        unsafe {
            library.initialized(&mut initialised)?;
            library.finalized(&mut finalised)?;
        }
        if finalised != 0 {
            return Err(closed(&library));
        }
        let survival = Survival::find().filter(|_| Survival::is_wanted());
        let least = library.constants.thread_serialized;
        let wanted = match survival {
            Some(_) => library.constants.thread_multiple,
            None => least,
        };
        let mut level = wanted;
        let ours = initialised == 0;
        if ours {
            // SAFETY: MPI is not initialised, and no other thread initialises it: `attach` has a
            // lock. It needs no arguments.
            unsafe {
                library.init_thread(ptr::null_mut(), ptr::null_mut(), wanted, &mut level)?;
            }
        } else {
            // SAFETY: MPI is initialised.
            unsafe { library.query_thread(&mut level)? };
        }
        if level < least {
            return Err(Error::unavailable(
                format!("{} for several threads", library.name),
                "it was initialised for a thread level below MPI_THREAD_SERIALIZED".into(),
                "initialise it by MPI_Init_thread with MPI_THREAD_SERIALIZED, leave that to \
                         spmd, or use a library that has this level"
                    .into(),
            ));
        }
        let mut handler = Errhandler::unset();
        // SAFETY: MPI is initialised, and `raise` has the prototype of a handler.
        unsafe { library.comm_create_errhandler(raise, &mut handler)? };
        // Agreements wait inside MPI while other threads call it.
        let several = level >= library.constants.thread_multiple;
        let survival = survival.filter(|survival| several && survival.is_enabled());
        let (open, aborting) = (Mutex::new(true), AtomicBool::new(false));
        // Before it is initialised, Intel MPI ends the process that asks.
        let takes_devices = library.query.is_some_and(|query| query() == 1);
        let mpi = Mpi { library, handler, survival, takes_devices, open, aborting };
        if ours {
            // A program that initialises MPI itself keeps its own choice for these two.
            let calls = mpi.calls()?;
            calls.return_errors(calls.constants.comm_world)?;
            calls.return_errors(calls.constants.comm_self)?;
        }
        Ok((mpi, ours))
    }

    /// What the library was built with can be known without the right to call it.
    #[inline]
    pub fn constants(&self) -> &Constants {
        &self.library.constants
    }

    /// The library's name, for people.
    pub fn name(&self) -> &str {
        &self.library.name
    }

    /// Whether it takes memory of devices.
    pub fn takes_devices(&self) -> bool {
        self.takes_devices
    }

    /// How to go on when processes fail, if that has been asked for, and the library for calls
    /// that other threads make theirs beside.
    pub fn survival(&self) -> Option<(&Survival, &Library)> {
        self.survival.as_ref().map(|survival| (survival, &self.library))
    }

    /// The right to call MPI. Waits for a thread that has it.
    #[inline]
    pub fn calls(&self) -> Result<Calls<'_>> {
        let open = self.open.lock();
        if *open { Ok(Calls { mpi: self, open }) } else { Err(closed(&self.library)) }
    }

    /// The right to call MPI, to end it: none if it has ended, or a thread stays inside it.
    pub fn last_calls(&self) -> Option<Calls<'_>> {
        if self.aborting.load(Ordering::Relaxed) {
            return None;
        }
        let open = self.open.try_lock_for(PATIENCE)?;
        if *open { Some(Calls { mpi: self, open }) } else { None }
    }

    /// Finalises MPI, after [`Calls::close`].
    pub fn finalise(&self) {
        // SAFETY: nobody else calls MPI any more. An error could be told to nobody.
        let _ = unsafe { self.library.finalize() };
    }

    /// Ends all processes.
    pub fn abort(&self, status: i32) -> ! {
        self.aborting.store(true, Ordering::Relaxed);
        // A thread that waits inside MPI must not keep it from ending: then it is called beside
        // that thread, which the standard does not allow, but nothing is left that could be lost.
        let _calls = self.open.try_lock_for(PATIENCE);
        if self.survival.is_some() {
            ulfm::wait_for_turn(&self.library);
        }
        heard::until_taken();
        // SAFETY: this is the world's communicator.
        let _ = unsafe { self.library.abort(self.library.constants.comm_world, status) };
        process::abort()
    }
}

impl Calls<'_> {
    /// Whether others may go on when a process fails.
    pub fn survives(&self) -> bool {
        self.mpi.survival.is_some()
    }

    /// What the function `call` has answered, which is for one other process: whether that lives.
    #[inline(always)]
    pub fn check_sent(&self, call: &'static str, code: c_int) -> Result<bool> {
        if self.survives() {
            self.check_survived(call, code)
        } else {
            self.check(call, code).map(|()| true)
        }
    }

    /// After [`Calls::check_sent`] has said that a process has failed: lets `comm` receive from any
    /// of the others.
    pub fn acknowledge(&self, comm: Comm) -> Result<()> {
        match &self.mpi.survival {
            Some(survival) => {
                let (_, all) = self.rank_and_size(comm)?;
                survival.acknowledge(self, comm, all)
            }
            None => Ok(()),
        }
    }

    /// Runs `wait`, which waits inside MPI for other processes. Where these may fail, other threads
    /// may call MPI meanwhile, to end that.
    pub fn waiting<T>(&mut self, wait: impl FnOnce(&Library) -> T) -> T {
        let library = &self.mpi.library;
        match self.survives() {
            true => MutexGuard::unlocked(&mut self.open, || wait(library)),
            false => wait(library),
        }
    }

    /// Lets nobody call MPI any more.
    pub fn close(mut self) {
        *self.open = false;
    }

    /// Makes errors of this communicator values; they end the process otherwise.
    pub fn return_errors(&self, comm: Comm) -> Result<()> {
        // SAFETY: the communicator and the handler are valid.
        unsafe { self.comm_set_errhandler(comm, self.mpi.handler) }
    }

    /// A private copy of a communicator, made together with its other processes.
    pub fn duplicate(&self, comm: Comm) -> Result<Comm> {
        let mut new = comm;
        // SAFETY: the communicator is valid, `new` writable.
        unsafe { self.comm_dup(comm, &mut new)? };
        self.return_errors(new)?;
        Ok(new)
    }

    /// The calling process in a communicator, and how many there are.
    pub fn rank_and_size(&self, comm: Comm) -> Result<(usize, usize)> {
        let (mut rank, mut size): (c_int, c_int) = (0, 0);
        // SAFETY: the communicator is valid, the numbers writable.
        unsafe {
            self.comm_rank(comm, &mut rank)?;
            self.comm_size(comm, &mut size)?;
        }
        Ok((rank as usize, size as usize))
    }
}

#[cold]
fn closed(library: &Library) -> Error {
    Error::unavailable(
        library.name.clone(),
        "MPI has been finalised in this process".to_owned(),
        "call MPI_Finalize after all ranks have ended, or leave it to spmd".to_owned(),
    )
}
