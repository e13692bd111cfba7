//! What `numbers.cu` calls the types and operations of `spmd`.

use spmd_core::DType;
use spmd_core::internal::ErasedOp;

/// The name of the scalar that an element is made of.
pub(super) fn scalar(dtype: &DType) -> Option<String> {
    if let Some(value) = dtype.name.strip_prefix("Located<").and_then(|it| it.strip_suffix('>')) {
        return number(value).map(|value| format!("Located<{value}>"));
    }
    let known = match dtype.name {
        "bool" => "u8",
        "char" => "u32",
        "Complex<f32>" => "Complex<f32>",
        "Complex<f64>" => "Complex<f64>",
        name => return number(name).map(str::to_owned),
    };
    Some(known.into())
}

fn number(name: &str) -> Option<&'static str> {
    const NUMBERS: [&str; 14] = [
        "u8", "u16", "u32", "u64", "u128", "i8", "i16", "i32", "i64", "i128", "f32", "f64", "f16",
        "bf16",
    ];
    match name {
        "usize" => Some("u64"),
        "isize" => Some("i64"),
        name => NUMBERS.into_iter().find(|it| *it == name),
    }
}

/// An operation, as the kernels know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Operation {
    /// One of `numbers.cu`.
    Named(&'static str),
    /// The body of a function of the program's own.
    Own(&'static str),
}

impl Operation {
    /// What the kernels call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Operation::Named(name) => name,
            Operation::Own(_) => "Own",
        }
    }
}

/// `None` if it is done on the host alone.
pub(super) fn operation(op: &ErasedOp<'_>, dtype: &DType) -> Option<Operation> {
    // What the program says combines whole elements, and the kernels see the scalars of arrays.
    let own = || op.device_body().filter(|_| dtype.lanes == 1).map(Operation::Own);
    named(op).map(Operation::Named).or_else(own)
}

/// The name of one of `spmd`'s own operations, whatever it is called with.
fn named(op: &ErasedOp<'_>) -> Option<&'static str> {
    const OPERATIONS: [&str; 13] = [
        "Sum",
        "Prod",
        "Min",
        "Max",
        "BitAnd",
        "BitOr",
        "BitXor",
        "LogicalAnd",
        "LogicalOr",
        "MinLoc",
        "MaxLoc",
        "Replace",
        "NoOp",
    ];
    // A program's own operation has another identity, also if it has such a name.
    OPERATIONS.into_iter().find(|name| op.id() == ErasedOp::id_of(name))
}
