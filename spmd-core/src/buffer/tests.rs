use std::ops::Range;

use super::*;
use crate::element::{DType, Element};
use crate::error::Error;

/// The elements of a view by `pack`, after checking that `pack_range` agrees on every range.
fn packed<T: Element + PartialEq + Default + std::fmt::Debug>(
    buffer: &(impl Buffer<Elem = T> + ?Sized),
) -> Vec<T> {
    let view = buffer.erased();
    assert_eq!(view.dtype(), &T::DTYPE);
    assert_eq!(view.bytes(), view.len() * size_of::<T>());
    let mut all = vec![T::default(); view.len()];
    // SAFETY: `all` has the length of the view.
    unsafe { view.pack(all.as_mut_ptr().cast()) };
    for first in 0..=view.len() {
        for end in first..=view.len() {
            let mut part = vec![T::default(); end - first];
            // SAFETY: `part` has the length of the range.
            unsafe { view.pack_range(first, end - first, part.as_mut_ptr().cast()) };
            assert_eq!(part, all[first..end], "{first}..{end}");
        }
    }
    all
}

/// Unpacks `from`, by ranges of at most `limit` elements.
fn unpack_all<T: Element>(
    buffer: &mut (impl BufferMut<Elem = T> + ?Sized),
    from: &[T],
    limit: usize,
) {
    let mut view = buffer.erased_mut();
    assert_eq!(view.len(), from.len());
    let mut first = 0;
    while first < from.len() {
        let count = limit.min(from.len() - first);
        // SAFETY: the range lies within the view and `from`, values of the same type.
        unsafe { view.unpack_range(first, count, from[first..].as_ptr().cast()) };
        first += count;
    }
}

/// The indexes of a strided view, by its definition.
fn strided_indexes(count: usize, block: usize, stride: usize) -> Vec<usize> {
    (0..count).flat_map(|piece| (0..block).map(move |at| piece * stride + at)).collect()
}

/// The indexes of a part of an array, by its definition.
fn subarray_indexes(shape: &[usize], ranges: &[Range<usize>]) -> Vec<usize> {
    let elements = shape.iter().product();
    let inside = |index: &usize| {
        let mut rest = *index;
        shape.iter().zip(ranges).rev().all(|(extent, range)| {
            let at = rest % extent;
            rest /= extent;
            range.contains(&at)
        })
    };
    (0..elements).filter(inside).collect()
}

/// Unpacks by ranges of several lengths and checks the slice, gaps included.
fn check_unpack<T: Element + Default + PartialEq + std::fmt::Debug>(
    len: usize,
    indexes: &[usize],
    value: fn(usize) -> T,
    unpack: impl Fn(&mut [T], &[T], usize),
) {
    let from: Vec<T> = (0..indexes.len()).map(|at| value(at + 1)).collect();
    let mut expected = vec![T::default(); len];
    for (at, index) in indexes.iter().enumerate() {
        expected[*index] = from[at];
    }
    for limit in [1, 2, 3, 5, usize::MAX] {
        let mut slice = vec![T::default(); len];
        unpack(&mut slice, &from, limit);
        assert_eq!(slice, expected, "by {limit}");
    }
}

fn check_strided<T: Element + Default + PartialEq + std::fmt::Debug>(value: fn(usize) -> T) {
    let slice: Vec<T> = (0..24).map(value).collect();
    for count in 0..if cfg!(miri) { 4 } else { 6 } {
        for block in 0..5 {
            for stride in 0..6 {
                let indexes = strided_indexes(count, block, stride);
                let fits = indexes.iter().all(|index| *index < slice.len());
                match strided(&slice, count, block, stride) {
                    Ok(view) => {
                        let expected: Vec<T> = indexes.iter().map(|index| slice[*index]).collect();
                        assert_eq!(packed(&view), expected, "{count} {block} {stride}");
                    }
                    Err(_) => assert!(!fits, "{count} {block} {stride}"),
                }
                if fits && (count <= 1 || stride >= block) {
                    check_unpack(24, &indexes, value, |slice, from, limit| {
                        let mut view = strided_mut(slice, count, block, stride).unwrap();
                        unpack_all(&mut view, from, limit);
                        assert_eq!(packed(&view), from);
                    });
                } else {
                    assert!(strided_mut(&mut slice.clone(), count, block, stride).is_err());
                }
            }
        }
    }
}

#[test]
fn strided_views_of_every_element_size() {
    check_strided(|at| at as u8);
    check_strided(|at| at as u16);
    check_strided(|at| at as f32);
    check_strided(|at| [at as u8; 3]);
    check_strided(|at| at as u64);
    check_strided(|at| at as u128);
}

fn all_ranges(extent: usize) -> Vec<Range<usize>> {
    (0..=extent).flat_map(|start| (start..=extent).map(move |end| start..end)).collect()
}

fn check_subarray(shape: &[usize], ranges: &[Range<usize>]) {
    let len = shape.iter().product();
    let slice: Vec<u32> = (0..len as u32).collect();
    let indexes = subarray_indexes(shape, ranges);
    let expected: Vec<u32> = indexes.iter().map(|index| slice[*index]).collect();
    let view = subarray(&slice, shape, ranges).unwrap();
    assert_eq!(packed(&view), expected, "{shape:?} {ranges:?}");
    check_unpack(
        len,
        &indexes,
        |at| at as u32,
        |slice, from, limit| {
            let mut view = subarray_mut(slice, shape, ranges).unwrap();
            unpack_all(&mut view, from, limit);
            assert_eq!(packed(&view), from);
        },
    );
}

