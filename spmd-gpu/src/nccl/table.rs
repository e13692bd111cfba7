//! NCCL's functions that are in use: a table, loaded at the first use.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use libloading::Library;

use crate::error::GpuError;
use crate::library;

const NAMES: [&str; 4] = ["libnccl.so.2", "libnccl.so", "librccl.so.1", "librccl.so"];
/// How many of these are NVIDIA's. AMD's, with the same functions, which was never tried, is looked for
/// where there is HIP: where something else stands for CUDA's driver.
const NVIDIAS: usize = 2;
const HIP: &str = "libamdhip64.so";
const PYTHON: [&str; 1] = ["nvidia/nccl/lib"];

/// What it is written for: 2.18.
const NEEDED: c_int = 21800;

/// A communicator of NCCL.
pub(super) type Handle = *mut c_void;
pub(super) type CudaStream = *mut c_void;
/// `ncclResult_t`, which may be any number.
pub(super) type Code = c_int;

pub(super) const SUCCESS: Code = 0;
pub(super) const IN_PROGRESS: Code = 7;

/// `ncclUniqueId`, by which ranks find each other.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct UniqueId(pub(super) [u8; 128]);

/// `ncclConfig_t` of 2.18, which later versions take as well.
#[repr(C)]
pub(super) struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    cga_cluster_size: c_int,
    min_ctas: c_int,
    max_ctas: c_int,
    net_name: *const c_char,
    split_share: c_int,
}

impl Config {
    /// Of a communicator whose calls do not wait for its peers, and whose parts share nothing with it:
    /// else to abort one would abort the others.
    pub(super) fn non_blocking() -> Config {
        let undefined = c_int::MIN;
        Config {
            size: size_of::<Config>(),
            magic: 0xcafe_beef,
            version: NEEDED as c_uint,
            blocking: 0,
            cga_cluster_size: undefined,
            min_ctas: undefined,
            max_ctas: undefined,
            net_name: std::ptr::null(),
            split_share: 0,
        }
    }
}

type Get<T> = unsafe extern "C" fn(*mut T) -> Code;
type On = unsafe extern "C" fn(Handle) -> Code;
type Group = unsafe extern "C" fn() -> Code;
type ToAll =
    unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, Handle, CudaStream) -> Code;
/// With an operation, or a root.
type With = unsafe extern "C" fn(
    *const c_void,
    *mut c_void,
    usize,
    c_int,
    c_int,
    Handle,
    CudaStream,
) -> Code;
type ToRoot = unsafe extern "C" fn(
    *const c_void,
    *mut c_void,
    usize,
    c_int,
    c_int,
    c_int,
    Handle,
    CudaStream,
) -> Code;

type Split = unsafe extern "C" fn(Handle, c_int, c_int, *mut Handle, *mut Config) -> Code;

/// What there is since 2.28; below, sends and receives in a group do.
pub(super) struct Whole {
    pub(super) alltoall: ToAll,
    pub(super) gather: With,
    pub(super) scatter: With,
}

/// The fields have the names of the functions, without `nccl`.
pub(crate) struct Table {
    pub(super) get_unique_id: Get<UniqueId>,
    pub(super) comm_init_rank_config:
        unsafe extern "C" fn(*mut Handle, c_int, UniqueId, c_int, *mut Config) -> Code,
    /// NCCL has it since 2.18; another library in its place may lack it.
    pub(super) comm_split: Option<Split>,
    pub(super) comm_finalize: On,
    pub(super) comm_destroy: On,
    pub(super) comm_abort: On,
    pub(super) comm_get_async_error: unsafe extern "C" fn(Handle, *mut Code) -> Code,
    pub(super) all_reduce: With,
    pub(super) broadcast: With,
    pub(super) reduce: ToRoot,
    pub(super) all_gather: ToAll,
    pub(super) reduce_scatter: With,
    pub(super) send:
        unsafe extern "C" fn(*const c_void, usize, c_int, c_int, Handle, CudaStream) -> Code,
    pub(super) recv:
        unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, Handle, CudaStream) -> Code,
    pub(super) group_start: Group,
    pub(super) group_end: Group,
    pub(super) whole: Option<Whole>,
    get_error_string: unsafe extern "C" fn(Code) -> *const c_char,
    /// 22705 is 2.27.5.
    version: c_int,
    /// Where it was found.
    pub(crate) path: String,
    _library: Library,
}

