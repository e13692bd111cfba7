//! Values that are on the host, on GPUs, or on both.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::Mutex;
use spmd_core::{Error, Mirror, Result};

use crate::header::Header;
use crate::processor::{COPIES, Home, Processor};

/// A value that tasks use on the host and on GPUs: whoever asks for it where it is not gets a copy. Made by
/// [`Data::placed`](crate::Data::placed). `D` is its form on a GPU.
pub struct Placed<H, D> {
    /// If it is there, and the same as on GPUs.
    host: OnceLock<H>,
    /// By the GPUs' numbers.
    gpus: Mutex<Vec<(u32, Arc<D>)>>,
    pub(crate) home: Arc<Home>,
}

impl<H, D: Mirror<H>> Placed<H, D> {
    pub(crate) fn new(host: H) -> Placed<H, D> {
        let home = Arc::new(Home::new(D::bytes(&host), D::measure));
        Placed { host: OnceLock::from(host), gpus: Mutex::default(), home }
    }

    /// The value on the host.
    ///
    /// Errors: those of a copy from a GPU.
    pub fn host(&self) -> Result<&H> {
        if self.host.get().is_none() {
            // Locked: of several that ask for it one copies.
            let gpus = self.gpus.lock();
            if self.host.get().is_none() {
                let (_, from) = gpus.first().ok_or_else(lost)?;
                let value = copied(&self.home, || from.to_host())?;
                self.home.is_also_on(Processor::Host);
                let _ = self.host.set(value);
            }
        }
        self.host.get().ok_or_else(lost)
    }

    /// The value on the host, to be written: it is nowhere else then.
    ///
    /// Errors: those of a copy from a GPU.
    pub fn host_mut(&mut self) -> Result<&mut H> {
        self.host()?;
        self.gpus.get_mut().clear();
        self.home.is_on(Processor::Host);
        self.host.get_mut().ok_or_else(lost)
    }

    /// The value on a GPU.
    ///
    /// Errors: those of copies from a GPU and to this one.
    pub fn gpu(&self, gpu: u32) -> Result<Arc<D>> {
        let find = |gpus: &[(u32, Arc<D>)]| {
            gpus.iter().find(|(number, _)| *number == gpu).map(|(_, there)| there.clone())
        };
        if let Some(there) = find(&self.gpus.lock()) {
            return Ok(there);
        }
        let host = self.host()?;
        let mut gpus = self.gpus.lock();
        if let Some(there) = find(&gpus) {
            return Ok(there);
        }
        self.home.has(D::bytes(host));
        let there = Arc::new(copied(&self.home, || D::to_gpu(host, gpu))?);
        self.home.is_also_on(Processor::Gpu(gpu));
        gpus.push((gpu, there.clone()));
        Ok(there)
    }

    /// The value on a GPU, to be written: it is nowhere else then.
    ///
    /// Errors: those of copies from a GPU and to this one; somebody has kept what [`Placed::gpu`] gave.
    pub fn gpu_mut(&mut self, gpu: u32) -> Result<&mut D> {
        self.gpu(gpu)?;
        let gpus = self.gpus.get_mut();
        let is_shared =
            |(number, there): &(u32, Arc<D>)| *number == gpu && Arc::strong_count(there) > 1;
        if gpus.iter().any(is_shared) {
            return Err(Error::argument(format!(
                "the value on GPU {gpu} is in use: drop what `gpu` gave"
            )));
        }
        gpus.retain(|(number, _)| *number == gpu);
        self.host.take();
        self.home.is_on(Processor::Gpu(gpu));
        gpus.first_mut().and_then(|(_, there)| Arc::get_mut(there)).ok_or_else(lost)
    }

    /// The value.
    ///
    /// Errors: those of a copy from a GPU.
    pub fn into_inner(mut self) -> Result<H> {
        self.host()?;
        self.host.take().ok_or_else(lost)
    }
}

/// What no sequence of calls leads to.
fn lost() -> Error {
    "a value is nowhere".into()
}

/// Makes a copy, from which it is learnt what copies take.
fn copied<R>(home: &Home, copy: impl FnOnce() -> Result<R>) -> Result<R> {
    let start = Instant::now();
    let made = copy()?;
    let took = start.elapsed();
    COPIES.learn(home.copies_to(Processor::Host).1, took);
    let either = Header::here().and_then(Header::either);
    either.into_iter().for_each(|either| either.has_copied(took));
    Ok(made)
}

impl<H, D> fmt::Debug for Placed<H, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Placed")
            .field("on_host", &self.host.get().is_some())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With its number of copies.
    #[derive(Debug)]
    struct OnGpu(Vec<u8>, u32);

    impl Mirror<Vec<u8>> for OnGpu {
        fn to_gpu(host: &Vec<u8>, gpu: u32) -> Result<OnGpu> {
            if gpu == 9 { Err("there is no GPU 9".into()) } else { Ok(OnGpu(host.clone(), gpu)) }
        }

        fn to_host(&self) -> Result<Vec<u8>> {
            Ok(self.0.clone())
        }

        fn bytes(host: &Vec<u8>) -> usize {
            host.len()
        }
    }

    #[test]
    fn the_last_one_that_was_written() -> Result<()> {
        let mut value = Placed::<_, OnGpu>::new(vec![1]);
        assert_eq!(value.gpu(0)?.0, [1]);
        value.gpu_mut(0)?.0.push(2);
        assert_eq!(value.home.copies_to(Processor::Gpu(1)).0, 2);
        assert_eq!((value.gpu(1)?.0.len(), value.gpu(1)?.1), (2, 1));
        assert_eq!(value.home.copies_to(Processor::Host).0, 0, "it came that way");
        value.host_mut()?.push(3);
        assert_eq!(value.home.copies_to(Processor::Gpu(1)).0, 1);
        value.gpu(9).expect_err("no such GPU");
        value.gpu_mut(9).expect_err("no such GPU");
        assert_eq!(value.gpu(1)?.0, [1, 2, 3]);
        let kept = value.gpu(1)?;
        let error = value.gpu_mut(1).expect_err("it is in use").to_string();
        assert!(error.contains("drop what"), "{error}");
        drop(kept);
        value.gpu_mut(1)?.0.clear();
        assert_eq!(value.into_inner()?, []);
        Ok(())
    }
}
