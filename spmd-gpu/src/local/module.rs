//! Kernels, compiled at their first use and kept to the end of the process.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;

use cudarc::driver::CudaFunction;
use parking_lot::Mutex;

use super::types::Operation;
use crate::device::Device;
use crate::driver::Checked;
use crate::error::GpuError;
use crate::nvrtc::Nvrtc;

const NUMBERS: &str = concat!(include_str!("common.cu"), include_str!("numbers.cu"));
const FOLD: &str = include_str!("fold.cu");
const COPIES: &str = concat!(include_str!("common.cu"), include_str!("copies.cu"));

/// What a kernel is compiled for: 14 numbers, 15 located ones and some more, 13 operations and those of
/// the program's source, and up to 64 ranks bound how many there can be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) kernel: &'static str,
    pub(super) fold: Option<Fold>,
}

/// What is folded.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Fold {
    /// The scalar that elements are made of.
    pub(super) element: String,
    pub(super) operation: Operation,
    pub(super) ranks: usize,
}

impl Key {
    /// Errors: the body of an operation has a zero byte.
    fn source(&self) -> Result<CString, GpuError> {
        let source = match &self.fold {
            None => COPIES.to_owned(),
            Some(Fold { operation: Operation::Named(_), .. }) => [NUMBERS, FOLD].concat(),
            Some(Fold { operation: Operation::Own(body), .. }) => {
                let (before, after) = OWN;
                [NUMBERS, before, *body, after, FOLD].concat()
            }
        };
        CString::new(source).map_err(|_| GpuError::Compile {
            kernel: self.kernel.into(),
            architecture: 0,
            log: "the body of the operation has a zero byte".into(),
        })
    }

    fn definitions(&self) -> Vec<String> {
        match &self.fold {
            None => Vec::new(),
            Some(Fold { element, operation, ranks }) => {
                let name = operation.name();
                let mut all = vec![
                    format!("-DELEMENT={element}"),
                    format!("-DOPERATION={name}"),
                    format!("-DRANKS={ranks}"),
                ];
                // Only what is asked for: it is compiled while ranks wait.
                all.extend((self.kernel == "fold_prefixes").then(|| "-DPREFIXES".into()));
                all
            }
        }
    }
}

/// Around the body of an operation of the program's own.
const OWN: (&str, &str) =
    ("struct Own {\n__device__ static ELEMENT of(ELEMENT left, ELEMENT right) {\n", "\n}\n};\n");

/// A kernel that is there when somebody has asked for it. Others are not held up meanwhile.
type Slot = Arc<Mutex<Option<CudaFunction>>>;

