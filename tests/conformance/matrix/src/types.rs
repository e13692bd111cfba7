//! Every element type, and every operation on it beside what it should do.
//!
//! With `few_types` (`cargo xtask test sanitizer races`, without `--full`) it is one type of each size
//! and kind: what a sanitizer looks for differs no further, and all of them take minutes to compile.

use half::{bf16, f16};
use num_complex::Complex;
use spmd_conformance::cases::{Plan, Visit};
use spmd_conformance::declared::{Moments, Phase};
use spmd_conformance::element::{Flagged, Particle};
use spmd_conformance::fold::Fold;
use spmd_core::*;

/// Shows the visitor all of them.
pub fn visit_all(visit: &mut Plan<'_>) -> Result<()> {
    visit_built_in(visit)?;
    derived(visit)?;
    own_operations(visit)
}

/// Shows it the library's own operations, which devices have, and types of programs, which are moved there.
pub fn visit_on_device(visit: &mut Plan<'_>) -> Result<()> {
    visit_built_in(visit)?;
    visit.of_type::<Particle>()?;
    visit.of_type::<Flagged>()?;
    visit.of_type::<Moments<i16>>()?;
    visit.of_type::<Phase>()
}

fn visit_built_in(visit: &mut Plan<'_>) -> Result<()> {
    integers(visit)?;
    floats(visit)?;
    truth_and_text(visit)?;
    composed(visit)
}

/// `type: Operation => oracle, ..;`
macro_rules! visit {
    ($visit:expr; $($t:ty: $($op:expr => $oracle:expr),*;)*) => {$(
        $visit.of_type::<$t>()?;
        $(
            let oracle: fn($t, $t) -> $t = $oracle;
            $visit.of_operation(&Fold { op: $op, oracle })?;
        )*
    )*};
}

fn integers(visit: &mut Plan<'_>) -> Result<()> {
    macro_rules! each {
        ($($t:ty)*) => { visit! { visit; $(
            $t:
            Sum => |a, b| a.wrapping_add(b),
            Prod => |a, b| a.wrapping_mul(b),
            Min => |a, b| if a < b { a } else { b },
            Max => |a, b| if a > b { a } else { b },
            BitAnd => |a, b| a & b,
            BitOr => |a, b| a | b,
            BitXor => |a, b| a ^ b,
            LogicalAnd => |a, b| if a != 0 && b != 0 { 1 } else { 0 },
            LogicalOr => |a, b| if a != 0 || b != 0 { 1 } else { 0 };
        )* } };
    }
    each! { u8 i64 u128 }
    #[cfg(not(few_types))]
    each! { u16 u32 u64 usize i8 i16 i32 i128 isize }
    Ok(())
}

/// The lesser of two in the order −0 < 0 < NaN, but NaN if either is.
macro_rules! least {
    ($a:expr, $b:expr) => {
        if $a.is_nan() || $b.is_nan() { $a.max_by($b) } else { $a.min_by($b) }
    };
}

trait TotalOrder: Copy {
    fn order(self, other: Self) -> std::cmp::Ordering;
    fn max_by(self, other: Self) -> Self {
        if self.order(other).is_ge() { self } else { other }
    }
    fn min_by(self, other: Self) -> Self {
        if self.order(other).is_le() { self } else { other }
    }
}

macro_rules! total_order {
    ($($t:ty)*) => {$(
        impl TotalOrder for $t {
            fn order(self, other: $t) -> std::cmp::Ordering {
                self.total_cmp(&other)
            }
        }
    )*};
}

total_order! { f32 f64 f16 bf16 }

fn floats(visit: &mut Plan<'_>) -> Result<()> {
    visit! { visit;
        f32:
        Sum => |a, b| a + b,
        Prod => |a, b| a * b,
        Min => |a, b| least!(a, b),
        Max => |a, b| a.max_by(b);
        f16:
        Sum => |a, b| f16::from_f32(a.to_f32() + b.to_f32()),
        Prod => |a, b| f16::from_f32(a.to_f32() * b.to_f32()),
        Min => |a, b| least!(a, b),
        Max => |a, b| a.max_by(b);
        Complex<f64>:
        Sum => |a, b| Complex::new(a.re + b.re, a.im + b.im),
        Prod => |a, b| Complex::new(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re);
    }
    #[cfg(not(few_types))]
    visit! { visit;
        f64:
        Sum => |a, b| a + b,
        Prod => |a, b| a * b,
        Min => |a, b| least!(a, b),
        Max => |a, b| a.max_by(b);
        bf16:
        Sum => |a, b| bf16::from_f32(a.to_f32() + b.to_f32()),
        Prod => |a, b| bf16::from_f32(a.to_f32() * b.to_f32()),
        Min => |a, b| least!(a, b),
        Max => |a, b| a.max_by(b);
        Complex<f32>:
        Sum => |a, b| Complex::new(a.re + b.re, a.im + b.im),
        Prod => |a, b| Complex::new(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re);
    }
    Ok(())
}

