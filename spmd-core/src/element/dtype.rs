//! The erased description of an element type.

use std::fmt;

use super::Element;

/// Tells whether `count` scalars or structs at a pointer of any alignment are values.
///
/// ```
/// use spmd::prelude::*;
/// use spmd::element::Valid;
///
/// let valid: Valid = bool::DTYPE.valid.expect("not every byte is a `bool`");
/// let bytes = [0u8, 1, 2];
/// // SAFETY: three initialised bytes, which nobody writes.
/// assert!(!unsafe { valid(bytes.as_ptr(), bytes.len()) });
/// ```
///
/// # Safety
///
/// All their bytes are readable and initialised, and nothing writes them meanwhile.
pub type Valid = unsafe fn(values: *const u8, count: usize) -> bool;

/// An element type, erased: what the code below the typed methods knows of it.
///
/// Two are equal when their structure is, in whichever process they were made: their name, size
/// and alignment, and of a struct the names, places and types of its fields. In which module or
/// crate a struct was declared makes no difference, as two programs of one job may each declare
/// it. An array of arrays is the flat array of the same length.
///
/// ```
/// use spmd::prelude::*;
/// use spmd::element::DType;
///
/// assert_eq!(f64::DTYPE.to_string(), "f64");
/// assert_eq!(<[f64; 3]>::DTYPE.to_string(), "[f64; 3]");
/// assert_eq!(<[[f64; 3]; 2]>::DTYPE, <[f64; 6]>::DTYPE);
/// assert_ne!(u64::DTYPE, f64::DTYPE);
/// ```
#[derive(Clone, Copy)]
pub struct DType {
    /// The name of the scalar or struct, without the array; of a struct with its path, as two may
    /// share a name.
    pub name: &'static str,
    /// How many of them are in one element: the length of an array, 1 for anything else.
    pub lanes: u32,
    /// The size of one element in bytes, all lanes together.
    pub size: u32,
    /// The alignment of one element in bytes.
    pub align: u32,
    /// A hash of the structure, the same in every process and build. Nothing rests on it but
    /// that a mistake is found: memory of a type that must be checked is never open to what
    /// peers write, and what comes from them is checked by the rules of the receiver.
    pub id: u64,
    /// Checks scalars or structs (not whole arrays); `None` where all bytes are values.
    pub valid: Option<Valid>,
}

impl DType {
    /// The description of `T`, which has no lanes.
    pub(super) const fn scalar<T>(name: &'static str, valid: Option<Valid>) -> DType {
        DType::sized::<T>(name, identity::<T>(hash_text(name), valid.is_some()), valid)
    }

    pub(super) const fn sized<T>(name: &'static str, id: u64, valid: Option<Valid>) -> DType {
        assert!(size_of::<T>() > 0, "an element must not have the size zero");
        assert!(size_of::<T>() <= u32::MAX as usize, "an element must be smaller than 4 GiB");
        let (size, align) = (size_of::<T>() as u32, align_of::<T>() as u32);
        DType { name, lanes: 1, size, align, id, valid }
    }

    /// The description of `[T; N]`. The identity of the lane survives in `id`, so that nested
    /// arrays come out as the flat one.
    pub(super) const fn array<T: Element, const N: usize>() -> DType {
        assert!(N > 0, "an array of length zero is not an element");
        let lane = T::DTYPE;
        let lanes = lane.lanes as u64 * N as u64;
        assert!(lanes <= u32::MAX as u64, "an element must be smaller than 4 GiB");
        let id = lane.id ^ lanes_id(lane.lanes) ^ lanes_id(lanes as u32);
        DType { lanes: lanes as u32, ..DType::sized::<[T; N]>(lane.name, id, lane.valid) }
    }

    /// The description of a field of the struct `S`, which `get` reads. The compiler finds its type
    /// by that, whatever the text of the struct says that macros have seen.
    #[doc(hidden)]
    pub const fn field<S, F: Element>(
        name: &'static str,
        offset: usize,
        _get: fn(S) -> F,
    ) -> Field {
        (name, offset, F::DTYPE)
    }

    /// The bytes that fields take, together.
    #[doc(hidden)]
    pub const fn fields_size(fields: &[Field]) -> usize {
        let (mut size, mut at) = (0, 0);
        while at < fields.len() {
            size += fields[at].2.size as usize;
            at += 1;
        }
        size
    }

