//! Enums and generic structs.

use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Element)]
#[spmd(crate = crate)]
#[repr(i16)]
enum Level {
    Low = -300,
    Middle = 0,
    High = 7,
}

#[derive(Clone, Copy, Element)]
#[spmd(crate = crate)]
#[repr(C)]
struct Pair<T> {
    a: T,
    b: [T; 2],
}

/// Parameters of every kind, with bounds, defaults and a field made of them.
#[derive(Clone, Copy, Element)]
#[spmd(crate = crate)]
#[repr(C)]
struct Tagged<T: PartialOrd, U = Complex<f32>, const N: usize = 2, const SIGN: i8 = -1>
where
    U: Default,
{
    pairs: [Pair<T>; N],
    other: U,
}

#[derive(Clone, Copy, Element)]
#[spmd(crate = crate)]
#[repr(C)]
struct Unit<const METRIC: bool, const NAME: char> {
    value: f64,
}

#[derive(Clone, Copy, Element)]
#[spmd(crate = crate)]
#[repr(transparent)]
struct Wrapped<T>(T);

#[test]
fn enums_are_checked() {
    assert_eq!((Level::DTYPE.size, Level::DTYPE.align), (2, 2));
    for value in [-300i16, 0, 7] {
        assert!(valid::<Level>(&value.to_ne_bytes()), "{value}");
    }
    for value in [-301i16, -1, 1, 6, 8, 300, i16::MIN, i16::MAX] {
        assert!(!valid::<Level>(&value.to_ne_bytes()), "{value}");
    }
    let two = [7i16, 1].map(i16::to_ne_bytes).concat();
    assert!(!valid::<Level>(&two) && !valid::<[Level; 2]>(&two));
    assert!(!valid::<Pair<Level>>(&[two.clone(), vec![0; 2]].concat()));
    // At any alignment.
    let shifted = [vec![9], 7i16.to_ne_bytes().to_vec()].concat();
    assert!(valid::<Level>(&shifted[1..]));
}

#[test]
fn enums_are_told_apart_by_their_variants() {
    mod same {
        #[derive(Clone, Copy, crate::Element)]
        #[spmd(crate = crate)]
        #[repr(i16)]
        pub(super) enum Level {
            Low = -300,
            Middle = 0,
            High = 7,
        }
    }
    mod other {
        #[derive(Clone, Copy, crate::Element)]
        #[spmd(crate = crate)]
        #[repr(i16)]
        pub(super) enum Level {
            Low = -300,
            Middle = 0,
            High = 8,
        }
    }
    assert_eq!(same::Level::DTYPE, Level::DTYPE);
    assert_ne!(other::Level::DTYPE, Level::DTYPE);
}

#[test]
fn parameters_belong_to_the_type() {
    let all = [
        Pair::<f32>::DTYPE,
        Pair::<i32>::DTYPE,
        Pair::<Pair<f32>>::DTYPE,
        Tagged::<f32>::DTYPE,
        Tagged::<i32>::DTYPE,
        Tagged::<f32, u64>::DTYPE,
        Tagged::<f32, u64, 4>::DTYPE,
        Tagged::<f32, u64, 4, 1>::DTYPE,
        Unit::<true, 'a'>::DTYPE,
        Unit::<false, 'a'>::DTYPE,
        Unit::<false, 'b'>::DTYPE,
        Wrapped::<f32>::DTYPE,
        f32::DTYPE,
    ];
    for (at, left) in all.iter().enumerate() {
        for right in &all[at + 1..] {
            assert_ne!(left.id, right.id, "{left} and {right}");
        }
    }
    assert_eq!((Pair::<u8>::DTYPE.size, Pair::<Pair<u16>>::DTYPE.size), (3, 18));
    assert!(Pair::<u8>::DTYPE.valid.is_none() && Pair::<bool>::DTYPE.valid.is_some());
    assert!(valid::<Pair<bool>>(&[1, 0, 1]) && !valid::<Pair<bool>>(&[1, 0, 2]));
}

#[test]
fn parameters_are_part_of_the_name() {
    let here = "spmd_core::element::tests::declared";
    assert_eq!(Pair::<f32>::DTYPE.to_string(), format!("{here}::Pair<f32>"));
    assert_eq!(Pair::<[u8; 3]>::DTYPE.to_string(), format!("{here}::Pair<[u8; 3]>"));
    assert_eq!(<[Wrapped<i8>; 4]>::DTYPE.to_string(), format!("[{here}::Wrapped<i8>; 4]"));
    assert_eq!(
        Tagged::<f32, u64, 10, { i8::MIN }>::DTYPE.to_string(),
        format!("{here}::Tagged<f32, u64, 10, -128>")
    );
    assert_eq!(Unit::<true, 'a'>::DTYPE.to_string(), format!("{here}::Unit<1, 97>"));
    type Deep = Wrapped<Wrapped<Wrapped<Wrapped<Wrapped<Wrapped<Wrapped<u8>>>>>>>;
    assert!(Deep::DTYPE.name.len() <= 256);
    assert_ne!(Deep::DTYPE, Wrapped::<Deep>::DTYPE);
}
