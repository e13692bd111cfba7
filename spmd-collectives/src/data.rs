//! Buffers as algorithms see them: contiguous. What has gaps is packed before and unpacked after.

use spmd_core::internal::{
    Args, Blocks, Call, Memory, StagedView, View, ViewMut, copy_bytes, on_host, packed_if_apart,
};
use spmd_core::{DType, Error, Result};

/// What a rank contributes.
pub(crate) struct Input<'a> {
    view: View<'a>,
    packed: Option<Vec<u8>>,
}

impl<'a> Input<'a> {
    #[inline]
    pub(crate) fn new(view: View<'a>) -> Result<Input<'a>> {
        let packed = packed_if_apart(&view)?;
        Ok(Input { view, packed })
    }

    /// The same of a call of which the memory is the host's, whatever this rank brings: what is on a
    /// device is copied to `stage`.
    #[inline]
    pub(crate) fn on_host(
        view: View<'a>,
        stage: &'a mut Option<StagedView>,
        call: &Call<'_>,
    ) -> Result<Input<'a>> {
        Input::new(on_host(view, stage, &|| Error::out_of_reach(call, &[]))?)
    }

    #[inline]
    pub(crate) fn dtype(&self) -> &'static DType {
        self.view.dtype()
    }

    /// Elements.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.view.len()
    }

    /// The same as a call brings it.
    #[inline]
    pub(crate) fn memory<'b>(&self, blocks: Blocks<'b>) -> Memory<'b> {
        Memory { place: self.view.place(), ptr: self.ptr().cast_mut(), blocks }
    }

    /// The elements, one after another; valid while `self` is.
    #[inline]
    pub(crate) fn ptr(&self) -> *const u8 {
        let packed = self.packed.as_ref().map(|bytes| bytes.as_ptr());
        packed.or(self.view.contiguous()).expect("packed unless contiguous")
    }
}

/// Where a rank's result goes. [`Output::commit`] brings it there.
pub(crate) struct Output<'a> {
    view: ViewMut<'a>,
    unpacked: Option<Vec<u8>>,
}

impl<'a> Output<'a> {
    #[inline]
    pub(crate) fn new(view: ViewMut<'a>) -> Result<Output<'a>> {
        // What an algorithm does not write stays as it was.
        let unpacked = packed_if_apart(&view.as_view())?;
        Ok(Output { view, unpacked })
    }

    #[inline]
    pub(crate) fn dtype(&self) -> &'static DType {
        self.view.dtype()
    }

    /// Elements.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.view.len()
    }

    /// The same as a call brings it.
    #[inline]
    pub(crate) fn memory<'b>(&mut self, blocks: Blocks<'b>) -> Memory<'b> {
        Memory { place: self.view.place(), ptr: self.ptr(), blocks }
    }

    /// The place for the elements, one after another; valid while `self` is.
    #[inline]
    pub(crate) fn ptr(&mut self) -> *mut u8 {
        match &mut self.unpacked {
            Some(bytes) => bytes.as_mut_ptr(),
            None => self.view.contiguous_mut().expect("unpacked unless contiguous"),
        }
    }

    /// Brings the result into a buffer with gaps.
    #[inline]
    pub(crate) fn commit(mut self) {
        if let Some(bytes) = &self.unpacked {
            // SAFETY: the vector holds all the view's elements, each of them a value of the type:
            // packed from the view, or checked by the algorithm that wrote it.
            unsafe { self.view.unpack(bytes.as_ptr()) };
        }
    }
}

/// Runs `body`, which sends and receives in different memory, also where a call does both in the
/// same: then it sends a copy.
///
/// # Safety
/// As [`dispatch`](spmd_core::dispatch::dispatch), with blocks for so many ranks; the memory is the
/// host's.
pub(crate) unsafe fn sending_a_copy<'a>(
    args: &Args<'a>,
    ranks: usize,
    body: impl FnOnce(&Args<'_>) -> Result<()>,
) -> Result<()> {
    if args.send.ptr != args.recv.ptr {
        return body(args);
    }
    let mut copy = zeros(args.send.blocks.total(ranks) * args.size())?;
    // SAFETY: `send` holds the blocks of so many ranks, which nobody writes now (this function's
    // contract): as many bytes as the copy has, which is memory of its own.
    unsafe { copy_bytes(args.send.ptr, copy.as_mut_ptr(), copy.len()) };
    body(&args.send(Memory::host(copy.as_ptr(), args.send.blocks)))
}

/// The same, where `body` receives one block elsewhere first.
///
/// # Safety
/// As [`sending_a_copy`]; `recv` is one block. When `body` has returned without an error, no peer
/// reads `send` any more.
pub(crate) unsafe fn receiving_elsewhere<'a>(
    args: &Args<'a>,
    body: impl FnOnce(&Args<'_>) -> Result<()>,
) -> Result<()> {
    if args.send.ptr != args.recv.ptr {
        return body(args);
    }
    let mut result = zeros(args.recv.blocks.longest() * args.size())?;
    body(&args.recv(Memory::host(result.as_mut_ptr(), args.recv.blocks)))?;
    // SAFETY: `recv` has room for one block, which is as long as `result`, memory of its own;
    // nobody else touches it, and no peer reads what is there, as `body` has returned (this
    // function's contract).
    unsafe { copy_bytes(result.as_ptr(), args.recv.ptr, result.len()) };
    Ok(())
}

/// Memory for a copy of data of a caller, who decides how much that is.
///
/// Errors: there is none.
pub(crate) fn zeros(bytes: usize) -> Result<Vec<u8>> {
    let mut zeros = Vec::new();
    zeros.try_reserve_exact(bytes).map_err(|error| {
        Error::unavailable(
            format!("memory for a copy of {bytes} bytes"),
            error.to_string(),
            "use smaller buffers".into(),
        )
    })?;
    zeros.resize(bytes, 0);
    Ok(zeros)
}
