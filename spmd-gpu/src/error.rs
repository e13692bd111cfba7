//! What can go wrong with a device.

use spmd_core::Error;

/// Why something could not be done on a device. Each says what to do.
///
/// As an [`Error`] of `spmd` it is what [`Error::User`] holds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// There is no driver.
    #[error(
        "the CUDA driver is not installed: none of {} can be loaded; install NVIDIA's driver, or \
         run where there is a GPU",
        list(tried)
    )]
    DriverMissing {
        /// The libraries that were looked for.
        tried: Vec<String>,
    },
    /// The driver is older than what this library is written for.
    #[error("the CUDA driver knows CUDA {}.{}, and 12.0 is needed; install a newer driver",
        found / 1000, found % 1000 / 10)]
    DriverTooOld {
        /// The version of CUDA that it knows, as 1000 times the major and 10 times the minor one.
        found: i32,
    },
    /// The driver shows no such device.
    #[error(
        "there is no device {ordinal}: the driver shows {count} (CUDA_VISIBLE_DEVICES is {}); \
         `nvidia-smi` lists those of the machine",
        std::env::var("CUDA_VISIBLE_DEVICES").map_or("not set".into(), |it| format!("'{it}'"))
    )]
    NoDevice {
        /// The device that was asked for.
        ordinal: u32,
        /// How many there are.
        count: u32,
    },
    /// The compiler of kernels is missing.
    #[error(
        "NVRTC, which compiles kernels, is not installed: none of {} can be loaded; install CUDA's \
         toolkit or the Python package nvidia-cuda-nvrtc, or name the library in SPMD_NVRTC_LIB",
        list(tried)
    )]
    NvrtcMissing {
        /// The libraries that were looked for.
        tried: Vec<String>,
    },
    /// NCCL is missing.
    #[error(
        "NCCL is not installed: none of {} can be loaded; install it or the Python package \
         nvidia-nccl-cu13, or name the library in SPMD_NCCL_LIB",
        list(tried)
    )]
    NcclMissing {
        /// The libraries that were looked for.
        tried: Vec<String>,
    },
    /// NCCL is older than what this library is written for.
    #[error("{library} is NCCL {}.{}, and 2.18 is needed; install a newer one", found.0, found.1)]
    NcclTooOld {
        /// Which library.
        library: String,
        /// Its version, major and minor.
        found: (i32, i32),
    },
    /// NCCL has failed: its communicator is of no use any more.
    #[error("{call}: {text}; NCCL_DEBUG=INFO has it say more")]
    Nccl {
        /// Which of its functions, or what it did.
        call: String,
        /// Its words.
        text: String,
    },
    /// Ranks that a device waits for have failed, or do something else.
    #[error(
        "the device waited for ranks that do not come: {text}; what the call was to bring is no result: see to the \
         rank that failed first"
    )]
    Abandoned {
        /// What has stopped them.
        text: String,
    },
    /// A rank sends another number of elements than its peer takes.
    #[error(
        "{call}: different counts: rank {from} of the communicator sends {sends} elements to rank \
         {to}, which takes {takes}; both must give the same number"
    )]
    Counts {
        /// The call, with its source line.
        call: String,
        /// Who sends, a rank of the communicator.
        from: usize,
        /// How many elements.
        sends: usize,
        /// Who takes them.
        to: usize,
        /// How many it takes.
        takes: usize,
    },
    /// A library lacks a function.
    #[error("{library}{} lacks the function {name}; install a newer version", known(*found_version))]
    SymbolMissing {
        /// Which library.
        library: String,
        /// Which function.
        name: &'static str,
        /// The library's version, major and minor, where it says one: of the driver, that of CUDA.
        found_version: Option<(i32, i32)>,
    },
    /// A kernel does not compile.
    #[error(
        "the kernel {kernel} does not compile for sm_{architecture}: {log}; mend the source where that \
         says, or, if NVRTC does not know the device, install a newer one"
    )]
    Compile {
        /// Which.
        kernel: String,
        /// The device's architecture.
        architecture: u32,
        /// What the compiler says.
        log: String,
    },
    /// The memory of the device does not suffice.
    #[error(
        "the device has no room for {asked} bytes: {free} are free; use smaller buffers, or fewer ranks on it"
    )]
    OutOfDeviceMemory {
        /// Bytes that were asked for.
        asked: usize,
        /// Bytes that are free.
        free: usize,
    },
    /// The host has no such memory that stays in its place.
    #[error(
        "the system has no {asked} bytes that stay in their place for the device ({text}); use smaller pinned buffers, \
         fewer ranks, or a smaller SPMD_SEGMENT, of which calls by way of the host pin some"
    )]
    OutOfPinnedMemory {
        /// Bytes that were asked for.
        asked: usize,
        /// The driver's words.
        text: String,
    },
    /// The host and the device have no memory that both use at a time.
    #[error(
        "device {ordinal} has no memory that the host uses as well: while a kernel runs it keeps the host from \
         managed memory, or another device of this process does, and it is not part of the processor; use \
         `device.zeros`, and copy (`to_vec`, `copy_from`)"
    )]
    NoUnifiedMemory {
        /// The device.
        ordinal: u32,
    },
    /// The host asks for the elements of a buffer that is the device's alone.
    #[error(
        "the host cannot use the buffer in place, as it is the device's alone: copy it (`to_vec`, `copy_from`), \
         or make it by `DeviceBuffer::unified`"
    )]
    NotUnified,
    /// The device, or what runs there, has failed: nothing goes on in this process.
    #[error(
        "the device is lost in {call}: {text}; if a kernel has used memory that is not its own, `compute-sanitizer` finds \
         where; if not, the system's log (`dmesg`) says what became of the device"
    )]
    DeviceLost {
        /// Which function of the driver said so.
        call: &'static str,
        /// Its words.
        text: String,
    },
    /// The device is used by others alone.
    #[error(
        "the device is in use by another process alone ({text}); wait for that, or ask for another device"
    )]
    DeviceBusy {
        /// The driver's words.
        text: String,
    },
    /// A slice has another length than the buffer that it is copied to or from.
    #[error(
        "the slice has {given} elements, the device buffer {expected}; they must have the same number"
    )]
    Length {
        /// Elements of the slice.
        given: usize,
        /// Elements of the buffer.
        expected: usize,
    },
    /// A buffer of zeros of a type of which zero is no value.
    #[error("zero is no value of {element}; make the buffer of values (`device.buffer_from`)")]
    ZeroIsNoValue {
        /// The type.
        element: String,
    },
    /// The buffers of a call lie on different devices.
    #[error(
        "{call}: buffers lie on device {first} and on device {other}, and not both can be used at \
         once; use one device, or the plane 'staged', which is for all"
    )]
    OtherDevice {
        /// The call, with its source line.
        call: String,
        /// The device of the first rank.
        first: u32,
        /// That of another one.
        other: u32,
    },
    /// The driver refused something else.
    #[error(
        "the CUDA driver refused {call}: {text}; its documentation says when, and `nvidia-smi` how the device is"
    )]
    Driver {
        /// Which of its functions.
        call: &'static str,
        /// Its words.
        text: String,
    },
}

fn list(tried: &[String]) -> String {
    tried.join(", ")
}

fn known(version: Option<(i32, i32)>) -> String {
    version.map_or_else(String::new, |(major, minor)| format!(" of version {major}.{minor}"))
}

impl From<GpuError> for Error {
    fn from(error: GpuError) -> Error {
        Error::user(error)
    }
}
