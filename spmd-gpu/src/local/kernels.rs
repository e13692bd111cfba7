//! The kernels of `fold.cu` and `copies.cu`, as the host starts them.

use cudarc::driver::{DeviceRepr, LaunchConfig, PushKernelArg};

use super::module::{Key, kernel};
use crate::device::Device;
use crate::driver::Checked;
use crate::error::GpuError;

type Result<T, E = GpuError> = std::result::Result<T, E>;

/// As many ranks fit into the arguments of a kernel.
pub(super) const MOST_RANKS: usize = 64;
/// Threads of a block.
const THREADS: u32 = 256;
/// Blocks for each multiprocessor, which go through the arrays in turn.
const BLOCKS: u32 = 16;
/// Bytes that a thread takes at a time.
const WIDE: usize = 16;

/// An address for each rank, as the kernels take them; 0 where there is none.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Ranks([u64; MOST_RANKS]);

/// Bytes that go elsewhere.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Piece {
    pub(super) from: u64,
    /// Where it goes in each target; of a copy, its target.
    pub(super) into: u64,
    pub(super) bytes: u64,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Pieces([Piece; MOST_RANKS]);

// SAFETY: the kernels' struct has the same fields of eight bytes in the same order.
unsafe impl DeviceRepr for Ranks {}

// SAFETY: as above, of `Pieces` and of `Copies`.
unsafe impl DeviceRepr for Pieces {}

impl Ranks {
    pub(super) fn of(places: impl Iterator<Item = u64>) -> Ranks {
        let mut ranks = Ranks([0; MOST_RANKS]);
        ranks.0.iter_mut().zip(places).for_each(|(rank, place)| *rank = place);
        ranks
    }

    fn aligned(&self) -> bool {
        self.0.iter().all(|place| place.is_multiple_of(WIDE as u64))
    }
}

impl Pieces {
    fn of(pieces: &[Piece]) -> Pieces {
        let mut table = Pieces([Piece::default(); MOST_RANKS]);
        table.0[..pieces.len()].copy_from_slice(pieces);
        table
    }
}

/// Starts kernels in the stream of this rank on a device.
#[derive(Clone, Copy)]
pub(super) struct Kernels<'a> {
    pub(super) device: &'a Device,
}

impl Kernels<'_> {
    /// Folds the `count` scalars of `size` bytes at all inputs, and gives the results to all outputs.
    ///
    /// # Safety
    /// Each input has so many values of the type that `key` names, and each output room for them,
    /// until the stream has done it; nobody else writes them. An output is an input of the same
    /// rank, or overlaps none.
    pub(super) unsafe fn fold(
        &self,
        key: Key,
        inputs: Ranks,
        outputs: Ranks,
        count: usize,
        size: usize,
    ) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let lanes = if WIDE.is_multiple_of(size) { WIDE / size } else { 1 };
        let aligned = lanes == 1 || (inputs.aligned() && outputs.aligned());
        let packs = if aligned { count / lanes } else { 0 };
        let work = if aligned { packs.max(1) } else { count };
        let kernel = kernel(self.device, key)?;
        let (packs, count) = (packs as u64, count as u64);
        let mut launch = self.device.stream().launch_builder(&kernel);
        launch.arg(&inputs).arg(&outputs).arg(&packs).arg(&count);
        // SAFETY: the kernel takes these arguments. It reads the inputs, and writes the outputs that
        // are not 0 (this function's contract), each thread what it has read itself.
        unsafe { launch.launch(self.grid(work, 1)?) }.checked("cuLaunchKernel")?;
        Ok(())
    }

    /// Gives each target every piece, at the piece's place there.
    ///
    /// # Safety
    /// The targets have room for that until the stream has done it, apart from the pieces but where
    /// a piece is at its place already.
    pub(super) unsafe fn spread(&self, pieces: &[Piece], targets: &[u64]) -> Result<()> {
        let longest = pieces.iter().map(|piece| piece.bytes).max().unwrap_or(0);
        if longest == 0 || targets.is_empty() {
            return Ok(());
        }
        let (count, targets) = (targets.len() as u32, Ranks::of(targets.iter().copied()));
        let aligned = targets.aligned() && pieces.iter().all(Piece::is_aligned);
        let kernel = kernel(self.device, Key { kernel: "spread_pieces", fold: None })?;
        let grid = self.grid(steps(longest, aligned), pieces.len())?;
        let (pieces, aligned) = (Pieces::of(pieces), u32::from(aligned));
        let mut launch = self.device.stream().launch_builder(&kernel);
        launch.arg(&pieces).arg(&targets).arg(&count).arg(&aligned);
        // SAFETY: the kernel takes these arguments, and writes only to the pieces' places in the
        // targets (this function's contract).
        unsafe { launch.launch(grid) }.checked("cuLaunchKernel")?;
        Ok(())
    }

    /// Copies each piece to its target.
    ///
    /// # Safety
    /// There is room for it until the stream has done it, apart from all pieces but where a piece is
    /// at its place already.
    pub(super) unsafe fn copy(&self, pieces: impl Iterator<Item = Piece>) -> Result<()> {
        let pieces: Vec<Piece> = pieces.filter(|it| it.bytes > 0 && it.from != it.into).collect();
        if pieces.is_empty() {
            return Ok(());
        }
        let kernel = kernel(self.device, Key { kernel: "copy_pieces", fold: None })?;
        for some in pieces.chunks(MOST_RANKS) {
            let aligned = some.iter().all(Piece::is_aligned);
            let longest = some.iter().map(|piece| piece.bytes).max().unwrap_or(0);
            let grid = self.grid(steps(longest, aligned), some.len())?;
            let (some, aligned) = (Pieces::of(some), u32::from(aligned));
            let mut launch = self.device.stream().launch_builder(&kernel);
            launch.arg(&some).arg(&aligned);
            // SAFETY: the kernel takes these arguments, and writes only to the pieces' targets (this
            // function's contract).
            unsafe { launch.launch(grid) }.checked("cuLaunchKernel")?;
        }
        Ok(())
    }

    /// A grid of so many rows, of at most as many threads as the device works on at a time.
    fn grid(&self, work: usize, rows: usize) -> Result<LaunchConfig> {
        let most = (self.device.multiprocessors()? * BLOCKS / rows as u32).max(1);
        let blocks = work.div_ceil(THREADS as usize).clamp(1, most as usize) as u32;
        let grid_dim = (blocks, rows as u32, 1);
        Ok(LaunchConfig { grid_dim, block_dim: (THREADS, 1, 1), shared_mem_bytes: 0 })
    }
}

impl Piece {
    fn is_aligned(&self) -> bool {
        let wide = |place: u64| place.is_multiple_of(WIDE as u64);
        self.bytes == 0 || (wide(self.from) && wide(self.into))
    }
}

/// Steps of the longest piece.
fn steps(bytes: u64, aligned: bool) -> usize {
    let step = if aligned { WIDE as u64 } else { 1 };
    bytes.div_ceil(step) as usize
}
