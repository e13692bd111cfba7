//! NVRTC, which compiles kernels: a table of its functions, loaded at the first use.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use libloading::Library;

use crate::error::GpuError;
use crate::library;

const NAMES: [&str; 3] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];
const PYTHON: [&str; 2] = ["nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"];

/// A handle of a program that is being compiled.
type Program = *mut c_void;
/// 0 is success.
type Code = c_int;

type Version = unsafe extern "C" fn(*mut c_int, *mut c_int) -> Code;

pub(crate) struct Nvrtc {
    version: Version,
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> Code,
    destroy: unsafe extern "C" fn(*mut Program) -> Code,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> Code,
    log_size: unsafe extern "C" fn(Program, *mut usize) -> Code,
    log: unsafe extern "C" fn(Program, *mut c_char) -> Code,
    cubin_size: unsafe extern "C" fn(Program, *mut usize) -> Code,
    cubin: unsafe extern "C" fn(Program, *mut c_char) -> Code,
    /// Where it was found.
    pub(crate) path: String,
    _library: Library,
}

impl Nvrtc {
    /// The one of this process.
    pub(crate) fn get() -> Result<&'static Nvrtc, GpuError> {
        static NVRTC: OnceLock<Result<Nvrtc, GpuError>> = OnceLock::new();
        NVRTC.get_or_init(Nvrtc::load).as_ref().map_err(GpuError::clone)
    }

    fn load() -> Result<Nvrtc, GpuError> {
        let (library, path) = library::open("SPMD_NVRTC_LIB", &NAMES, &PYTHON)
            .map_err(|tried| GpuError::NvrtcMissing { tried })?;
        let mut found_version = None;
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: NVRTC's function of this name has had the type of the field that it goes
                // to since version 11.1; the library stays loaded as long as the table.
                *unsafe { library.get(concat!($name, "\0").as_bytes()) }.map_err(|_| {
                    let (library, name) = (path.clone(), $name);
                    GpuError::SymbolMissing { library, name, found_version }
                })?
            };
        }
        let version = function!("nvrtcVersion");
        found_version = Some(version_by(version));
        Ok(Nvrtc {
            version,
            create: function!("nvrtcCreateProgram"),
            destroy: function!("nvrtcDestroyProgram"),
            compile: function!("nvrtcCompileProgram"),
            log_size: function!("nvrtcGetProgramLogSize"),
            log: function!("nvrtcGetProgramLog"),
            cubin_size: function!("nvrtcGetCUBINSize"),
            cubin: function!("nvrtcGetCUBIN"),
            path,
            _library: library,
        })
    }

    /// Major and minor.
    pub(crate) fn version(&self) -> (i32, i32) {
        version_by(self.version)
    }

    /// Machine code for devices of an architecture (90 is `sm_90`).
    ///
    /// Errors: what the compiler says of the source.
    pub(crate) fn compile(
        &self,
        kernel: &str,
        source: &CStr,
        architecture: u32,
        definitions: &[String],
    ) -> Result<Vec<u8>, GpuError> {
        let failed = |log: String| GpuError::Compile { kernel: kernel.into(), architecture, log };
        let fixed = [
            format!("--gpu-architecture=sm_{architecture}"),
            "--std=c++17".into(),
            // A product and a sum that become one step are rounded once: other bits than the host's.
            "--fmad=false".into(),
            "--device-int128".into(),
        ];
        let options: Vec<CString> = fixed
            .iter()
            .chain(definitions)
            .map(|option| CString::new(option.as_str()))
            .collect::<Result<_, _>>()
            .map_err(|_| failed("an option has a zero byte".into()))?;
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let mut program = Compilation { nvrtc: self, program: ptr::null_mut() };
        // SAFETY: source, name and options are strings that end with zero, and live until the calls
        // return; there are no headers.
        let code = unsafe {
            let name = c"spmd.cu".as_ptr();
            (self.create)(&mut program.program, source.as_ptr(), name, 0, ptr::null(), ptr::null())
        };
        if code != 0 {
            return Err(failed(format!("nvrtcCreateProgram gives {code}")));
        }
        // SAFETY: as above; the program was just made.
        let code =
            unsafe { (self.compile)(program.program, options.len() as c_int, options.as_ptr()) };
        if code != 0 {
            let log = program.bytes(self.log_size, self.log).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            return Err(failed(log.trim_end_matches(['\0', '\n']).into()));
        }
        let code = program.bytes(self.cubin_size, self.cubin);
        code.filter(|code| !code.is_empty()).ok_or_else(|| failed("it gives no code".into()))
    }
}

/// What `nvrtcVersion` says.
fn version_by(function: Version) -> (i32, i32) {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: it writes two numbers.
    unsafe { function(&mut major, &mut minor) };
    (major, minor)
}

impl std::fmt::Debug for Nvrtc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nvrtc").field("path", &self.path).finish_non_exhaustive()
    }
}

/// A program that is being compiled.
struct Compilation<'a> {
    nvrtc: &'a Nvrtc,
    program: Program,
}

impl Compilation<'_> {
    /// What the second function writes, of the size that the first one gives.
    fn bytes(
        &self,
        size: unsafe extern "C" fn(Program, *mut usize) -> Code,
        get: unsafe extern "C" fn(Program, *mut c_char) -> Code,
    ) -> Option<Vec<u8>> {
        let mut bytes = 0;
        // SAFETY: the program lives as long as `self`; it writes one number.
        if unsafe { size(self.program, &mut bytes) } != 0 {
            return None;
        }
        let mut content = vec![0u8; bytes];
        // SAFETY: it writes as many bytes as it has just said.
        (unsafe { get(self.program, content.as_mut_ptr().cast()) } == 0).then_some(content)
    }
}

impl Drop for Compilation<'_> {
    fn drop(&mut self) {
        if !self.program.is_null() {
            // SAFETY: it was made, and nobody uses it any more.
            unsafe { (self.nvrtc.destroy)(&mut self.program) };
        }
    }
}
