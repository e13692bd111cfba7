//! What the stand-in card finds of programs that are wrong: each is a process that it ends.

use spmd_gpu::cudarc::driver::{CudaFunction, LaunchConfig, PushKernelArg};
use spmd_gpu::{Device, DeviceBuffer, GpuError};

use crate::alone;
use crate::card::stand_in;

/// Adds one to so many numbers.
fn add_one(device: &Device) -> Result<CudaFunction, GpuError> {
    let source = r#"
        extern "C" __global__ void add_one(unsigned *all, unsigned n) {
            unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
            if (at < n) all[at] += 1;
        }"#;
    Ok(device.compile(source)?.load_function("add_one").expect("it was compiled"))
}

fn launch(device: &Device, kernel: &CudaFunction, numbers: &mut DeviceBuffer<u32>, n: u32) {
    // SAFETY: where the kernel goes too far, the stand-in ends the process.
    unsafe {
        let mut slice = numbers.as_cuda_slice().expect("the device is here");
        let mut launch = device.stream().launch_builder(kernel);
        launch.arg(&mut *slice).arg(&n);
        launch.launch(LaunchConfig::for_num_elems(n)).expect("it starts");
    }
}

#[test]
#[ignore = "run by the others"]
fn program() -> Result<(), GpuError> {
    let device = Device::open(0)?;
    let mut numbers = device.buffer_from(&[1u32; 1000])?;
    let kernel = add_one(&device)?;
    launch(&device, &kernel, &mut numbers, 1000);
    match std::env::var("SPMD_TEST_FAULT").as_deref() {
        Ok("host") => {
            // As long as a kernel runs, memory is open.
            device.synchronize()?;
            // SAFETY: it ends the process.
            let read = unsafe { (numbers.as_device_ptr() as *const u32).read_volatile() };
            println!("the host has read {read}");
        }
        Ok("bounds") => launch(&device, &kernel, &mut numbers, 1001),
        Ok("order") => {
            let other = device.stream().context().new_stream().expect("it can have one more");
            let n = 1000u32;
            // SAFETY: it is what no event orders, which is reported.
            unsafe {
                let place = numbers.as_device_ptr();
                let mut launch = other.launch_builder(&kernel);
                launch.arg(&place).arg(&n);
                launch.launch(LaunchConfig::for_num_elems(n)).expect("it starts");
            }
            other.synchronize().expect("it ends");
        }
        _ => {}
    }
    let sum: u32 = numbers.to_vec()?.iter().sum();
    println!("the sum is {sum}");
    Ok(())
}

/// The program is right without this fault; with it the stand-in ends it, and says these words.
fn ends(fault: &str, words: &str) {
    if !stand_in() {
        return;
    }
    let right = alone("faults::program", &[]);
    assert!(right.code == Some(0) && right.out.contains("the sum is 2000"), "{right:?}");
    let wrong = alone("faults::program", &[("SPMD_TEST_FAULT", fault)]);
    let found = wrong.code != Some(0) && wrong.err.contains(words);
    assert!(found && !wrong.out.contains("the host has read"), "{wrong:?}");
}

#[test]
#[cfg(not(races))]
fn the_host_cannot_touch_the_memory_of_a_device() {
    ends("host", "");
}

#[test]
#[cfg(all(sanitizer, not(races)))]
fn a_kernel_that_goes_out_of_bounds_is_found() {
    ends("bounds", "AddressSanitizer: use-after-poison");
}

#[test]
#[cfg(races)]
fn streams_that_no_event_orders_are_found() {
    ends("order", "ThreadSanitizer: data race");
}

/// Threads of a block that wait for each other, as kernels of programs have them.
#[test]
#[cfg(not(sanitizer))]
fn threads_of_a_block_wait_for_each_other() -> Result<(), GpuError> {
    if !crate::card::gpu() {
        return Ok(());
    }
    let device = Device::open(0)?;
    let source = r#"
        extern "C" __global__ void sums(const unsigned *all, unsigned *into) {
            __shared__ unsigned part[64];
            unsigned me = threadIdx.x;
            part[me] = all[blockIdx.x * 64 + me];
            for (unsigned step = 32; step > 0; step /= 2) {
                __syncthreads();
                if (me < step) part[me] += part[me + step];
            }
            if (me == 0) into[blockIdx.x] = part[0];
        }"#;
    let sums = device.compile(source)?.load_function("sums").expect("it was compiled");
    let all: Vec<u32> = (0..640).collect();
    let (mut all, mut into) = (device.buffer_from(&all)?, device.zeros::<u32>(10)?);
    // SAFETY: ten blocks read 64 numbers each, and write one.
    unsafe {
        let (all, mut into) = (all.as_cuda_slice()?, into.as_cuda_slice()?);
        let mut launch = device.stream().launch_builder(&sums);
        launch.arg(&*all).arg(&mut *into);
        let shape =
            LaunchConfig { grid_dim: (10, 1, 1), block_dim: (64, 1, 1), shared_mem_bytes: 0 };
        launch.launch(shape).expect("it starts");
    }
    let expected = |block: u32| (64 * block..64 * (block + 1)).sum::<u32>();
    assert_eq!(into.to_vec()?, (0..10).map(expected).collect::<Vec<_>>());
    Ok(())
}
