//! Of whom a communicator consists.

use std::sync::{Arc, OnceLock};

use crate::group::{Group, Together};
use crate::transport::across::{Across, Spread};
use crate::transport::fabric::Processes;

/// Ranks of a communicator, in their order in a new one, and what these share of it in this process.
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct Part {
    pub(super) group: Group,
    pub(super) together: Arc<Together>,
    here: OnceLock<Group>,
    spread: OnceLock<Arc<Spread>>,
}

impl Part {
    pub(super) fn of(group: Group) -> Part {
        let (here, spread) = Default::default();
        Part { group, together: Arc::default(), here, spread }
    }

    /// Those that live in this process.
    pub(super) fn here(&self, across: Option<&Across>) -> Group {
        let here = self.here.get_or_init(|| match across {
            None => self.group.clone(),
            Some(across) => {
                let local = across.local();
                Group::of(self.group.iter().filter(|rank| local.contains(rank)))
            }
        });
        here.clone()
    }

    /// How they lie in `processes`, as `rank` sees it, one of them: [`Spread::new`].
    pub(super) fn spread(
        &self,
        across: &Arc<Across>,
        processes: Arc<dyn Processes>,
        at: (u64, usize),
        rank: usize,
        primary: bool,
    ) -> Arc<Spread> {
        let make = || Spread::new(across.clone(), &self.group, processes, at, primary);
        let spread = self.spread.get_or_init(make);
        if rank == spread.now().lead() {
            spread.be_known();
        }
        spread.clone()
    }
}