#[test]
fn subarrays_of_one_to_three_axes() {
    for x in all_ranges(if cfg!(miri) { 2 } else { 4 }) {
        check_subarray(&[4], std::slice::from_ref(&x));
        for y in all_ranges(3) {
            check_subarray(&[4, 3], &[x.clone(), y.clone()]);
            for z in all_ranges(2) {
                check_subarray(&[4, 3, 2], &[x.clone(), y.clone(), z]);
            }
        }
    }
}

#[test]
fn subarrays_of_no_and_many_axes() {
    check_subarray(&[], &[]);
    check_subarray(&[0, 3], &[0..0, 1..2]);
    check_subarray(&[2, 3, 2, 3, 2], &[0..2, 1..3, 0..2, 0..2, 1..2]);
    check_subarray(&[2, 3, 2, 3, 2], &[1..2, 1..3, 1..2, 0..3, 0..2]);
}

#[test]
fn one_piece_is_found() {
    let slice = [0_u16; 60];
    let one_piece = |buffer: &dyn Fn() -> Result<bool, Error>| buffer().unwrap();
    assert!(one_piece(&|| Ok(strided(&slice, 5, 3, 3)?.erased().contiguous().is_some())));
    assert!(one_piece(&|| Ok(strided(&slice, 1, 3, 9)?.erased().contiguous().is_some())));
    assert!(!one_piece(&|| Ok(strided(&slice, 2, 3, 4)?.erased().contiguous().is_some())));
    let shape = [3, 4, 5];
    let part = |ranges: [Range<usize>; 3]| {
        Ok(subarray(&slice, &shape, &ranges)?.erased().contiguous().is_some())
    };
    assert!(one_piece(&|| part([1..3, 0..4, 0..5])));
    assert!(one_piece(&|| part([1..2, 1..3, 0..5])));
    assert!(one_piece(&|| part([1..2, 1..2, 1..4])));
    assert!(!one_piece(&|| part([1..3, 1..3, 0..5])));
    assert!(!one_piece(&|| part([0..3, 0..4, 0..4])));
}

#[test]
fn slices_and_owners_are_in_one_piece() {
    fn check(buffer: &mut (impl BufferMut<Elem = u32> + ?Sized)) {
        let before = packed(buffer);
        let start = buffer.erased().contiguous().unwrap();
        assert_eq!(buffer.erased_mut().contiguous_mut().unwrap().cast_const(), start);
        let doubled: Vec<u32> = before.iter().map(|x| 2 * x).collect();
        unpack_all(buffer, &doubled, 2);
        assert_eq!(packed(buffer), doubled);
    }
    check(&mut [1, 2, 3]);
    check(&mut vec![1, 2, 3]);
    check(&mut [1, 2, 3][..]);
    check(&mut vec![1, 2, 3].into_boxed_slice());
    check(&mut &mut [1, 2, 3]);
    check(&mut Vec::new());
    check(&mut []);
    assert_eq!(packed(&&[1_u8, 2]), [1, 2]);
    assert_eq!(packed(&&mut [1_u8, 2]), [1, 2]);
}

#[test]
fn elements_may_be_arrays() {
    let buffer = vec![[1.0, 2.0], [3.0, 4.0]];
    assert_eq!(buffer.erased().len(), 2);
    assert_eq!(buffer.erased().dtype(), &<[f64; 2]>::DTYPE);
    let dtype: &DType = buffer[0].erased().dtype();
    assert_eq!((dtype, buffer[0].erased().len()), (&f64::DTYPE, 2));
}

fn message<T>(result: Result<T, Error>) -> String {
    result.err().expect("must be refused").to_string()
}

#[test]
fn errors_say_what_is_out_of_range() {
    let slice = [0_u64; 20];
    assert!(message(strided(&slice, 4, 2, 8)).ends_with(
        ": 4 blocks of 2 elements that start 8 apart need a slice of 26 elements, and it has 20"
    ));
    assert!(message(strided_mut(&mut slice.clone(), 2, 3, 2)).contains("overlap"));
    assert!(
        message(subarray(&slice, &[4, 4], &[0..4, 0..4]))
            .ends_with(": an array of shape [4, 4] has 16 elements, and the slice has 20")
    );
    assert!(message(subarray(&slice, &[20], &[0..4, 0..5])).contains("has 1 axes, and 2 ranges"));
    assert!(
        message(subarray_mut(&mut slice.clone(), &[4, 5], &[0..4, 2..6]))
            .ends_with(": the range 2..6 of axis 1 is not within its extent, 0..5")
    );
    #[expect(clippy::reversed_empty_ranges)]
    let backwards = 3..1;
    assert!(message(subarray(&slice, &[4, 5], &[backwards, 0..5])).contains("3..1 of axis 0"));
}

#[test]
fn absurd_numbers_are_refused() {
    const MAX: usize = usize::MAX;
    let slice = [0_u64; 4];
    for (count, block, stride) in
        [(MAX, 1, 1), (2, MAX, 1), (2, 1, MAX), (MAX, 1, 0), (MAX / 4, 2, 0), (MAX / 16 + 1, 1, 0)]
    {
        assert!(strided(&slice, count, block, stride).is_err(), "{count} {block} {stride}");
    }
    assert!(strided(&slice, 0, MAX, MAX).is_ok_and(|view| view.erased().is_empty()));
    assert!(subarray(&slice, &[MAX, 2, 2], &[0..1, 0..1, 0..1]).is_err());
}
