//! The same calls on parts that lie in other processes: what goes there are bytes of elements, and
//! operations that a processor carries out on a word. Other operations this rank carries out itself,
//! and writes what they give where nothing has changed meanwhile.

use spmd_core::internal::{Call, Native, Pattern, View, ViewMut};
use spmd_core::{Element, Operation, Result};

use super::access::{Access, is_word};
use super::at::At;
use super::atomic::{combine, value};
use super::windows::Window;
use crate::data::Input;

impl<T: Element> Window<T> {
    #[cold]
    pub(super) fn put_elsewhere(&self, access: &Access, at: At, view: View<'_>) -> Result<()> {
        let (call, input) = (access.call::<T>(), Input::new(view)?);
        // SAFETY: the input holds as many elements, and is not written as long as it lives.
        let data = unsafe { bytes_of(input.ptr().cast::<T>(), access.count) };
        self.raw.put_elsewhere(&call, access.target, at.pattern(access.count), data)
    }

    #[cold]
    pub(super) fn get_elsewhere(
        &self,
        access: &Access,
        at: At,
        view: &mut ViewMut<'_>,
    ) -> Result<()> {
        let (call, pattern) = (access.call::<T>(), at.pattern(access.count));
        if let Some(into) = view.contiguous_mut().filter(|_| T::DTYPE.valid.is_none()) {
            // SAFETY: the view has room for as many elements, and is this call's; whatever comes is a
            // value.
            return unsafe { self.raw.get_elsewhere_at(&call, access.target, pattern, into) };
        }
        let all = self.read_elsewhere(&call, access.target, pattern)?;
        // SAFETY: there are as many elements as the view has, and they were checked to be values.
        unsafe { view.unpack_range(0, access.count, all.as_ptr()) };
        Ok(())
    }

    /// Elements of a part, as bytes that are values.
    fn read_elsewhere(&self, call: &Call<'_>, target: usize, pattern: Pattern) -> Result<Vec<u8>> {
        let count = pattern.blocks * pattern.block;
        let mut all = vec![0; count * size_of::<T>()];
        self.raw.get_elsewhere(call, target, pattern, &mut |from, piece| {
            all[from..from + piece.len()].copy_from_slice(piece);
            Ok(())
        })?;
        // SAFETY: the vector holds that many elements.
        match unsafe { T::DTYPE.all_valid(all.as_ptr(), count) } {
            true => Ok(all),
            false => Err(self.no_value(target)),
        }
    }

    /// `change_each` of elements elsewhere; with `told`, `each` gets what was there.
    #[cold]
    pub(super) fn change_elsewhere<O: Operation<T>>(
        &self,
        access: &Access,
        from: (At, *const T, bool),
        op: &O,
        mut each: impl FnMut(usize, T),
    ) -> Result<()> {
        let native = if is_word::<T>() { Native::of::<T, O>(op) } else { None };
        let combine = |before, given| combine(op, before, given);
        self.change_all_elsewhere(access, from, (native, &combine), &mut each)
    }