impl Table {
    /// The one of this process.
    pub(crate) fn get() -> Result<&'static Table, GpuError> {
        static TABLE: OnceLock<Result<Table, GpuError>> = OnceLock::new();
        TABLE.get_or_init(Table::load).as_ref().map_err(GpuError::clone)
    }

    fn load() -> Result<Table, GpuError> {
        let names = if library::is_there(HIP) { &NAMES[..] } else { &NAMES[..NVIDIAS] };
        let (library, path) = library::open("SPMD_NCCL_LIB", names, &PYTHON)
            .map_err(|tried| GpuError::NcclMissing { tried })?;
        let mut found_version = None;
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: NCCL's function of this name has had the type of the field that it goes to
                // since version 2.18 (2.28, for `Whole`), and the library stays loaded as long as the table. Of older
                // versions nothing but `ncclGetVersion` is called, which is as old as NCCL 2.
                *unsafe { library.get(concat!($name, "\0").as_bytes()) }
                    .map_err(|_| {
                        let (library, name) = (path.clone(), $name);
                        GpuError::SymbolMissing { library, name, found_version }
                    })?
            };
        }
        let get_version: Get<c_int> = function!("ncclGetVersion");
        let mut version = 0;
        // SAFETY: it writes one number.
        unsafe { get_version(&mut version) };
        let found = parts(version);
        found_version = Some(found);
        if version < NEEDED {
            return Err(GpuError::NcclTooOld { library: path, found });
        }
        let whole = match version >= 22800 {
            true => Some(Whole {
                alltoall: function!("ncclAlltoAll"),
                gather: function!("ncclGather"),
                scatter: function!("ncclScatter"),
            }),
            false => None,
        };
        // SAFETY: as that of `function`.
        let comm_split = unsafe { library.get(b"ncclCommSplit\0") }.ok().map(|it| *it);
        Ok(Table {
            get_unique_id: function!("ncclGetUniqueId"),
            comm_init_rank_config: function!("ncclCommInitRankConfig"),
            comm_split,
            comm_finalize: function!("ncclCommFinalize"),
            comm_destroy: function!("ncclCommDestroy"),
            comm_abort: function!("ncclCommAbort"),
            comm_get_async_error: function!("ncclCommGetAsyncError"),
            all_reduce: function!("ncclAllReduce"),
            broadcast: function!("ncclBroadcast"),
            reduce: function!("ncclReduce"),
            all_gather: function!("ncclAllGather"),
            reduce_scatter: function!("ncclReduceScatter"),
            send: function!("ncclSend"),
            recv: function!("ncclRecv"),
            group_start: function!("ncclGroupStart"),
            group_end: function!("ncclGroupEnd"),
            whole,
            get_error_string: function!("ncclGetErrorString"),
            version,
            path,
            _library: library,
        })
    }

    /// Major and minor.
    pub(crate) fn version(&self) -> (i32, i32) {
        parts(self.version)
    }

    /// A new id.
    pub(super) fn unique_id(&self) -> Result<UniqueId, GpuError> {
        let mut id = UniqueId([0; 128]);
        // SAFETY: it writes an id.
        let code = unsafe { (self.get_unique_id)(&mut id) };
        self.checked("ncclGetUniqueId", code)?;
        Ok(id)
    }

    /// Whether a function has done what it should.
    pub(super) fn checked(&self, call: &str, code: Code) -> Result<(), GpuError> {
        if code == SUCCESS {
            return Ok(());
        }
        // SAFETY: it takes any number, and gives a text that stays, or null.
        let text = unsafe { (self.get_error_string)(code) };
        let text = match text.is_null() {
            true => format!("error {code}"),
            // SAFETY: a string of the library, as just said.
            false => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
        };
        Err(GpuError::Nccl { call: call.into(), text })
    }
}

/// Since 2.9 a number has two digits each for what comes after the major version.
fn parts(version: c_int) -> (i32, i32) {
    match version < 10_000 {
        true => (version / 1000, version % 1000 / 100),
        false => (version / 10_000, version % 10_000 / 100),
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nccl").field("path", &self.path).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What needs no GPU of NVIDIA's own library: that the table fits it, and that it refuses what it
    /// cannot do with an error.
    #[test]
    fn the_real_library() {
        let table = match Table::get() {
            Ok(table) => table,
            Err(missing) => {
                let required = std::env::var("SPMD_REQUIRE_NCCL").is_ok_and(|value| value == "1");
                assert!(!required, "SPMD_REQUIRE_NCCL=1, and {missing}");
                return println!("SKIPPED: {missing}");
            }
        };
        println!("{table:?}, {:?}", table.version());
        assert!(table.version() >= (2, 18) && table.version().0 < 10);
        let id = table.unique_id().expect("it makes an id");
        assert!(id.0 != [0; 128] && id.0 != table.unique_id().expect("another one").0);
        if crate::probe().ready().is_ok() {
            return;
        }
        let (mut handle, mut config) = (std::ptr::null_mut(), Config::non_blocking());
        // SAFETY: place and configuration are this function's; it is the only rank.
        let mut code = unsafe { (table.comm_init_rank_config)(&mut handle, 1, id, 0, &mut config) };
        while code == IN_PROGRESS {
            // SAFETY: it is being made.
            unsafe { (table.comm_get_async_error)(handle, &mut code) };
        }
        let refused = table.checked("ncclCommInitRankConfig", code);
        println!("{refused:?}");
        assert!(matches!(refused, Err(GpuError::Nccl { .. })));
    }
}
