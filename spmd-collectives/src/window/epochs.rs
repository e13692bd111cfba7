//! Epochs (MPI 5.0 section 12.5): between which calls a rank may access the parts of others.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::Location;

use spmd_core::internal::{Call, Form, Kind};
use spmd_core::{Error, Result};

type Site = &'static Location<'static>;

/// What a rank has the parts of others open by.
#[derive(Clone, Copy)]
enum Epoch {
    None,
    /// A fence at this place. There is an epoch once there is an access.
    Fence(Site),
    /// `lock_all` at this place.
    All(Site),
}

/// A lock of one part.
#[derive(Clone, Copy)]
struct Held {
    exclusive: bool,
    site: Site,
}

/// No rank.
const NONE: usize = usize::MAX;

/// The epochs of one rank at one window.
pub(super) struct Epochs {
    epoch: Cell<Epoch>,
    /// All parts are open.
    open: Cell<bool>,
    /// The part that is locked and was used last, or [`NONE`].
    recent: Cell<usize>,
    locks: RefCell<BTreeMap<usize, Held>>,
    /// How many of them are exclusive.
    exclusive: Cell<usize>,
    /// What ended the last epoch.
    ended: Cell<Option<(Kind, Form, Site)>>,
    /// Updates are being gathered since this call.
    gathering: Cell<Option<Site>>,
}

impl Epochs {
    pub(super) fn new() -> Epochs {
        Epochs {
            epoch: Cell::new(Epoch::None),
            open: Cell::new(false),
            recent: Cell::new(NONE),
            locks: RefCell::default(),
            exclusive: Cell::new(0),
            ended: Cell::new(None),
            gathering: Cell::new(None),
        }
    }

    /// Whether the part of a rank is open.
    #[inline(always)]
    pub(super) fn permit(&self, target: usize) -> bool {
        self.open.get() || self.recent.get() == target || self.looked_up(target)
    }

    #[cold]
    fn looked_up(&self, target: usize) -> bool {
        match self.epoch.get() {
            Epoch::Fence(_) => self.open.set(true),
            _ if self.locks.borrow().contains_key(&target) => self.recent.set(target),
            _ => return false,
        }
        true
    }

    /// What is said of an access that is not permitted.
    #[cold]
    pub(super) fn outside(&self, call: &Call<'_>, target: usize) -> Error {
        let ended = match (self.ended.get(), self.locks.borrow().iter().next()) {
            (_, Some((other, held))) => {
                format!("rank {other} is locked, at {}, and rank {target} is not", held.site)
            }
            (Some((kind, form, site)), None) => {
                let name = name(kind, form);
                format!("the last one was ended by {name} at {}:{}", site.file(), site.line())
            }
            (None, None) => "there was none yet".into(),
        };
        let what = "it is outside of an epoch";
        Error::epoch(call, format!("{what} ({ended}); call fence, lock or lock_all before it"))
    }

    /// Whether a fence may be called now.
    pub(super) fn may_fence(&self, call: &Call<'_>) -> Result<()> {
        self.not_gathering(call)?;
        self.not_locked(call)
    }

    /// A fence has ended one epoch, and begun the next.
    pub(super) fn fenced(&self, call: &Call<'_>) {
        self.end(call);
        self.epoch.set(Epoch::Fence(call.site));
    }

    /// Whether one part may be locked now.
    pub(super) fn may_lock(&self, call: &Call<'_>, target: usize) -> Result<()> {
        self.no_fence_epoch(call)?;
        if let Epoch::All(site) = self.epoch.get() {
            return Err(Error::epoch(call, format!("all ranks are locked since {site}")));
        }
        if let Some(held) = self.locks.borrow().get(&target) {
            let why = format!("rank {target} is locked by this rank since {}", held.site);
            return Err(Error::epoch(call, why));
        }
        Ok(())
    }

    /// One part is locked.
    pub(super) fn locked(&self, target: usize, exclusive: bool, site: Site) {
        self.epoch.set(Epoch::None);
        self.locks.borrow_mut().insert(target, Held { exclusive, site });
        self.exclusive.set(self.exclusive.get() + usize::from(exclusive));
        self.recent.set(target);
    }

    /// How many parts this rank has locked exclusively.
    pub(super) fn exclusive(&self) -> usize {
        self.exclusive.get()
    }