    /// Whether the fields of each of `count` structs of `size` bytes are values.
    ///
    /// # Safety
    ///
    /// As [`Valid`]; `fields` lie within `size` bytes.
    #[doc(hidden)]
    pub unsafe fn fields_valid(
        fields: &[Field],
        size: usize,
        values: *const u8,
        count: usize,
    ) -> bool {
        (0..count).all(|index| {
            fields.iter().all(|(_, offset, dtype)| {
                // SAFETY: the field lies within struct `index < count`, whose bytes the caller
                // vouches for.
                unsafe { dtype.all_valid(values.add(index * size + offset), 1) }
            })
        })
    }

    /// Whether an element is a value whose bytes are all zero: memory that was cleared holds values.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// #[derive(Clone, Copy, Element)]
    /// #[repr(u8)]
    /// enum Grade {
    ///     Good = 1,
    ///     Bad = 2,
    /// }
    /// assert!(f64::DTYPE.zero_is_value() && !Grade::DTYPE.zero_is_value());
    /// ```
    #[must_use]
    pub fn zero_is_value(&self) -> bool {
        let zero = vec![0u8; self.size as usize];
        // SAFETY: the vector holds the bytes of one element, and nobody writes it.
        unsafe { self.all_valid(zero.as_ptr(), 1) }
    }

    /// Whether the bytes of `count` elements are values of this type, as bytes from another
    /// process must be before anything reads them as `bool`, `char` or a struct of these.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let bytes = [0u8, 1, 2];
    /// // SAFETY: a `bool` is one byte; three initialised ones are there, which nobody writes.
    /// assert!(!unsafe { bool::DTYPE.all_valid(bytes.as_ptr(), 3) });
    /// // SAFETY: so are two.
    /// assert!(unsafe { bool::DTYPE.all_valid(bytes.as_ptr(), 2) });
    /// ```
    ///
    /// # Safety
    ///
    /// `count × size` bytes at `ptr` (of any alignment) are readable and initialised, and nothing
    /// writes them during the call.
    #[must_use]
    pub unsafe fn all_valid(&self, ptr: *const u8, count: usize) -> bool {
        match self.valid {
            None => true,
            // SAFETY: `count` elements are `count × lanes` scalars or structs, all within the
            // bytes that the caller vouches for.
            Some(valid) => unsafe { valid(ptr, count * self.lanes as usize) },
        }
    }
}

impl PartialEq for DType {
    fn eq(&self, other: &DType) -> bool {
        self.id == other.id && self.size == other.size
    }
}

impl Eq for DType {}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lanes {
            1 => f.write_str(self.name),
            lanes => write!(f, "[{}; {lanes}]", self.name),
        }
    }
}

impl fmt::Debug for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The name of a field of a struct, where it lies, and its type.
pub(super) type Field = (&'static str, usize, DType);

/// The identity of `T`, of whose structure this is the hash.
pub(super) const fn identity<T>(structure: u64, checked: bool) -> u64 {
    let layout = hash(hash(structure, size_of::<T>() as u64), align_of::<T>() as u64);
    hash(layout, checked as u64)
}

/// Where an FNV-1a hash begins.
pub(super) const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// Mixes one byte into it.
pub(super) const fn hash_byte(state: u64, byte: u8) -> u64 {
    (state ^ byte as u64).wrapping_mul(0x0000_0100_0000_01b3)
}

/// Mixes one number into it.
pub(super) const fn hash(state: u64, number: u64) -> u64 {
    let bytes = number.to_le_bytes();
    let (mut state, mut at) = (state, 0);
    while at < bytes.len() {
        state = hash_byte(state, bytes[at]);
        at += 1;
    }
    state
}

/// The FNV-1a hash of a text: 64 bits that are the same in every process.
pub(crate) const fn hash_text(text: &str) -> u64 {
    let (bytes, mut state, mut at) = (text.as_bytes(), FNV_START, 0);
    while at < bytes.len() {
        state = hash_byte(state, bytes[at]);
        at += 1;
    }
    state
}

/// What an array of so many lanes adds to the identity of its lane; nothing for one lane.
const fn lanes_id(lanes: u32) -> u64 {
    if lanes == 1 { 0 } else { hash(hash_text("lanes"), lanes as u64) }
}
