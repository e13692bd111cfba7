//! The erased description of an element type.

use std::fmt;

use super::Element;

/// Tells whether `count` scalars or structs at a pointer of any alignment are values.
///
/// ```
/// # use spmd_core::element::{Element, Valid};
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
/// Two are equal when their structure is, in whichever process they were made. An array of
/// arrays is the flat array of the same length.
///
/// ```
/// use spmd_core::element::{DType, Element};
///
/// assert_eq!(f64::DTYPE.to_string(), "f64");
/// assert_eq!(<[f64; 3]>::DTYPE.to_string(), "[f64; 3]");
/// assert_eq!(<[[f64; 3]; 2]>::DTYPE, <[f64; 6]>::DTYPE);
/// assert_ne!(u64::DTYPE, f64::DTYPE);
/// ```
#[derive(Clone, Copy)]
pub struct DType {
    /// The name of the scalar or struct, without the array.
    pub name: &'static str,
    /// How many of them are in one element: the length of an array, 1 for anything else.
    pub lanes: u32,
    /// The size of one element in bytes, all lanes together.
    pub size: u32,
    /// The alignment of one element in bytes.
    pub align: u32,
    /// A hash of the structure, the same in every process and build.
    pub id: u32,
    /// Checks scalars or structs (not whole arrays); `None` where all bytes are values.
    pub valid: Option<Valid>,
}

impl DType {
    /// The description of `T`, which has no lanes.
    pub(super) const fn scalar<T>(name: &'static str, valid: Option<Valid>) -> DType {
        DType::sized::<T>(name, hash(hash_text(name), size_of::<T>() as u32), valid)
    }

    const fn sized<T>(name: &'static str, id: u32, valid: Option<Valid>) -> DType {
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

    /// The description of the struct `T`, for `#[derive(Element)]`: `fields` are the offset and
    /// type of each field, `valid` calls [`fields_valid`](DType::fields_valid).
    #[doc(hidden)]
    pub const fn structure<T>(
        name: &'static str,
        fields: &[(usize, DType)],
        valid: Valid,
    ) -> DType {
        let mut id = hash(hash_text(name), size_of::<T>() as u32);
        let mut checked = false;
        let mut field = 0;
        while field < fields.len() {
            let (offset, dtype) = fields[field];
            id = hash(hash(id, offset as u32), dtype.id);
            checked |= dtype.valid.is_some();
            field += 1;
        }
        DType::sized::<T>(name, id, if checked { Some(valid) } else { None })
    }

    /// Whether the fields of each of `count` structs of `size` bytes are values.
    ///
    /// # Safety
    ///
    /// As [`Valid`]; `fields` lie within `size` bytes.
    #[doc(hidden)]
    pub unsafe fn fields_valid(
        fields: &[(usize, DType)],
        size: usize,
        values: *const u8,
        count: usize,
    ) -> bool {
        (0..count).all(|index| {
            fields.iter().all(|(offset, dtype)| {
                // SAFETY: the field lies within struct `index < count`, whose bytes the caller
                // vouches for.
                unsafe { dtype.all_valid(values.add(index * size + offset), 1) }
            })
        })
    }

    /// Whether the bytes of `count` elements are values of this type, as bytes from another
    /// process must be before anything reads them as `bool`, `char` or a struct of these.
    ///
    /// ```
    /// # use spmd_core::Element;
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

const fn hash_byte(state: u32, byte: u8) -> u32 {
    (state ^ byte as u32).wrapping_mul(0x0100_0193)
}

/// Mixes one number into an FNV-1a hash.
pub(super) const fn hash(state: u32, number: u32) -> u32 {
    let [a, b, c, d] = number.to_le_bytes();
    hash_byte(hash_byte(hash_byte(hash_byte(state, a), b), c), d)
}

/// The FNV-1a hash of a text: 32 bits that are the same in every process.
pub(crate) const fn hash_text(text: &str) -> u32 {
    let bytes = text.as_bytes();
    let mut state = 0x811c_9dc5;
    let mut at = 0;
    while at < bytes.len() {
        state = hash_byte(state, bytes[at]);
        at += 1;
    }
    state
}

/// What an array of so many lanes adds to the identity of its lane; nothing for one lane.
const fn lanes_id(lanes: u32) -> u32 {
    if lanes == 1 { 0 } else { hash(hash_text("lanes"), lanes) }
}
