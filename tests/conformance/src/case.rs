//! One case of the matrix: a communicator, a count, a root, where buffers lie, and data that no
//! other case has.

use crate::prelude::*;
use spmd_core::{Buffer, BufferMut, Element, SharedBuf};
use spmd_gpu::OnDevice;

use crate::element::{Sample, bytes, made_by, random};

/// Where a rank's buffers lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// In one piece.
    Dense,
    /// Every third element of a slice.
    Gaps,
    /// In memory that peers reach.
    Shared,
    /// As one of the others, by rank.
    Mixed,
    /// In the memory of the rank's device.
    Device,
}

/// Those of the host.
pub const LAYOUTS: [Layout; 4] = [Layout::Dense, Layout::Gaps, Layout::Shared, Layout::Mixed];

/// A case; the same on all ranks of `comm`.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    /// Where it is known, buffers can be shared.
    pub ctx: Option<&'a Ctx>,
    pub comm: &'a Comm,
    /// Elements of one rank, or of one block.
    pub count: usize,
    pub root: usize,
    pub layout: Layout,
    /// Tells the data of one case from another's.
    pub seed: u64,
}

/// A form of a collective: what runs a case of it, and which of the case's values matter.
#[must_use]
pub struct Form<F> {
    pub run: F,
    pub rooted: bool,
    pub sized: bool,
    /// Whether it takes buffers of the caller alone, and gives nothing of its own.
    pub plain: bool,
}

impl<F> Form<F> {
    /// A form of which the count matters, not the root.
    pub fn new(run: F) -> Form<F> {
        Form { run, rooted: false, sized: true, plain: true }
    }

    /// The same, of which the root matters too.
    pub fn rooted(self) -> Form<F> {
        Form { rooted: true, ..self }
    }

    /// The same, of one element a rank.
    pub fn single(self) -> Form<F> {
        Form { sized: false, plain: false, ..self }
    }

    /// The same, which gives what it has received.
    pub fn gives(self) -> Form<F> {
        Form { plain: false, ..self }
    }
}

