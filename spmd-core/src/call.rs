//! The record of one call: what it is, on what, and from which source line.
//!
//! Typed code ends at the public method. Everything below takes `&Call`: the choice of an
//! algorithm, the check that all ranks make the same call, and what a report prints.

mod kind;

use std::cell::Cell;
use std::fmt;
use std::panic::Location;

use crate::element::DType;
use crate::hash::mix;
use crate::op::ErasedOp;
use kind::name;
pub use kind::{Form, Kind};

/// One call of the rank API, erased.
#[derive(Clone, Debug)]
#[must_use]
pub struct Call<'a> {
    /// Which.
    pub kind: Kind,
    /// In which form.
    pub form: Form,
    /// The element type, where data move.
    pub dtype: Option<&'a DType>,
    /// The operation of a reduction.
    pub op: Option<&'a ErasedOp<'a>>,
    /// Elements a rank contributes, where all ranks must agree on it; [`Call::UNEQUAL`] where
    /// they need not.
    pub count: usize,
    /// The root of a rooted collective; the peer of a message (its rank in the communicator).
    pub root: Option<usize>,
    /// The tag of a message.
    pub tag: Option<u32>,
    /// Where the program made the call.
    pub site: &'static Location<'static>,
    /// Of what all ranks must agree on, added up as it is said: what the compiler knows where the
    /// call is made is then computed there, not at every call.
    fingerprint: Cell<u64>,
}

impl<'a> Call<'a> {
    /// The count of calls whose counts may differ between ranks.
    pub const UNEQUAL: usize = usize::MAX;

    /// A call without data.
    #[inline]
    pub fn new(kind: Kind, site: &'static Location<'static>) -> Call<'a> {
        let (form, fingerprint) = (Form::Plain, Cell::new(mix(kind as u64)));
        let (dtype, op, root, tag) = (None, None, None, None);
        Call { kind, form, dtype, op, count: 0, root, tag, site, fingerprint }
    }

    /// The same call in this form.
    #[inline]
    pub fn form(mut self, form: Form) -> Call<'a> {
        self.form = form;
        self
    }

    /// The same call, which says no more of what type and operation it is.
    pub fn without_borrows(&self) -> Call<'static> {
        let Call { kind, form, count, root, tag, site, .. } = *self;
        let fingerprint = self.fingerprint.clone();
        Call { kind, form, dtype: None, op: None, count, root, tag, site, fingerprint }
    }

    /// The same call on `count` elements of this type.
    #[inline]
    pub fn data(mut self, dtype: &'a DType, count: usize) -> Call<'a> {
        self.dtype = Some(dtype);
        self.count = count;
        self.with(DTYPE, dtype.id).with(COUNT, count as u64)
    }

    /// The same call with this root.
    #[inline]
    pub fn root(mut self, root: usize) -> Call<'a> {
        self.root = Some(root);
        self.with(ROOT, root as u64)
    }

    /// The same call as a message to or from this peer (`None`: anybody) with this tag (`None`:
    /// any), on which the ranks need not agree.
    #[inline]
    pub fn message(mut self, peer: Option<usize>, tag: Option<u32>) -> Call<'a> {
        (self.root, self.tag) = (peer, tag);
        self
    }

    /// The same call with this operation.
    #[inline]
    pub fn op(mut self, op: &'a ErasedOp<'a>) -> Call<'a> {
        self.op = Some(op);
        self.with(OP, op.identity())
    }

    /// The name of the method.
    pub(crate) fn name(&self) -> String {
        name(self.kind, self.form)
    }

    /// Takes note that the plane of this number carries it out: all ranks' calls, or none's.
    #[inline]
    pub fn carried_by(&self, plane: u64) {
        self.add(PLANE, plane);
    }

    #[inline]
    fn with(self, part: u64, value: u64) -> Call<'a> {
        self.add(part, value);
        self
    }

    #[inline]
    fn add(&self, part: u64, value: u64) {
        self.fingerprint.set(self.fingerprint.get().wrapping_add(mix(part ^ value)));
    }

    /// A number that differs, but for chance (2⁻⁶⁴), between calls that must not meet.
    #[inline]
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint.get()
    }
}

/// Set the parts of a fingerprint apart: equal numbers in different parts must not be the same.
const DTYPE: u64 = 0x1d8e_4e27_c47d_124f;
const COUNT: u64 = 0x5899_65cc_7537_4cc3;
const ROOT: u64 = 0xeb44_acca_b455_d165;
const OP: u64 = 0x8ebc_6af0_9c88_c6e3;
const PLANE: u64 = 0x5a1d_3c77_e0b4_961f;

impl fmt::Display for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Description {
            kind: self.kind,
            form: self.form,
            dtype: self.dtype.map(|d| d.to_string()).as_deref(),
            op: self.op.map(|op| op.described(self.site)).as_deref(),
            count: self.count,
            root: self.root,
            tag: self.tag,
            file: self.site.file(),
            line: self.site.line(),
            origin: None,
        }
        .fmt(f)
    }
}

