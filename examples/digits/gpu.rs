//! The arithmetic of the training on a GPU, by three kernels: all data stay there, and nothing waits for
//! the host between a batch and the next.

use spmd::gpu::cudarc::driver::{CudaFunction, LaunchConfig, PushKernelArg};
use spmd::gpu::{Device, DeviceBuffer, OnDevice};
use spmd::prelude::*;

use super::{BATCH, DIGITS, HIDDEN, Image, Network, PIXELS};

const KERNELS: &str = r#"
// Scores, and slopes of the loss, of an image each.
extern "C" __global__ void read(const double *weights, const double *pixels, const unsigned *digits,
                                const unsigned *order, unsigned first, unsigned step, unsigned count,
                                double *hidden, double *hidden_slopes, double *slopes) {
    unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= count) return;
    unsigned image = order[first + at * step];
    pixels += image * PIXELS, hidden += at * HIDDEN, hidden_slopes += at * HIDDEN, slopes += at * DIGITS;
    const double *second = weights + HIDDEN * (PIXELS + 1);
    for (int unit = 0; unit < HIDDEN; unit++) {
        const double *unit_of = weights + unit * (PIXELS + 1);
        double sum = 0;
        for (int i = 0; i < PIXELS; i++) sum += unit_of[i] * pixels[i];
        hidden[unit] = tanh(unit_of[PIXELS] + sum);
        hidden_slopes[unit] = 0;
    }
    double top = -1e300, total = 0;
    for (int digit = 0; digit < DIGITS; digit++) {
        const double *unit_of = second + digit * (HIDDEN + 1);
        double sum = 0;
        for (int i = 0; i < HIDDEN; i++) sum += unit_of[i] * hidden[i];
        slopes[digit] = unit_of[HIDDEN] + sum;
        top = slopes[digit] > top ? slopes[digit] : top;
    }
    for (int digit = 0; digit < DIGITS; digit++) total += slopes[digit] = exp(slopes[digit] - top);
    for (int digit = 0; digit < DIGITS; digit++) {
        slopes[digit] = slopes[digit] / total - (digit == digits[image] ? 1 : 0);
        const double *unit_of = second + digit * (HIDDEN + 1);
        for (int i = 0; i < HIDDEN; i++)
            hidden_slopes[i] += slopes[digit] * unit_of[i] * (1 - hidden[i] * hidden[i]);
    }
}

// The gradient of a weight each, over all of a rank's images, one after the other.
extern "C" __global__ void gradient(const double *pixels, const unsigned *order, unsigned first,
                                    unsigned step, unsigned count, const double *hidden,
                                    const double *hidden_slopes, const double *slopes, double *sums) {
    unsigned weight = blockIdx.x * blockDim.x + threadIdx.x;
    if (weight >= WEIGHTS) return;
    bool is_first = weight < HIDDEN * (PIXELS + 1);
    unsigned own = is_first ? weight : weight - HIDDEN * (PIXELS + 1);
    unsigned width = is_first ? PIXELS : HIDDEN, unit = own / (width + 1), input = own % (width + 1);
    double sum = 0;
    for (unsigned at = 0; at < count; at++) {
        double slope = is_first ? hidden_slopes[at * HIDDEN + unit] : slopes[at * DIGITS + unit];
        const double *inputs = is_first ? pixels + order[first + at * step] * PIXELS : hidden + at * HIDDEN;
        sum += input == width ? slope : slope * inputs[input];
    }
    sums[weight] = sum;
}

extern "C" __global__ void descend(double *weights, double *velocity, const double *sums, double rate,
                                   double images) {
    unsigned weight = blockIdx.x * blockDim.x + threadIdx.x;
    if (weight >= WEIGHTS) return;
    velocity[weight] = 0.9 * velocity[weight] - rate * sums[weight] / images;
    weights[weight] += velocity[weight];
}
"#;

pub struct Trainer {
    device: Device,
    kernels: [CudaFunction; 3],
    pixels: DeviceBuffer<f64>,
    digits: DeviceBuffer<u32>,
    order: DeviceBuffer<u32>,
    weights: DeviceBuffer<f64>,
    velocity: DeviceBuffer<f64>,
    sums: DeviceBuffer<f64>,
    /// Of each image of a batch: hidden units, their slopes, the slopes of the outputs.
    parts: [DeviceBuffer<f64>; 3],
}

