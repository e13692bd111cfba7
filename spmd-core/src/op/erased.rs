//! An operation below the typed methods: element type and closure are forgotten, what remains
//! folds arrays of bytes.

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;

use super::operation::{DeviceBody, Operation};
use crate::element::{Element, hash_text};

/// The fold of an operation over arrays of its elements.
type Fold = unsafe fn(op: *const (), out: *mut u8, left: *const u8, right: *const u8, count: usize);

/// An [`Operation`] on some element type, both erased. Made once for each call.
#[derive(Clone, Copy)]
pub struct ErasedOp<'a> {
    op: *const (),
    fold: Fold,
    name: &'static str,
    id: u64,
    site: Option<&'static Location<'static>>,
    commutative: bool,
    trusted: bool,
    device_body: Option<DeviceBody>,
    borrow: PhantomData<&'a ()>,
}

// SAFETY: it is a shared reference to an operation, and operations are `Sync`.
unsafe impl Send for ErasedOp<'_> {}

// SAFETY: as for `Send`.
unsafe impl Sync for ErasedOp<'_> {}

impl fmt::Debug for ErasedOp<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ErasedOp").field(&self.name).finish()
    }
}

impl<'a> ErasedOp<'a> {
    /// Erases `op` as an operation on elements of type `T`.
    #[inline]
    pub fn new<T: Element, O: Operation<T>>(op: &'a O) -> ErasedOp<'a> {
        ErasedOp {
            op: (&raw const *op).cast(),
            fold: best_fold::<T, O>(),
            name: op.name(),
            id: op.identity(),
            site: op.site(),
            trusted: O::TRUST.is_trusted(),
            commutative: op.commutative(),
            device_body: op.device_body(),
            borrow: PhantomData,
        }
    }

    /// Its name, for reports.
    #[inline]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// A hash of what it is, the same in every process and build: of the name of one of the
    /// library's own, of name and type of any other, and of an [`Op`](super::Op) of what tells it.
    #[inline]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// What ranks compare of it.
    #[inline]
    pub(crate) fn identity(&self) -> u64 {
        // What one process leaves to a library that joins it to others, all must.
        self.id ^ u64::from(self.commutative) ^ u64::from(self.trusted) << 1
    }

    /// The [`ErasedOp::id`] of the library's own operation of this name.
    pub const fn id_of(name: &str) -> u64 {
        hash_text(name)
    }

    /// What a report calls it, in a call made at `call`.
    pub(crate) fn described(&self, call: &Location<'_>) -> String {
        let order = if self.commutative { "" } else { "non-commutative " };
        let made = match self.site {
            Some(site) if (site.file(), site.line()) != (call.file(), call.line()) => {
                format!(" ({}:{})", site.file(), site.line())
            }
            _ => String::new(),
        };
        format!("{order}{}{made}", self.name)
    }

    /// The body of a function in CUDA C++ that does it on a device, of `left` and `right`.
    pub fn device_body(&self) -> Option<&'static str> {
        self.device_body.map(|body| body.0)
    }

    /// Whether its arguments may be swapped.
    #[inline]
    pub fn commutative(&self) -> bool {
        self.commutative
    }

    /// Whether it is one of the library's own on a type of its own: it neither panics nor calls
    /// anything.
    #[inline]
    pub fn trusted(&self) -> bool {
        self.trusted
    }

    /// Computes `out[i] = left[i] op right[i]` for `count` elements.
    ///
    /// An operation of the program's own may panic. The panic passes through; `out` then holds
    /// results up to some element and from there on what it held before.
    ///
    /// # Safety
    ///
    /// - `left` and `right` are readable for `count` elements of the type that this operation was
    ///   erased with, `out` is writable for as many. None of them needs any alignment.
    /// - `left` and `right` hold values of that type.
    /// - `out` is `left`, is `right`, or overlaps neither; `left` and `right` may overlap.
    /// - Nothing writes the inputs, and nothing reads or writes `out`, during the call.
    #[inline]
    pub unsafe fn fold(&self, out: *mut u8, left: *const u8, right: *const u8, count: usize) {
        // SAFETY: `op` is the operation that `fold` was made for, borrowed for `'a`; the rest is
        // this method's own contract.
        unsafe { (self.fold)(self.op, out, left, right, count) }
    }
}

/// The fold for the widest vectors of this machine. All variants give the same bits: they are
/// one loop compiled for different instructions, and Rust never contracts or reorders
/// floating-point arithmetic.
#[inline]
fn best_fold<T: Element, O: Operation<T>>() -> Fold {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        return fold_avx2::<T, O>;
    }
    fold_baseline::<T, O>
}

/// # Safety
///
/// As [`fold_loop`].
unsafe fn fold_baseline<T: Element, O: Operation<T>>(
    op: *const (),
    out: *mut u8,
    left: *const u8,
    right: *const u8,
    count: usize,
) {
    // SAFETY: the same contract.
    unsafe { fold_loop::<T, O>(op, out, left, right, count) }
}

/// # Safety
///
/// As [`fold_loop`], on a machine that has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn fold_avx2<T: Element, O: Operation<T>>(
    op: *const (),
    out: *mut u8,
    left: *const u8,
    right: *const u8,
    count: usize,
) {
    // SAFETY: the same contract.
    unsafe { fold_loop::<T, O>(op, out, left, right, count) }
}

/// # Safety
///
/// `op` points to a live `O`; the rest as [`ErasedOp::fold`] with elements of type `T`.
#[inline(always)]
unsafe fn fold_loop<T: Element, O: Operation<T>>(
    op: *const (),
    out: *mut u8,
    left: *const u8,
    right: *const u8,
    count: usize,
) {
    // SAFETY: the caller passes a pointer to a live `O`.
    let op = unsafe { &*op.cast::<O>() };
    let (out, left, right): (*mut Anywhere<T>, *const Anywhere<T>, *const Anywhere<T>) =
        (out.cast(), left.cast(), right.cast());
    // One loop for each way in which the arrays can coincide: where they do, both sides of a step
    // use one pointer, and the compiler sees that it may vectorise. Plain ones: in a program that is
    // not optimised, a step of a range takes longer than the operation.
    let mut index = 0;
    // SAFETY: `index < count`, and the rest is this function's contract; `out` stands for the
    // input that it coincides with.
    unsafe {
        if out.cast_const() == left {
            while index < count {
                step(op, out, out, right, index);
                index += 1;
            }
        } else if out.cast_const() == right {
            while index < count {
                step(op, out, left, out, index);
                index += 1;
            }
        } else {
            while index < count {
                step(op, out, left, right, index);
                index += 1;
            }
        }
    }
}

/// An element of no alignment. Its place is read and written without a call, which a program that is
/// not optimised would make for each.
#[repr(C, packed)]
#[derive(Clone, Copy)]
struct Anywhere<T>(T);

/// # Safety
///
/// As [`fold_loop`] for the element at `index`.
#[inline(always)]
unsafe fn step<T: Element, O: Operation<T>>(
    op: &O,
    out: *mut Anywhere<T>,
    left: *const Anywhere<T>,
    right: *const Anywhere<T>,
    index: usize,
) {
    // SAFETY: `index` lies within all three arrays, and the inputs are values. `out` overlaps an
    // input at this same index at most, which is read before.
    unsafe {
        let (left, right) = ((*left.add(index)).0, (*right.add(index)).0);
        (*out.add(index)).0 = op.combine(left, right);
    }
}