fn truth_and_text(visit: &mut Plan<'_>) -> Result<()> {
    visit! { visit;
        bool:
        Min => |a, b| a && b,
        Max => |a, b| a || b,
        BitAnd => |a, b| a && b,
        BitOr => |a, b| a || b,
        BitXor => |a, b| a != b,
        LogicalAnd => |a, b| a && b,
        LogicalOr => |a, b| a || b;
        char:
        Min => |a, b| if a < b { a } else { b },
        Max => |a, b| if a > b { a } else { b };
    }
    Ok(())
}

/// Of two located values the one with the value that `wins`, and of equal ones that with the
/// lower index.
fn located<T: Copy + PartialEq>(
    a: Located<T>,
    b: Located<T>,
    wins: fn(&T, &T) -> bool,
) -> Located<T>
where
    Located<T>: Element,
{
    let first =
        if a.value() == b.value() { a.index() <= b.index() } else { wins(&a.value(), &b.value()) };
    if first { a } else { b }
}

fn composed(visit: &mut Plan<'_>) -> Result<()> {
    macro_rules! each_located {
        ($($t:ty)*) => { visit! { visit; $(
            Located<$t>:
            MinLoc => |a, b| located(a, b, <$t>::lt),
            MaxLoc => |a, b| located(a, b, <$t>::gt);
        )* } };
    }
    each_located! { f64 u8 }
    #[cfg(not(few_types))]
    each_located! { f32 i32 i64 }
    visit! { visit;
        [f32; 3]:
        Sum => |a, b| std::array::from_fn(|lane| a[lane] + b[lane]);
        [i16; 2]:
        Max => |a, b| std::array::from_fn(|lane| a[lane].max(b[lane]));
        [[u8; 2]; 3]:
        BitXor => |a, b| std::array::from_fn(|row| [a[row][0] ^ b[row][0], a[row][1] ^ b[row][1]]);
        [bool; 5]:
        LogicalAnd => |a, b| std::array::from_fn(|lane| a[lane] && b[lane]);
        [Complex<f64>; 2]:
        Sum => |a, b| [a[0] + b[0], a[1] + b[1]];
    }
    Ok(())
}

/// Operations of the library on types of the program.
fn derived(visit: &mut Plan<'_>) -> Result<()> {
    /// Each field by itself.
    macro_rules! by_field {
        ($($t:ty: $op:expr => $of:expr;)*) => { visit! { visit; $(
            Moments<$t>:
            $op => |a, b| {
                let of: fn($t, $t) -> $t = $of;
                let sums = [of(a.sums[0], b.sums[0]), of(a.sums[1], b.sums[1])];
                Moments { sums, last: of(a.last, b.last) }
            };
        )* } };
    }
    by_field! { f32: Sum => |a, b| a + b; }
    #[cfg(not(few_types))]
    by_field! { i16: Max => i16::max; f64: Prod => |a, b| a * b; bool: Min => |a, b| a && b; }
    visit! { visit;
        Phase:
        Max => |a, b| if a as u8 > b as u8 { a } else { b };
    }
    Ok(())
}

/// The product of 2 × 2 matrices, which does not commute.
fn product(a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
    let at = |row: usize, column: usize| a[2 * row] * b[column] + a[2 * row + 1] * b[2 + column];
    [at(0, 0), at(0, 1), at(1, 0), at(1, 1)]
}

/// Keeps what the left one has, and sums up the rest.
fn merge(a: Particle, b: Particle) -> Particle {
    let position = std::array::from_fn(|axis| a.position[axis] + b.position[axis]);
    Particle { position, charge: a.charge.wrapping_sub(b.charge), cell: a.cell }
}

fn later(a: Flagged, b: Flagged) -> Flagged {
    let on = std::array::from_fn(|flag| a.on[flag] != b.on[flag]);
    Flagged { letter: a.letter.max(b.letter), on, weight: a.weight.rotate_left(1) ^ b.weight }
}

fn own_operations(visit: &mut Plan<'_>) -> Result<()> {
    visit! { visit;
        [f64; 4]: Op::new(product).non_commutative() => product;
        Particle: Op::new(merge).non_commutative() => merge;
        Flagged: Op::new(later).non_commutative() => later;
    }
    // Not even associative: it shows the order.
    visit! { visit;
        [u32; 1]:
        Op::new(|a: [u32; 1], b: [u32; 1]| [a[0].wrapping_mul(31).wrapping_add(b[0])])
            .non_commutative()
        => |a, b| [a[0].wrapping_mul(31).wrapping_add(b[0])];
    }
    visit.of_operation(&Fold { op: Op::new(|a: f32, b: f32| a - b), oracle: |a, b| a - b })
}