impl Trainer {
    /// With all images, numbered as they stand here.
    pub fn new(comm: &Comm, images: &[Image], weights: &[f64]) -> Result<Trainer> {
        let device = comm.device()?;
        let sizes = [("PIXELS", PIXELS), ("HIDDEN", HIDDEN), ("DIGITS", DIGITS)];
        let mut source: String = sizes.iter().map(|(k, v)| format!("#define {k} {v}\n")).collect();
        source += &format!("#define WEIGHTS {}\n{KERNELS}", Network::WEIGHTS);
        let module = device.compile(&source)?;
        let kernel = |name| module.load_function(name).map_err(Error::user);
        let kernels = [kernel("read")?, kernel("gradient")?, kernel("descend")?];
        let pixels: Vec<f64> = images.iter().flat_map(|it| it.pixels).collect();
        let digits: Vec<u32> = images.iter().map(|it| it.digit as u32).collect();
        let part = |each: usize| device.zeros::<f64>(BATCH * each);
        Ok(Trainer {
            kernels,
            pixels: device.buffer_from(&pixels)?,
            digits: device.buffer_from(&digits)?,
            order: device.zeros(images.len())?,
            weights: device.buffer_from(weights)?,
            velocity: device.zeros(weights.len())?,
            sums: device.zeros(weights.len())?,
            parts: [part(HIDDEN)?, part(HIDDEN)?, part(DIGITS)?],
            device,
        })
    }

    /// Goes through the images in this order.
    pub fn begin(&mut self, order: impl Iterator<Item = usize>) -> Result<()> {
        let mut all: Vec<u32> = order.map(|image| image as u32).collect();
        all.resize(self.order.len(), 0);
        Ok(self.order.copy_from(&all)?)
    }

    /// A step by so many images from one on, of which each rank takes its share.
    pub fn step(&mut self, comm: &Comm, first: usize, images: usize, rate: f64) -> Result<()> {
        let (first, step) = ((first + comm.rank()) as u32, comm.size() as u32);
        let count = (images.saturating_sub(comm.rank())).div_ceil(comm.size()) as u32;
        // SAFETY: all buffers are in this rank's stream, as the kernels, and used here alone.
        let [pixels, weights, velocity, sums] = unsafe {
            [&self.pixels, &self.weights, &self.velocity, &self.sums].map(|it| it.as_device_ptr())
        };
        // SAFETY: as above.
        let ([digits, order], [hidden, hidden_slopes, slopes]) = unsafe {
            let indices = [&self.digits, &self.order].map(|it| it.as_device_ptr());
            (indices, self.parts.each_ref().map(|it| it.as_device_ptr()))
        };
        let [read, gradient, descend] = &self.kernels;
        let stream = self.device.stream();
        let mut launch = stream.launch_builder(read);
        launch.arg(&weights).arg(&pixels).arg(&digits).arg(&order).arg(&first).arg(&step);
        launch.arg(&count).arg(&hidden).arg(&hidden_slopes).arg(&slopes);
        // SAFETY: `order` has that many images from `first` on, in steps, all of which are there, and
        // the parts have room for a batch.
        unsafe { launch.launch(LaunchConfig::for_num_elems(count.max(1))) }.map_err(Error::user)?;
        let all = LaunchConfig::for_num_elems(Network::WEIGHTS as u32);
        let mut launch = stream.launch_builder(gradient);
        launch.arg(&pixels).arg(&order).arg(&first).arg(&step).arg(&count);
        launch.arg(&hidden).arg(&hidden_slopes).arg(&slopes).arg(&sums);
        // SAFETY: as above; `sums` has a number for each weight.
        unsafe { launch.launch(all) }.map_err(Error::user)?;
        comm.allreduce_in_place(&mut self.sums, Sum)?;
        let images = images as f64;
        let mut launch = stream.launch_builder(descend);
        launch.arg(&weights).arg(&velocity).arg(&sums).arg(&rate).arg(&images);
        // SAFETY: all three have a number for each weight.
        unsafe { launch.launch(all) }.map_err(Error::user)?;
        Ok(())
    }

    pub fn weights(&self) -> Result<Vec<f64>> {
        Ok(self.weights.to_vec()?)
    }
}
