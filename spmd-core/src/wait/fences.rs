//! The fence between a change and a look at what another agent announces, in two strengths.

use crate::sync::atomic::{Ordering::SeqCst, fence};

/// How the two sides of a protocol order their own store before their load of what the other side
/// stores, so that not both of them miss the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fences {
    /// Each side executes a full fence.
    Symmetric,
    /// The side that comes by often executes none; the other has the kernel execute one on every
    /// core that runs a thread of the ranks (`membarrier`), just before it goes to sleep, say.
    #[cfg(target_os = "linux")]
    Asymmetric(FenceScope),
}

/// Whose cores the kernel is to reach.
#[cfg(target_os = "linux")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FenceScope {
    Process,
    /// Those of all processes that have registered.
    Processes,
}

impl Fences {
    /// For ranks in this process, or in several, that have a core each (`alone`) or not: where
    /// they share cores they sleep so often that their own fences are cheaper.
    #[cfg(target_os = "linux")]
    pub(crate) fn new(processes: bool, alone: bool) -> Fences {
        use rustix::thread::{MembarrierCommand as Command, membarrier};
        let (register, reach) = if processes {
            (Command::RegisterGlobalExpedited, FenceScope::Processes)
        } else {
            (Command::RegisterPrivateExpedited, FenceScope::Process)
        };
        if alone && membarrier(register).is_ok() {
            Fences::Asymmetric(reach)
        } else {
            Fences::Symmetric
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn new(_processes: bool, _alone: bool) -> Fences {
        Fences::Symmetric
    }

    /// The fence of the side that comes by often.
    #[inline(always)]
    pub(crate) fn light(self) {
        match self {
            Fences::Symmetric => fence(SeqCst),
            #[cfg(target_os = "linux")]
            Fences::Asymmetric(_) => std::sync::atomic::compiler_fence(SeqCst),
        }
    }

    /// The fence of the other side. False if the kernel refuses it: registered as it is, it can do
    /// so for want of some bytes of memory, or because the program has forbidden itself the call.
    pub(crate) fn heavy(self) -> bool {
        fence(SeqCst);
        #[cfg(target_os = "linux")]
        if let Fences::Asymmetric(reach) = self {
            use rustix::thread::{MembarrierCommand as Command, membarrier};
            let command = match reach {
                FenceScope::Process => Command::PrivateExpedited,
                FenceScope::Processes => Command::GlobalExpedited,
            };
            return (0..100).any(|_| {
                let executed = membarrier(command).is_ok();
                if !executed {
                    std::thread::yield_now();
                }
                executed
            });
        }
        true
    }
}
