//! Sources, tags, and what is known of a received message.

/// Any source, or any tag, in a receive or probe.
///
/// ```ignore
/// let status = ctx.recv(&mut buf, ANY, ANY)?;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Any;

/// Any source, or any tag.
pub const ANY: Any = Any;

/// From whom a receive takes a message: a rank, or [`ANY`].
pub trait Source {
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
pub trait TagOrAny {
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

/// What is known of a message: who sent it, with which tag, how long it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    pub(crate) source: usize,
    pub(crate) tag: u32,
    pub(crate) len: usize,
}

impl Status {
    /// The rank that sent it, in the communicator of the receive.
    pub fn source(&self) -> usize {
        self.source
    }

    /// Its tag.
    pub fn tag(&self) -> u32 {
        self.tag
    }

    /// Its length in elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it carries no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
