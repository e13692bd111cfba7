mod declared;

use super::dtype::hash;
use super::*;

#[derive(Clone, Copy, Element)]
#[spmd(crate = crate)]
#[repr(C)]
struct Plain {
    position: [f64; 3],
    charge: i32,
    cell: u32,
}

#[derive(Clone, Copy, Element)]
#[spmd(crate = crate)]
#[repr(C)]
struct Checked(u8, bool, [bool; 2], char, Nested);

#[derive(Clone, Copy, Element)]
#[spmd(crate = crate)]
#[repr(transparent)]
struct Nested([char; 1]);

#[derive(Clone, Copy, Element)]
#[spmd(crate = crate)]
#[repr(C, packed)]
struct Packed {
    flag: bool,
    value: f64,
}

mod elsewhere {
    use super::*;

    #[derive(Clone, Copy, Element)]
    #[spmd(crate = crate)]
    #[repr(C)]
    pub(super) struct Plain {
        position: [f64; 3],
        charge: u32,
        cell: u32,
    }
}

fn valid<T: Element>(bytes: &[u8]) -> bool {
    let count = bytes.len() / T::DTYPE.size as usize;
    // SAFETY: `bytes` holds `count` whole elements.
    unsafe { T::DTYPE.all_valid(bytes.as_ptr(), count) }
}

#[test]
fn describes_size_and_alignment() {
    assert_eq!((u8::DTYPE.size, u8::DTYPE.align), (1, 1));
    assert_eq!((u128::DTYPE.size, u128::DTYPE.align), (16, align_of::<u128>() as u32));
    assert_eq!((<[f32; 5]>::DTYPE.size, <[f32; 5]>::DTYPE.lanes), (20, 5));
    assert_eq!((Plain::DTYPE.size, Plain::DTYPE.align), (32, 8));
    assert_eq!((Packed::DTYPE.size, Packed::DTYPE.align), (9, 1));
    assert_eq!(Located::<u8>::DTYPE.size, 9);
}

#[test]
fn prints_as_in_source() {
    assert_eq!(Complex::<f32>::DTYPE.to_string(), "Complex<f32>");
    assert_eq!(Located::<i16>::DTYPE.to_string(), "Located<i16>");
    assert_eq!(<[[bf16; 2]; 3]>::DTYPE.to_string(), "[bf16; 6]");
    assert_eq!(<[Plain; 4]>::DTYPE.to_string(), "[spmd_core::element::tests::Plain; 4]");
    assert_eq!(elsewhere::Plain::DTYPE.to_string(), "spmd_core::element::tests::elsewhere::Plain");
    assert_eq!(format!("{:?}", bool::DTYPE), "bool");
}

#[test]
fn tells_types_apart() {
    let all = [
        u8::DTYPE,
        u16::DTYPE,
        u32::DTYPE,
        u64::DTYPE,
        u128::DTYPE,
        usize::DTYPE,
        i8::DTYPE,
        i16::DTYPE,
        i32::DTYPE,
        i64::DTYPE,
        i128::DTYPE,
        isize::DTYPE,
        f16::DTYPE,
        bf16::DTYPE,
        f32::DTYPE,
        f64::DTYPE,
        Complex::<f32>::DTYPE,
        Complex::<f64>::DTYPE,
        bool::DTYPE,
        char::DTYPE,
        Located::<f64>::DTYPE,
        Located::<i64>::DTYPE,
        <[f64; 2]>::DTYPE,
        <[f64; 3]>::DTYPE,
        <[f32; 4]>::DTYPE,
        Plain::DTYPE,
        elsewhere::Plain::DTYPE,
        <[Plain; 2]>::DTYPE,
        Checked::DTYPE,
        Nested::DTYPE,
        Packed::DTYPE,
    ];
    for (at, left) in all.iter().enumerate() {
        for right in &all[at + 1..] {
            assert_ne!(left.id, right.id, "{left} and {right}");
        }
    }
}

#[test]
fn nested_arrays_are_flat() {
    assert_eq!(<[[u8; 2]; 3]>::DTYPE, <[u8; 6]>::DTYPE);
    assert_eq!(<[[u8; 3]; 2]>::DTYPE.id, <[u8; 6]>::DTYPE.id);
    assert_eq!(<[u8; 1]>::DTYPE, u8::DTYPE);
}

#[test]
fn ids_are_the_same_in_every_build() {
    assert_eq!(f64::DTYPE.id, hash(hash(hash(hash_text("f64"), 8), 8), 0));
    assert_eq!(hash_text("foobar"), 0x8594_4171_f739_67e8);
}

mod copied {
    use super::*;

    #[derive(Clone, Copy, Element)]
    #[spmd(crate = crate)]
    #[repr(C)]
    pub(super) struct Plain {
        position: [f64; 3],
        charge: i32,
        cell: u32,
    }
}

mod renamed {
    use super::*;

    #[derive(Clone, Copy, Element)]
    #[spmd(crate = crate)]
    #[repr(C)]
    pub(super) struct Plain {
        position: [f64; 3],
        cell: i32,
        charge: u32,
    }
}

#[test]
fn structs_are_what_they_are_made_of_wherever_declared() {
    assert_eq!(copied::Plain::DTYPE, Plain::DTYPE);
    assert_ne!(renamed::Plain::DTYPE, Plain::DTYPE);
}

#[derive(Clone, Copy, Element)]
#[spmd(crate = crate)]
#[repr(C)]
struct Byte152922 {
    x: u8,
}

#[derive(Clone, Copy, Element)]
#[spmd(crate = crate)]
#[repr(C)]
struct Flag64009 {
    x: bool,
}

/// Two that 32 bits of the hash could not tell apart.
#[test]
fn identities_are_long() {
    assert_ne!(Byte152922::DTYPE.id, Flag64009::DTYPE.id);
    assert_ne!(Byte152922::DTYPE.id as u32, Flag64009::DTYPE.id as u32);
}

#[test]
fn rejects_bytes_that_are_no_value() {
    assert!(valid::<bool>(&[0, 1, 1]) && !valid::<bool>(&[0, 2, 1]));
    assert!(valid::<[bool; 2]>(&[0, 1, 1, 0]) && !valid::<[bool; 2]>(&[0, 1, 1, 255]));
    assert!(valid::<char>(&u32::from('é').to_ne_bytes()));
    assert!(!valid::<char>(&0xd800_u32.to_ne_bytes()) && !valid::<char>(&[0xff; 4]));
    assert!(valid::<Plain>(&[0xff; 32]) && Plain::DTYPE.valid.is_none());
}

#[test]
fn rejects_structs_with_a_field_that_is_no_value() {
    let good = [7, 1, 0, 1, 0x41, 0, 0, 0, 0x42, 0, 0, 0];
    assert!(valid::<Checked>(&good));
    for (at, byte) in [(1, 2), (2, 9), (3, 2), (6, 0x7f), (10, 0x7f)] {
        let mut two = [good, good].concat();
        two[12 + at] = byte;
        assert!(!valid::<Checked>(&two), "byte {at} = {byte}");
    }
    assert!(valid::<Packed>(&[1; 9]) && !valid::<Packed>(&[2; 9]));
}

#[test]
fn located_keeps_value_and_index() {
    let located = Located::new(-3_i8, usize::MAX);
    assert_eq!((located.value(), located.index()), (-3, usize::MAX));
}

#[test]
fn located_prints_value_and_index() {
    let located = Located::new(2.5, 7);
    assert_eq!(format!("{located:?}"), "Located { value: 2.5, index: 7 }");
    assert_eq!(format!("{located} {located:.2}"), "2.5 at 7 2.50 at 7");
}
