//! What is a buffer.

use super::view::View;
use super::view_mut::ViewMut;
use crate::element::Element;

/// Memory whose elements can be sent: a slice, an array, a `Vec`, or a view with gaps.
///
/// ```
/// use spmd::prelude::*;
///
/// fn elements(buffer: &(impl Buffer + ?Sized)) -> usize {
///     buffer.erased().len()
/// }
/// let data = vec![1.0; 6];
/// assert_eq!(elements(&data), 6);
/// assert_eq!(elements(&data[..2]), 2);
/// assert_eq!(elements(&strided(&data, 3, 1, 2)?), 3);
/// # Ok::<(), Error>(())
/// ```
///
/// # Safety
///
/// The element type of [`erased`](Buffer::erased) is [`Elem`](Buffer::Elem), and each call gives the
/// same elements as long as nobody changes the buffer.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a buffer of elements",
    note = "slices, arrays, `Vec<T>`, `Box<[T]>`, and the views of `strided` and `subarray` are buffers",
    note = "a single value is `&[x]`, or goes by the `_value` form of a collective",
    note = "for text and any other serde type, use the `_object` form of the call"
)]
pub unsafe trait Buffer {
    /// The type of its elements.
    type Elem: Element;

    /// Its elements, erased.
    fn erased(&self) -> View<'_>;
}

/// A [`Buffer`] that can be received into.
///
/// ```
/// use spmd::prelude::*;
///
/// fn room(buffer: &mut (impl BufferMut + ?Sized)) -> usize {
///     buffer.erased_mut().len()
/// }
/// assert_eq!(room(&mut [0u8; 4]), 4);
/// ```
///
/// # Safety
///
/// [`erased_mut`](BufferMut::erased_mut) has the same elements as [`erased`](Buffer::erased), and no two
/// of them overlap.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a buffer that elements can be received into",
    note = "slices, arrays, `Vec<T>`, `Box<[T]>`, and the views of `strided_mut` and `subarray_mut` are such buffers",
    note = "a single value is `&mut [x]`, or goes by the `_value` form of a collective",
    note = "for text and any other serde type, use the `_object` form of the call"
)]
pub unsafe trait BufferMut: Buffer {
    /// Its elements, erased, for writing. It may be asked for while a message of the rank is in hand:
    /// it calls nothing of the library, and waits for nothing.
    fn erased_mut(&mut self) -> ViewMut<'_>;
}

macro_rules! slices {
    ($(impl[$($generics:tt)*] for $buffer:ty;)*) => {$(
        // SAFETY: the view is that of the slice of all elements, which are of type `T`.
        unsafe impl<$($generics)*> Buffer for $buffer {
            type Elem = T;

            #[inline]
            fn erased(&self) -> View<'_> {
                View::new::<T>(self)
            }
        }

        // SAFETY: the same slice; elements of a slice don't overlap.
        unsafe impl<$($generics)*> BufferMut for $buffer {
            #[inline]
            fn erased_mut(&mut self) -> ViewMut<'_> {
                ViewMut::new::<T>(self)
            }
        }
    )*};
}

slices! {
    impl[T: Element] for [T];
    impl[T: Element, const N: usize] for [T; N];
    impl[T: Element] for Vec<T>;
    impl[T: Element] for Box<[T]>;
}

// SAFETY: that of the buffer it refers to.
unsafe impl<B: Buffer + ?Sized> Buffer for &B {
    type Elem = B::Elem;

    #[inline]
    fn erased(&self) -> View<'_> {
        B::erased(self)
    }
}

// SAFETY: that of the buffer it refers to.
unsafe impl<B: Buffer + ?Sized> Buffer for &mut B {
    type Elem = B::Elem;

    #[inline]
    fn erased(&self) -> View<'_> {
        B::erased(self)
    }
}

// SAFETY: that of the buffer it refers to.
unsafe impl<B: BufferMut + ?Sized> BufferMut for &mut B {
    #[inline]
    fn erased_mut(&mut self) -> ViewMut<'_> {
        B::erased_mut(self)
    }
}
