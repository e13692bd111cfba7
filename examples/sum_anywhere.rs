//! Sums of vectors, each on the host or on a GPU: where it should be over first.
//!
//!     cargo run --release --example sum_anywhere [vectors [length]]
//!     spmdrun --as gpus target/release/examples/sum_anywhere
//!
//! A task has code for both and asks which of it is to run; its data come there by themselves. The first sum is
//! for the GPU alone (`Scope::gpu(0)`): on a machine without one the host does it, and the task says so.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use spmd::gpu::cudarc::driver::{CudaFunction, LaunchConfig, PushKernelArg};
use spmd::gpu::{Device, DeviceBuffer};
use spmd::prelude::*;
use spmd::tasks::{Placed, Processor, Scope, ScopedTask, processor_here};

type Vector = Placed<Vec<f64>, DeviceBuffer<f64>>;

/// How many threads of the device add up a share each.
const SHARES: u32 = 256;

const KERNEL: &str = r#"
extern "C" __global__ void sum(const double *numbers, unsigned long long count, double *shares) {
    double all = 0.0;
    for (unsigned long long i = threadIdx.x; i < count; i += blockDim.x) all += numbers[i];
    shares[threadIdx.x] = all;
}
"#;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| match arguments.next() {
        Some(text) => text.parse::<usize>().map_err(Error::user),
        None => Ok(default),
    };
    let (vectors, length) = (number(32)?, number(1_000_000)?);
    spmd::run(|ctx| {
        let vector = |i: usize| vec![(i + ctx.rank()) as f64; length];
        let data: Vec<Data<Vector>> =
            (0..vectors).map(|i| Data::placed::<DeviceBuffer<f64>>(vector(i))).collect();
        let right = |i: usize| ((i + ctx.rank()) * length) as f64;
        ctx.datadeps(|d| {
            let spawn = |i: usize| {
                let task = d.task().name("sum").host_or_gpu();
                task.spawn((d.read(&data[i]),), sum)
            };
            if vectors > 0 {
                let first = ctx.with_scope(Scope::gpu(0), || Ok(spawn(0)))?;
                let found = *first.fetch()?;
                say(ctx, &format!("{}: {found}", first.explain()))?;
                assert_eq!(found, right(0));
            }
            // Two rounds: by the second one it is known how long it takes.
            for round in 0..2 {
                let sums: Vec<ScopedTask<'_, f64>> = (0..vectors).map(spawn).collect();
                for (i, sum) in sums.iter().enumerate() {
                    assert_eq!(*sum.fetch()?, right(i));
                }
                if let Some(last) = sums.last().filter(|_| round == 1) {
                    say(ctx, &last.explain())?;
                }
            }
            Ok(())
        })
    })?;
    Ok(())
}

/// Has rank 0 print it.
fn say(ctx: &Ctx, text: &str) -> Result<()> {
    if ctx.rank() == 0 {
        println!("{text}");
    }
    ctx.barrier()
}

fn sum(vector: &Vector) -> Result<f64> {
    match processor_here() {
        Processor::Host => Ok(vector.host()?.iter().sum()),
        Processor::Gpu(gpu) => sum_on_device(&*vector.gpu(gpu)?),
    }
}

/// The kernel, compiled once for each device.
fn kernel(device: &Device) -> Result<CudaFunction> {
    static KERNELS: Mutex<BTreeMap<u32, CudaFunction>> = Mutex::new(BTreeMap::new());
    let mut kernels = KERNELS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(kernel) = kernels.get(&device.ordinal()) {
        return Ok(kernel.clone());
    }
    let kernel = device.compile(KERNEL)?.load_function("sum").map_err(Error::user)?;
    kernels.insert(device.ordinal(), kernel.clone());
    Ok(kernel)
}

/// The shares are added up on the host. The numbers here are whole: any order gives the same sum.
fn sum_on_device(numbers: &DeviceBuffer<f64>) -> Result<f64> {
    let device = numbers.device()?;
    let kernel = kernel(&device)?;
    let shares = device.zeros::<f64>(SHARES as usize)?;
    // SAFETY: both are used here alone, or read by others, in this stream.
    let (from, into) = unsafe { (numbers.as_device_ptr(), shares.as_device_ptr()) };
    let count = numbers.len() as u64;
    let one_block =
        LaunchConfig { grid_dim: (1, 1, 1), block_dim: (SHARES, 1, 1), shared_mem_bytes: 0 };
    let mut launch = device.stream().launch_builder(&kernel);
    launch.arg(&from).arg(&count).arg(&into);
    // SAFETY: the buffers have as many numbers as the kernel is told, and as it has threads.
    unsafe { launch.launch(one_block) }.map_err(Error::user)?;
    Ok(shares.to_vec()?.iter().sum())
}
