//! `f16` and `bf16` to `f32` and back without a branch, so that loops over them are vectorised
//! on every machine. Rounding is to nearest, ties to even, and NaN stays NaN: the same numbers as
//! the conversions of the crate `half`, which ask the processor for its features at each element.

use half::{bf16, f16};

/// The bits of an exponent in `f32`.
const fn exponent(bits: u32) -> u32 {
    bits << 23
}

/// A 16-bit type that computes in `f32`.
pub(super) trait HalfFloat {
    /// The same number.
    fn widen(self) -> f32;
    /// The nearest number of this type.
    fn round(number: f32) -> Self;
}

impl HalfFloat for f16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        let bits = u32::from(self.to_bits());
        let (sign, magnitude) = ((bits & 0x8000) << 16, (bits & 0x7fff) << 13);
        // The exponents of `f32` are biased by 112 more; infinity and NaN have the highest in both.
        let extra = if magnitude >= exponent(31) { 224 } else { 112 };
        let normal = magnitude + exponent(extra);
        // A subnormal number is the mantissa above 2⁻¹⁴, without its leading one.
        let least = exponent(113);
        let subnormal = (f32::from_bits(magnitude + least) - f32::from_bits(least)).to_bits();
        f32::from_bits(sign | if magnitude < exponent(1) { subnormal } else { normal })
    }

    #[inline(always)]
    fn round(number: f32) -> f16 {
        let bits = number.to_bits();
        let (sign, magnitude) = (bits & 0x8000_0000, bits & 0x7fff_ffff);
        // Half a unit in the last place, a bit less if it is even; a carry goes to the exponent.
        let odd = (magnitude >> 13) & 1;
        let normal = magnitude.wrapping_sub(exponent(112)).wrapping_add(0xfff + odd) >> 13;
        // Added to 0.5, the last bit of the mantissa is worth 2⁻²⁴, as in a subnormal `f16`.
        let half = 0.5_f32;
        let subnormal = (f32::from_bits(magnitude) + half).to_bits().wrapping_sub(half.to_bits());
        let finite = if magnitude < exponent(113) { subnormal } else { normal };
        let infinite = if number.is_nan() { 0x7e00 } else { 0x7c00 };
        let rounded = if magnitude >= exponent(143) { infinite } else { finite };
        f16::from_bits((sign >> 16 | rounded) as u16)
    }
}

impl HalfFloat for bf16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    #[inline(always)]
    fn round(number: f32) -> bf16 {
        let bits = number.to_bits();
        let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
        let quiet = bits | 0x0040_0000;
        bf16::from_bits((if number.is_nan() { quiet } else { rounded } >> 16) as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widens_every_value_as_half_does() {
        for bits in 0..=u16::MAX {
            let (f, b) = (f16::from_bits(bits), bf16::from_bits(bits));
            assert!(
                f.is_nan() && f.widen().is_nan() || f.widen().to_bits() == f.to_f32().to_bits()
            );
            assert!(
                b.is_nan() && b.widen().is_nan() || b.widen().to_bits() == b.to_f32().to_bits()
            );
        }
    }

    #[test]
    fn rounds_as_half_does() {
        // All exponents and signs, with mantissas at and beside each point where rounding turns.
        for high in 0..=u16::MAX {
            for low in
                [0, 1, 0x0fff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x7fff, 0x8000, 0x8001, 0xffff]
            {
                let number = f32::from_bits(u32::from(high) << 16 | low);
                let (f, b) = (f16::from_f32(number), bf16::from_f32(number));
                let (my_f, my_b) = (f16::round(number), bf16::round(number));
                assert!(f == my_f && f.to_bits() == my_f.to_bits() || f.is_nan() && my_f.is_nan());
                assert!(b == my_b && b.to_bits() == my_b.to_bits() || b.is_nan() && my_b.is_nan());
            }
        }
    }
}
