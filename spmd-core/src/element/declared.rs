//! The descriptions of types that a program has declared, for `#[derive(Element)]`.

use super::dtype::{DType, Field, Valid, hash, hash_text, identity};
use super::name::{Name, hash_name};

impl DType {
    /// The description of the struct `T`, for `#[derive(Element)]`: `fields` are all that it has,
    /// `valid` calls [`fields_valid`](DType::fields_valid).
    #[doc(hidden)]
    pub const fn structure<T>(name: &'static Name, fields: &[Field], valid: Valid) -> DType {
        let mut id = hash(name.id, fields.len() as u64);
        let mut checked = false;
        let mut at = 0;
        while at < fields.len() {
            let (name, offset, dtype) = fields[at];
            id = hash(hash(hash(id, hash_text(name)), offset as u64), dtype.id);
            checked |= dtype.valid.is_some();
            at += 1;
        }
        let valid = if checked { Some(valid) } else { None };
        DType::sized::<T>(name.text(), identity::<T>(id, checked), valid)
    }

    /// The description of the enum `T`, for `#[derive(Element)]`: `path` is its name behind its
    /// module's, `variants` are the names and values of all, and no others are `valid`.
    #[doc(hidden)]
    pub const fn enumeration<T>(
        path: &'static str,
        variants: &[(&'static str, i128)],
        valid: Valid,
    ) -> DType {
        let mut id = hash(hash_name(path), variants.len() as u64);
        let mut at = 0;
        while at < variants.len() {
            let (name, value) = variants[at];
            id = hash(hash(id, hash_text(name)), value as u64);
            at += 1;
        }
        DType::sized::<T>(path, identity::<T>(id, true), Some(valid))
    }
}