impl Case<'_> {
    pub fn me(&self) -> usize {
        self.comm.rank()
    }

    pub fn n(&self) -> usize {
        self.comm.size()
    }

    pub fn is_root(&self) -> bool {
        self.me() == self.root
    }

    /// Where this rank's buffers lie.
    pub fn layout_here(&self) -> Layout {
        let layout = match self.layout {
            Layout::Mixed => LAYOUTS[(self.seed as usize + self.me()) % 3],
            layout => layout,
        };
        if layout == Layout::Shared && self.ctx.is_none() { Layout::Dense } else { layout }
    }

    /// Element `index` of what `rank` contributes.
    pub fn value<T: Sample>(&self, rank: usize, index: usize) -> T {
        T::made(random(self.seed, rank, index))
    }

    /// What `rank` contributes.
    pub fn values<T: Sample>(&self, rank: usize, count: usize) -> Vec<T> {
        made_by(count, |index| self.value(rank, index))
    }

    /// What lies in a buffer before the call.
    pub fn blank<T: Sample>(&self, count: usize) -> Vec<T> {
        made_by(count, |index| T::made(random(!self.seed, 4095, index)))
    }

    /// A receive buffer that only the root needs: elsewhere there is none, or one that must stay
    /// as it is.
    pub fn root_buffer<T: Sample>(&self, count: usize) -> Vec<T> {
        self.blank(if self.is_root() || self.seed.is_multiple_of(2) { count } else { 0 })
    }

    /// Blocks of different lengths, some of them empty, about `count` each.
    pub fn counts(&self) -> Vec<usize> {
        let length = |rank: usize| match (rank + self.seed as usize) % 4 {
            0 => self.count,
            1 => 0,
            2 => self.count / 2,
            _ => self.count + rank % 3,
        };
        (0..self.n()).map(length).collect()
    }

    /// The elements in memory that peers reach.
    fn shared<T: Element>(&self, values: &[T]) -> Result<SharedBuf<T>> {
        let ctx = self.ctx.expect("without it, no layout is shared");
        let mut buf = ctx.alloc_shared(values.len())?;
        buf.copy_from_slice(values);
        Ok(buf)
    }

    /// Makes a call with a buffer that holds the elements of `from`, where the case says.
    pub fn with_send<T: Sample, R>(
        &self,
        from: &[T],
        call: &mut dyn FnMut(&dyn Buffer<Elem = T>) -> Result<R>,
    ) -> Result<R> {
        match self.layout_here() {
            Layout::Gaps => call(&strided(&hierarchy(from), from.len(), 1, 3)?),
            Layout::Shared => call(&self.shared(from)?),
            Layout::Device => call(&self.comm.device()?.buffer_from(from)?),
            Layout::Dense | Layout::Mixed => call(&from),
        }
    }

    /// Makes a call with a buffer that holds these elements, where the case says; they become
    /// what the call leaves there.
    pub fn with_buffer<T: Sample>(
        &self,
        values: &mut Vec<T>,
        call: &dyn Fn(&mut dyn BufferMut<Elem = T>) -> Result<()>,
    ) -> Result<()> {
        match self.layout_here() {
            Layout::Gaps => {
                let mut wide = hierarchy(values);
                call(&mut strided_mut(&mut wide, values.len(), 1, 3)?)?;
                *values = unspread(&wide)?;
            }
            Layout::Shared => {
                let mut buf = self.shared(values)?;
                call(&mut buf)?;
                values.copy_from_slice(&buf);
            }
            Layout::Device => {
                let mut buf = self.comm.device()?.buffer_from(values)?;
                call(&mut buf)?;
                buf.copy_to(values)?;
            }
            Layout::Dense | Layout::Mixed => call(values)?,
        }
        Ok(())
    }

    /// [`Case::with_send`] and [`Case::with_buffer`] at once.
    pub fn with_buffers<T: Sample>(
        &self,
        from: &[T],
        into: &mut Vec<T>,
        call: &Exchange<'_, T>,
    ) -> Result<()> {
        self.with_send(from, &mut |send| self.with_buffer(into, &|recv| call(send, recv)))
    }

    /// An error unless `got` is `expected` to the last bit.
    pub fn check<T: Element>(&self, what: &str, got: &[T], expected: &[T]) -> Result<()> {
        // All at once: one by one takes longer than the call, where nothing is optimised.
        if bytes(got) == bytes(expected) {
            return Ok(());
        }
        self.check_with(what, got, expected, |a, b| bytes(&[*a]) == bytes(&[*b]))
    }

    /// An error unless `got` is `expected`, the result of an operation of this name: to the last
    /// bit, but for the order of a sum or product that an MPI folds as it likes, and for what a device
    /// writes into a NaN.
    pub fn check_fold<T: Sample>(
        &self,
        what: &str,
        name: &str,
        got: &[T],
        expected: &[T],
    ) -> Result<()> {
        let rounds =
            self.comm.internals().spans_processes() && !self.comm.internals().is_reproducible();
        if rounds && ["Sum", "Prod"].contains(&name) {
            return self.check_with(what, got, expected, |a, b| a.is_close(b, self.n()));
        }
        if self.layout == Layout::Device {
            let plain = |value: &T| bytes(&[value.without_payloads()]).to_vec();
            return self.check_with(what, got, expected, |a, b| plain(a) == plain(b));
        }
        self.check(what, got, expected)
    }

    fn check_with<T: Element>(
        &self,
        what: &str,
        got: &[T],
        expected: &[T],
        same: impl Fn(&T, &T) -> bool,
    ) -> Result<()> {
        let differs = |index: &usize| !same(&got[*index], &expected[*index]);
        if got.len() == expected.len() && !(0..got.len()).any(|index| differs(&index)) {
            return Ok(());
        }
        let first = (0..got.len().min(expected.len())).find(differs);
        let shown = first.map(|at| (at, bytes(&got[at..=at]), bytes(&expected[at..=at])));
        Err(Error::from(format!(
            "{what} of {} {}, root {}, {:?}, seed {}: rank {} of {} got {} elements, not {}; the \
             first that differs (index, got, expected): {shown:?}",
            self.count,
            &T::DTYPE,
            self.root,
            self.layout,
            self.seed,
            self.me(),
            self.n(),
            got.len(),
            expected.len(),
        )))
    }
}

/// A call with a send and a receive buffer.
type Exchange<'a, T> =
    dyn Fn(&dyn Buffer<Elem = T>, &mut dyn BufferMut<Elem = T>) -> Result<()> + 'a;

/// The elements, with two others after each.
fn hierarchy<T: Sample>(values: &[T]) -> Vec<T> {
    let mut wide = [T::made(3)].repeat(3 * values.len());
    let (into, mut index) = (&mut wide[..], 0);
    while index < values.len() {
        into[3 * index] = values[index];
        index += 1;
    }
    wide
}

/// Undoes [`hierarchy`]; an error if what lies between has changed.
fn unspread<T: Sample>(wide: &[T]) -> Result<Vec<T>> {
    let values = made_by(wide.len() / 3, |index| wide[3 * index]);
    if bytes(&hierarchy(&values)) != bytes(wide) {
        return Err(Error::from("a call wrote between the elements of a strided buffer"));
    }
    Ok(values)
}
