//! Sources, tags, and what is known of a received message.

/// The type of [`ANY`].
///
/// ```
/// use spmd::prelude::*;
/// use spmd::{Any, Source};
///
/// let whoever: Any = ANY;
/// assert_eq!(whoever.source(), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Any;

/// Any source, or any tag, in a receive or probe.
///
/// ```
/// use spmd::prelude::*;
///
/// spmd(2, |ctx| {
///     if ctx.rank() == 0 {
///         return ctx.send(&[1.0], 1, 42);
///     }
///     let status = ctx.recv(&mut [0.0], ANY, ANY)?;
///     assert_eq!((status.source(), status.tag()), (0, 42));
///     Ok(())
/// })?;
/// # Ok::<(), Error>(())
/// ```
pub const ANY: Any = Any;

/// From whom a receive takes a message: a rank, or [`ANY`].
///
/// ```
/// use spmd::prelude::*;
/// use spmd::Source;
///
/// fn number(comm: &Comm, source: impl Source) -> Result<u32> {
///     let mut number = [0u32];
///     comm.recv(&mut number, source, ANY)?;
///     Ok(number[0])
/// }
/// spmd(1, |ctx| {
///     ctx.send(&[4u32], 0, 0)?;
///     ctx.send(&[5u32], 0, 0)?;
///     assert_eq!((number(ctx, 0)?, number(ctx, ANY)?), (4, 5));
///     Ok(())
/// })?;
/// # Ok::<(), Error>(())
/// ```
pub trait Source: sealed::OneOrAny {
    /// The rank, or none for any.
    fn source(self) -> Option<usize>;
}

impl Source for usize {
    fn source(self) -> Option<usize> {
        Some(self)
    }
}

impl Source for Any {
    fn source(self) -> Option<usize> {
        None
    }
}

/// Which tag a receive takes: a number, or [`ANY`].
///
/// ```
/// use spmd::prelude::*;
/// use spmd::TagOrAny;
///
/// assert_eq!((7u32.tag(), ANY.tag()), (Some(7), None));
/// ```
pub trait TagOrAny: sealed::OneOrAny {
    /// The tag, or none for any.
    fn tag(self) -> Option<u32>;
}

impl TagOrAny for u32 {
    fn tag(self) -> Option<u32> {
        Some(self)
    }
}

impl TagOrAny for Any {
    fn tag(self) -> Option<u32> {
        None
    }
}

/// To whom a [`Comm::sendrecv`](crate::Comm::sendrecv) sends: a rank, or `None`, where there is no
/// neighbour: nothing is sent (`MPI_PROC_NULL`, MPI 5.0 section 3.10).
///
/// ```
/// use spmd::DestOrNone;
///
/// assert_eq!((3.dest(), Some(3).dest(), None.dest()), (Some(3), Some(3), None));
/// ```
pub trait DestOrNone: sealed::OneOrNone {
    /// The rank, or none for nobody.
    fn dest(self) -> Option<usize>;
}

impl DestOrNone for usize {
    fn dest(self) -> Option<usize> {
        Some(self)
    }
}

impl DestOrNone for Option<usize> {
    fn dest(self) -> Option<usize> {
        self
    }
}

/// From whom a [`Comm::sendrecv`](crate::Comm::sendrecv) receives: a rank, [`ANY`], or `None`, where
/// there is no neighbour: nothing is received (`MPI_PROC_NULL`, MPI 5.0 section 3.10).
///
/// ```
/// use spmd::prelude::*;
/// use spmd::SourceOrNone;
///
/// assert_eq!((3.source_or_none(), ANY.source_or_none()), (Some(Some(3)), Some(None)));
/// assert_eq!(None.source_or_none(), None);
/// ```
pub trait SourceOrNone: sealed::OneOrNone {
    /// None for nobody; else the rank, or none for any.
    fn source_or_none(self) -> Option<Option<usize>>;
}

impl SourceOrNone for usize {
    fn source_or_none(self) -> Option<Option<usize>> {
        Some(Some(self))
    }
}

impl SourceOrNone for Any {
    fn source_or_none(self) -> Option<Option<usize>> {
        Some(None)
    }
}

impl SourceOrNone for Option<usize> {
    fn source_or_none(self) -> Option<Option<usize>> {
        self.map(Some)
    }
}

/// Which numbers there are is fixed here: a source or tag of another kind means nothing to a
/// transport.
mod sealed {
    pub trait OneOrAny {}

    impl OneOrAny for usize {}
    impl OneOrAny for u32 {}
    impl OneOrAny for super::Any {}

    pub trait OneOrNone {}

    impl OneOrNone for usize {}
    impl OneOrNone for Option<usize> {}
    impl OneOrNone for super::Any {}
}

/// What is known of a message: who sent it, with which tag, how long it is.
///
/// ```
/// use spmd::prelude::*;
///
/// spmd(2, |ctx| {
///     if ctx.rank() == 0 {
///         return ctx.send(&[1.0; 3], 1, 7);
///     }
///     let status = ctx.recv(&mut [0.0; 10], 0, 7)?;
///     assert_eq!((status.source(), status.tag(), status.len()), (0, 7, 3));
///     assert!(!status.is_empty());
///     Ok(())
/// })?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    pub(crate) source: usize,
    pub(crate) tag: u32,
    pub(crate) len: usize,
}

/// What is told of no message.
pub(crate) const NO_MESSAGE: Status = Status { source: usize::MAX, tag: 0, len: 0 };

impl Status {
    /// The rank that sent it, in the communicator of the receive; `usize::MAX` where nothing was
    /// received, as there was no neighbour ([`SourceOrNone`]).
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(1, |ctx| {
    ///     ctx.send(&[1u8], 0, 7)?;
    ///     let status = ctx.recv(&mut [0u8; 4], ANY, ANY)?;
    ///     assert_eq!(status.source(), 0);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn source(&self) -> usize {
        self.source
    }

    /// Its tag.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(1, |ctx| {
    ///     ctx.send(&[1u8], 0, 7)?;
    ///     let status = ctx.recv(&mut [0u8; 4], ANY, ANY)?;
    ///     assert_eq!(status.tag(), 7);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn tag(&self) -> u32 {
        self.tag
    }

    /// Its length in elements.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(1, |ctx| {
    ///     ctx.send(&[1u8, 2], 0, 7)?;
    ///     let status = ctx.recv(&mut [0u8; 4], ANY, ANY)?;
    ///     assert_eq!(status.len(), 2);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it carries no elements.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(1, |ctx| {
    ///     ctx.send(&[0u8; 0], 0, 7)?;
    ///     let status = ctx.recv(&mut [0u8; 4], ANY, ANY)?;
    ///     assert!(status.is_empty());
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