    /// Ends the lock of a part; whether it was exclusive.
    pub(super) fn unlock(&self, call: &Call<'_>, target: usize) -> Result<bool> {
        self.not_gathering(call)?;
        let held = self.locks.borrow_mut().remove(&target);
        let held = held.ok_or_else(|| {
            let why = match self.epoch.get() {
                Epoch::All(site) => {
                    format!("all ranks are locked together, at {site}: unlock_all ends that")
                }
                _ => format!("rank {target} is not locked{}", self.last_end()),
            };
            Error::epoch(call, why)
        })?;
        self.exclusive.set(self.exclusive.get() - usize::from(held.exclusive));
        self.end(call);
        Ok(held.exclusive)
    }

    /// Whether all parts may be locked now.
    pub(super) fn may_lock_all(&self, call: &Call<'_>) -> Result<()> {
        self.no_fence_epoch(call)?;
        self.not_locked(call)
    }

    /// All parts are locked.
    pub(super) fn locked_all(&self, site: Site) {
        self.epoch.set(Epoch::All(site));
        self.open.set(true);
    }

    /// Ends that.
    pub(super) fn unlock_all(&self, call: &Call<'_>) -> Result<()> {
        self.not_gathering(call)?;
        if !matches!(self.epoch.get(), Epoch::All(_)) {
            let why = format!("lock_all has not been called{}", self.last_end());
            return Err(Error::epoch(call, why));
        }
        self.end(call);
        Ok(())
    }

    /// Whether what was done to a part, or to all that are locked (`None`), may be flushed.
    pub(super) fn may_flush(&self, target: Option<usize>) -> bool {
        let locked = || {
            let locks = self.locks.borrow();
            target.map_or(!locks.is_empty(), |target| locks.contains_key(&target))
        };
        let all = matches!(self.epoch.get(), Epoch::All(_));
        self.gathering.get().is_none() && (all || locked())
    }

    /// Why not.
    #[cold]
    pub(super) fn no_flush(&self, call: &Call<'_>) -> Error {
        let why = match self.epoch.get() {
            Epoch::Fence(site) => {
                format!("nothing is locked; the fence after that at {site} does it")
            }
            _ => format!("it is not locked{}", self.last_end()),
        };
        self.not_gathering(call).err().unwrap_or_else(|| Error::epoch(call, why))
    }

    /// No lock may be held.
    pub(super) fn not_locked(&self, call: &Call<'_>) -> Result<()> {
        let locked = |what: String, site: Site, remedy: &str| {
            Err(Error::epoch(call, format!("{what} locked since {site}; call {remedy} first")))
        };
        if let Epoch::All(site) = self.epoch.get() {
            return locked("all ranks are".into(), site, "unlock_all");
        }
        match self.locks.borrow().iter().next() {
            Some((target, held)) => locked(format!("rank {target} is"), held.site, "unlock"),
            None => Ok(()),
        }
    }

    fn no_fence_epoch(&self, call: &Call<'_>) -> Result<()> {
        self.not_gathering(call)?;
        match self.epoch.get() {
            Epoch::Fence(site) if self.open.get() => {
                let why = "parts were accessed since the fence at";
                Err(Error::epoch(call, format!("{why} {site}; end that epoch by a fence first")))
            }
            _ => Ok(()),
        }
    }

    /// Updates are being gathered.
    pub(super) fn gather(&self, call: &Call<'_>) -> Result<Gathering<'_>> {
        self.not_gathering(call)?;
        self.gathering.set(Some(call.site));
        Ok(Gathering(self))
    }

    fn not_gathering(&self, call: &Call<'_>) -> Result<()> {
        match self.gathering.get() {
            Some(site) => {
                let why = format!("it is within aggregate at {site}, which has to end first");
                Err(Error::epoch(call, why))
            }
            None => Ok(()),
        }
    }

    fn end(&self, call: &Call<'_>) {
        self.open.set(false);
        self.recent.set(NONE);
        self.epoch.set(Epoch::None);
        self.ended.set(Some((call.kind, call.form, call.site)));
    }

    fn last_end(&self) -> String {
        let end = |(kind, form, site)| format!(" (since {} at {site})", name(kind, form));
        self.ended.get().map(end).unwrap_or_default()
    }
}

/// Updates are being gathered as long as this lives.
pub(super) struct Gathering<'a>(&'a Epochs);

impl Drop for Gathering<'_> {
    fn drop(&mut self) {
        self.0.gathering.set(None);
    }
}

fn name(kind: Kind, form: Form) -> String {
    let end = match form {
        Form::All => "_all",
        _ => "",
    };
    format!("{}{end}", kind.name())
}