/// A call in words, whether made here or read from a peer's record.
pub(crate) struct Description<'a> {
    pub(crate) kind: Kind,
    pub(crate) form: Form,
    pub(crate) dtype: Option<&'a str>,
    pub(crate) op: Option<&'a str>,
    pub(crate) count: usize,
    pub(crate) root: Option<usize>,
    pub(crate) tag: Option<u32>,
    pub(crate) file: &'a str,
    pub(crate) line: u32,
    /// The call that made the communicator, if it is not the block's own; the task that is fetched.
    pub(crate) origin: Option<&'a str>,
}

impl Description<'_> {
    /// The name of the method.
    pub(crate) fn name(&self) -> String {
        name(self.kind, self.form)
    }

    /// Whether it is of values of any type, as bytes.
    fn is_of_objects(&self) -> bool {
        self.form == Form::Object || self.kind.name().ends_with("_object")
    }
}

impl fmt::Display for Description<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())?;
        if let Some(dtype) = self.dtype {
            // The bytes that an object is turned into are not the program's.
            if self.count == Call::UNEQUAL || self.is_of_objects() {
                write!(f, " of {dtype}")?;
            } else {
                write!(f, " of {} {dtype}", self.count)?;
            }
        }
        if let Some(op) = self.op {
            write!(f, " with {op}")?;
        }
        match (self.kind, self.root) {
            (Kind::Send | Kind::Ssend | Kind::Put | Kind::PutNotify, Some(dest)) => {
                write!(f, " to rank {dest}")?;
            }
            (Kind::Recv | Kind::Probe | Kind::Get | Kind::WaitNotify, Some(source)) => {
                write!(f, " from rank {source}")?;
            }
            (Kind::Recv | Kind::Probe | Kind::WaitNotify, None) => f.write_str(" from any rank")?,
            (kind, Some(target)) if kind.is_on_part() => write!(f, " on rank {target}")?,
            (_, Some(root)) => write!(f, ", root {root},")?,
            (_, None) => {}
        }
        if let Some(tag) = self.tag {
            write!(f, " with tag {tag}")?;
        }
        write!(f, " at {}:{}", self.file, self.line)?;
        let of = if self.kind == Kind::Fetch { "of" } else { "on the communicator of" };
        self.origin.map_or(Ok(()), |origin| write!(f, " {of} {origin}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::Element;
    use crate::op::{Max, Sum};
    use std::collections::HashMap;

    #[test]
    fn calls_that_differ_have_different_fingerprints() {
        let (sum, max) = (ErasedOp::new::<f64, _>(&Sum), ErasedOp::new::<f64, _>(&Max));
        let numbers = [0, 1, 2, 3, 4, 255, 256, 257, Call::UNEQUAL];
        let mut seen = HashMap::new();
        for (kind, _) in Kind::ALL {
            let call = Call::new(kind, Location::caller());
            let mut calls = vec![call.clone()];
            for dtype in [&u8::DTYPE, &f64::DTYPE] {
                calls.extend(numbers.map(|count| call.clone().data(dtype, count)));
            }
            calls.extend(
                calls
                    .clone()
                    .iter()
                    .flat_map(|call| [call.clone().op(&sum), call.clone().op(&max)]),
            );
            calls.extend(
                calls.clone().iter().flat_map(|call| numbers.map(|root| call.clone().root(root))),
            );
            for call in calls {
                assert_eq!(call.fingerprint(), call.clone().form(Form::Value).fingerprint());
                let before = seen.insert(call.fingerprint(), call.to_string());
                assert_eq!(before, None, "{call}");
            }
        }
    }

    #[test]
    fn a_call_goes_by_the_name_of_its_method() {
        let name = |kind, form| {
            let text = Call::new(kind, Location::caller()).form(form).to_string();
            text.split(' ').next().expect("a name").to_owned()
        };
        let names = [
            (Kind::Allreduce, Form::Plain, "allreduce"),
            (Kind::Allreduce, Form::Value, "allreduce_value"),
            (Kind::Scan, Form::InPlace, "scan_in_place"),
            (Kind::Recv, Form::Vec, "recv_vec"),
            (Kind::Send, Form::Object, "send_object"),
            (Kind::Recv, Form::Sendrecv, "sendrecv"),
            (Kind::Probe, Form::Iprobe, "iprobe"),
            (Kind::Probe, Form::Improbe, "improbe"),
            (Kind::Split, Form::SplitHost, "split_host"),
        ];
        for (kind, form, expected) in names {
            assert_eq!(name(kind, form), expected);
            let word = kind as u64 | (form as u64) << 8 | 0xffff << 16;
            assert_eq!(Kind::with_form(word), Some((kind, form)));
        }
        assert_eq!(Kind::with_form(1 | 0xff << 8), Some((Kind::Barrier, Form::Plain)));
        assert_eq!(Kind::with_form(0xff), None);
    }
}