    /// The same, once for all operations on a type: it is compiled for every type that a program has
    /// windows of.
    fn change_all_elsewhere(
        &self,
        access: &Access,
        (at, src, told): (At, *const T, bool),
        (native, combine): (Option<Native>, &dyn Fn(T, T) -> T),
        each: &mut dyn FnMut(usize, T),
    ) -> Result<()> {
        let (call, pattern) = (access.call::<T>(), at.pattern(access.count));
        let target = access.target;
        // SAFETY: the caller's elements, as many as the call has, which nobody writes meanwhile.
        let given = unsafe { bytes_of(src, access.count) };
        let value = |bytes: &[u8]| self.value_of(bytes, target);
        match native {
            Some(how) if told => {
                let told = &mut |from: usize, piece: &[u8]| {
                    for (index, bytes) in piece.chunks_exact(size_of::<T>()).enumerate() {
                        each(from / size_of::<T>() + index, value(bytes)?);
                    }
                    Ok(())
                };
                return self.raw.exchange_elsewhere(&call, target, (pattern, how), given, told);
            }
            Some(how) => {
                return self.raw.change_elsewhere(&call, target, (pattern, how), given);
            }
            None => {}
        }
        let _turn = self.turn(access)?;
        let before = self.read_elsewhere(&call, target, pattern)?;
        let mut after = before.clone();
        let elements =
            given.chunks_exact(size_of::<T>()).zip(after.chunks_exact_mut(size_of::<T>()));
        for (given, place) in elements {
            store(place, combine(value(place)?, value(given)?));
        }
        if !is_word::<T>() {
            // Nobody else has changed them.
            self.raw.put_elsewhere(&call, target, pattern, &after)?;
            for (index, bytes) in before.chunks_exact(size_of::<T>()).enumerate() {
                each(index, value(bytes)?);
            }
            return Ok(());
        }
        let mut changed = Vec::new();
        self.raw.swap_elsewhere(
            &call,
            target,
            pattern,
            (&before, &after),
            &mut |from, piece| {
                let pieces = piece
                    .chunks_exact(size_of::<T>())
                    .zip(before[from..].chunks_exact(size_of::<T>()));
                for (index, (was, expected)) in (from / size_of::<T>()..).zip(pieces) {
                    match was == expected {
                        true => each(index, value(was)?),
                        false => changed.push((index, value(was)?)),
                    }
                }
                Ok(())
            },
        )?;
        // What others have changed meanwhile.
        let places: Vec<usize> =
            at.runs(access.count).flat_map(|run| run.at..run.at + run.len).collect();
        for (index, mut now) in changed {
            let given = value(&given[index * size_of::<T>()..][..size_of::<T>()])?;
            loop {
                let was =
                    self.swap_one(&call, target, places[index], (now, combine(now, given)))?;
                if same(&was, &now) {
                    break;
                }
                now = was;
            }
            each(index, now);
        }
        Ok(())
    }

    /// `compare_and_swap` of an element elsewhere.
    #[cold]
    pub(super) fn swap_if_elsewhere(
        &self,
        access: &Access,
        offset: usize,
        (old, new): (T, T),
    ) -> Result<T> {
        let (call, target) = (access.call::<T>(), access.target);
        if is_word::<T>() {
            return self.swap_one(&call, target, offset, (old, new));
        }
        let (_turn, pattern) = (self.turn(access)?, Pattern::one(offset, 1));
        let was = self.value_of(&self.read_elsewhere(&call, target, pattern)?, target)?;
        if same(&was, &old) {
            // SAFETY: one element.
            let data = unsafe { bytes_of(&raw const new, 1) };
            self.raw.put_elsewhere(&call, target, pattern, data)?;
        }
        Ok(was)
    }

    /// Writes the second of two elements of one word where the first is; gives what was there.
    fn swap_one(&self, call: &Call<'_>, target: usize, offset: usize, both: (T, T)) -> Result<T> {
        let (old, new) = both;
        // SAFETY: an element each.
        let both = unsafe { (bytes_of(&raw const old, 1), bytes_of(&raw const new, 1)) };
        let (mut was, pattern) = (None, Pattern::one(offset, 1));
        self.raw.swap_elsewhere(call, target, pattern, both, &mut |_, bytes| {
            was = Some(self.value_of(bytes, target)?);
            Ok(())
        })?;
        was.ok_or_else(|| self.no_value(target))
    }

    /// The element in these bytes.
    pub(super) fn value_of(&self, bytes: &[u8], target: usize) -> Result<T> {
        assert!(bytes.len() == size_of::<T>());
        // SAFETY: there are as many bytes as an element has, of any alignment.
        let read = unsafe { bytes.as_ptr().cast::<std::mem::MaybeUninit<T>>().read_unaligned() };
        value(read).ok_or_else(|| self.no_value(target))
    }
}

/// Elements as bytes.
///
/// # Safety
/// There are that many, of any alignment, which nobody writes as long as the result lives.
unsafe fn bytes_of<'a, T: Element>(elements: *const T, count: usize) -> &'a [u8] {
    match count {
        0 => &[],
        // SAFETY: this function's contract; all bytes of elements are initialised.
        _ => unsafe { std::slice::from_raw_parts(elements.cast(), count * size_of::<T>()) },
    }
}

fn store<T: Element>(place: &mut [u8], value: T) {
    // SAFETY: an element.
    place.copy_from_slice(unsafe { bytes_of(&raw const value, 1) });
}

/// Whether the bytes of two elements are the same.
fn same<T: Element>(one: &T, other: &T) -> bool {
    // SAFETY: an element each.
    unsafe { bytes_of(one, 1) == bytes_of(other, 1) }
}