/// The kernel, on a device.
///
/// Errors: there is no compiler; the device has no room.
pub(super) fn kernel(device: &Device, key: Key) -> Result<CudaFunction, GpuError> {
    static KERNELS: Mutex<Option<HashMap<(u32, Key), Slot>>> = Mutex::new(None);
    let slot = {
        let mut kernels = KERNELS.lock();
        let place = (device.ordinal(), key.clone());
        kernels.get_or_insert_default().entry(place).or_default().clone()
    };
    let mut slot = slot.lock();
    if let Some(kernel) = &*slot {
        return Ok(kernel.clone());
    }
    let architecture = device.architecture()?;
    let code =
        Nvrtc::get()?.compile(key.kernel, &key.source()?, architecture, &key.definitions())?;
    let kernel = device.load(code)?.load_function(key.kernel).checked("cuModuleGetFunction")?;
    Ok(slot.insert(kernel).clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: [&str; 12] =
        ["u8", "u16", "u32", "u64", "u128", "i8", "i16", "i32", "i64", "i128", "f32", "f64"];
    const HALVES: [&str; 2] = ["f16", "bf16"];
    const ORDERED: [&str; 4] = ["Sum", "Prod", "Min", "Max"];
    const BITS: [&str; 5] = ["BitAnd", "BitOr", "BitXor", "LogicalAnd", "LogicalOr"];

    fn compile(nvrtc: &Nvrtc, architecture: u32, key: &Key) {
        let source = key.source().expect("it is a string");
        let code = nvrtc.compile(key.kernel, &source, architecture, &key.definitions());
        assert!(code.as_ref().is_ok_and(|code| code.starts_with(b"\x7fELF")), "{key:?}: {code:?}");
    }

    fn fold(element: &str, operation: Operation, ranks: usize) -> Key {
        Key { kernel: "fold_all", fold: Some(Fold { element: element.into(), operation, ranks }) }
    }

    fn folds(element: &str, operations: &[&'static str], ranks: usize) -> Vec<Key> {
        operations.iter().map(|name| fold(element, Operation::Named(name), ranks)).collect()
    }

    const ARCHITECTURES: [u32; 4] = [75, 80, 90, 100];

    /// The kernels of the examples, as they stand there.
    const EXAMPLES: [&str; 3] = [
        include_str!("../../../examples/heat_gpu.rs"),
        include_str!("../../../examples/digits/gpu.rs"),
        include_str!("../../../examples/sum_anywhere.rs"),
    ];

    /// Every kernel on every architecture: without a device.
    #[test]
    fn every_kernel_compiles() {
        let nvrtc = match Nvrtc::get() {
            Ok(nvrtc) => nvrtc,
            Err(missing) => {
                let required = std::env::var("SPMD_REQUIRE_NVRTC").is_ok_and(|value| value == "1");
                assert!(!required, "SPMD_REQUIRE_NVRTC=1, and {missing}");
                return println!("SKIPPED: {missing}");
            }
        };
        let mut keys = vec![
            Key { kernel: "spread_pieces", fold: None },
            Key { kernel: "copy_pieces", fold: None },
        ];
        for ranks in [1, 3, 64] {
            keys.extend(folds("f32", &["Sum"], ranks));
        }
        let larger = Operation::Own("return fabs(right) > fabs(left) ? right : left;");
        keys.push(fold("f64", larger, 3));
        let replacing = ["Replace", "NoOp"];
        for number in NUMBERS {
            keys.extend(folds(number, &[&ORDERED[..], &replacing].concat(), 3));
            keys.extend(folds(&format!("Located<{number}>"), &["MinLoc", "MaxLoc"], 3));
            if !number.starts_with('f') {
                keys.extend(folds(number, &BITS, 3));
            }
        }
        for half in HALVES {
            keys.extend(folds(half, &[&ORDERED[..], &replacing].concat(), 3));
            keys.extend(folds(&format!("Located<{half}>"), &["MinLoc", "MaxLoc"], 3));
        }
        for part in ["f32", "f64"] {
            let complex = format!("Complex<{part}>");
            keys.extend(folds(&complex, &["Sum", "Prod", "Replace", "NoOp"], 3));
        }
        // Of each type one, and of one type all: they call what the other kernels do.
        let full = std::env::var("SPMD_TEST_FULL").is_ok_and(|value| value == "1");
        let is_one_of = |fold: &Fold| {
            fold.element == "i32" || ["Sum", "MinLoc"].contains(&fold.operation.name())
        };
        let folds =
            keys.iter().filter(|key| key.fold.as_ref().is_some_and(|it| full || is_one_of(it)));
        let prefixes = folds.map(|key| Key { kernel: "fold_prefixes", ..key.clone() });
        keys.extend(prefixes.collect::<Vec<_>>());
        let sources = EXAMPLES.iter().flat_map(|text| text.split("r#\"").skip(1));
        let sources: Vec<&str> = sources.filter_map(|it| Some(it.split_once("\"#")?.0)).collect();
        assert_eq!(sources.iter().filter(|it| it.contains("__global__")).count(), EXAMPLES.len());
        let digits =
            ["PIXELS=64", "HIDDEN=48", "DIGITS=10", "WEIGHTS=3610"].map(|it| format!("-D{it}"));
        std::thread::scope(|scope| {
            for architecture in ARCHITECTURES {
                let (keys, sources, digits) = (&keys, &sources, &digits);
                scope.spawn(move || {
                    keys.iter().for_each(|key| compile(nvrtc, architecture, key));
                    for source in sources {
                        let source = CString::new(*source).expect("it has no zero byte");
                        let code = nvrtc.compile("of an example", &source, architecture, digits);
                        assert!(code.is_ok(), "{code:?}");
                    }
                });
            }
        });
    }
}
