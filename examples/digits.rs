//! Learns to read handwritten digits: a small neural network, trained data-parallel.
//!
//!     cargo run --release --example digits [--gpu]
//!
//! Every rank holds all weights and takes a share of each batch. An allreduce adds up the
//! gradients, and every rank makes the same step. Sums have the same bits on all ranks, so the
//! copies of the weights never drift apart and are never sent. They have the same bits in threads,
//! virtual ranks and processes, too: the loss printed at the end depends on the number of ranks in
//! its last digits, and on nothing else.
//!
//! With `--gpu` the arithmetic is done on GPUs (`digits/gpu.rs`), and then once more on the host: the loss
//! is the same, but for rounding.

#[path = "digits/gpu.rs"]
mod gpu;

use std::io::Read;

use flate2::read::GzDecoder;
use spmd::prelude::*;

/// 1,797 digits; see `data/README.md`. Part of the program, so that it runs in any folder.
static DATA: &[u8] = include_bytes!("data/digits.csv.gz");

const PIXELS: usize = 64;
const HIDDEN: usize = 48;
const DIGITS: usize = 10;
const HELD_OUT: usize = 360;
const BATCH: usize = 48;
const EPOCHS: usize = 40;

fn main() -> Result<()> {
    let images = read_images()?;
    let with_gpu = match std::env::args().nth(1).as_deref() {
        None => false,
        Some("--gpu") => true,
        Some(other) => return Err(format!("{other}: the only option is --gpu").into()),
    };
    if with_gpu && let Err(missing) = spmd::gpu::probe().ready() {
        println!("--gpu needs a GPU: {missing}");
        return Ok(());
    }
    let planes = if with_gpu { spmd::gpu::planes().to_vec() } else { Vec::new() };
    spmd::run_on_planes(&planes, |ctx| {
        let loss = train(ctx, &images, false)?;
        if with_gpu && (train(ctx, &images, true)? / loss - 1.0).abs() > 1e-3 {
            return Err("the GPUs learn something else than the host".into());
        }
        Ok(())
    })?;
    Ok(())
}

/// The loss after all epochs.
fn train(comm: &Comm, images: &[Image], with_gpu: bool) -> Result<f64> {
    let all = images;
    let (rank, size) = (comm.rank(), comm.size());
    // One seed for all: every rank draws the same weights and the same order of images.
    let mut random = Random(1998);
    let mut images: Vec<&Image> = images.iter().collect();
    random.shuffle(&mut images);
    let (held_out, training) = images.split_at_mut(HELD_OUT);
    let mut network = Network::random(&mut random);
    let mut velocity = [0.0; Network::WEIGHTS];
    let mut trainer = match with_gpu {
        true => Some(gpu::Trainer::new(comm, all, &network.weights)?),
        false => None,
    };

    for epoch in 1..=EPOCHS {
        random.shuffle(training);
        // Large steps at first to get there, small ones at last to settle.
        let rate = 0.2 * (1.0 - epoch as f64 / (EPOCHS + 1) as f64);
        if let Some(trainer) = &mut trainer {
            trainer.begin(training.iter().map(|image| image.number))?;
            for first in (0..training.len()).step_by(BATCH) {
                trainer.step(comm, first, BATCH.min(training.len() - first), rate)?;
            }
            continue;
        }
        for batch in training.chunks(BATCH) {
            let mut gradient = [0.0; Network::WEIGHTS];
            for image in batch.iter().skip(rank).step_by(size) {
                network.add_gradient(image, &mut gradient);
            }
            comm.allreduce_in_place(&mut gradient, Sum)?;
            for ((w, v), g) in network.weights.iter_mut().zip(&mut velocity).zip(gradient) {
                *v = 0.9 * *v - rate * g / batch.len() as f64;
                *w += *v;
            }
        }
    }

    if let Some(trainer) = &trainer {
        network.weights.copy_from_slice(&trainer.weights()?);
    }
    let mine = training.iter().skip(rank).step_by(size);
    let loss: f64 = mine.map(|image| network.read(image).loss(image.digit)).sum();
    let loss = comm.allreduce_value(loss, Sum)? / training.len() as f64;
    let mine = held_out.iter().skip(rank).step_by(size);
    let right = mine.filter(|image| network.read(image).best() == image.digit).count();
    let accuracy = comm.allreduce_value(right, Sum)? as f64 / HELD_OUT as f64;
    let digest = network.weights.iter().fold(0, |all: u64, w| all.rotate_left(7) ^ w.to_bits());
    let agreed = comm.allreduce_value(digest, Min)? == comm.allreduce_value(digest, Max)?;

    if rank == 0 {
        let place = if with_gpu { " with GPUs" } else { "" };
        println!("{size} ranks{place}: loss {loss:.6}, its bits {:016x}", loss.to_bits());
        println!("{:.1} % of {HELD_OUT} unseen digits are read correctly", 100.0 * accuracy);
    }
    if !agreed {
        return Err("the ranks' weights differ".into());
    }
    if accuracy < 0.95 {
        return Err(format!("{:.1} % is less than 95 %", 100.0 * accuracy).into());
    }
    Ok(loss)
}

/// 64 pixels, a hidden layer of tanh units, and ten outputs, one for each digit.
struct Network {
    /// The units' weights one after the other, so that one allreduce serves for all layers. The
    /// last weight of a unit is its bias.
    weights: [f64; Network::WEIGHTS],
}

/// What the network makes of an image.
struct Reading {
    hidden: [f64; HIDDEN],
    probabilities: [f64; DIGITS],
}

impl Network {
    const FIRST: usize = HIDDEN * (PIXELS + 1);
    const WEIGHTS: usize = Network::FIRST + DIGITS * (HIDDEN + 1);

    fn random(random: &mut Random) -> Network {
        let mut weights = [0.0; Network::WEIGHTS];
        weights.fill_with(|| 0.4 * random.unit() - 0.2);
        Network { weights }
    }

    fn read(&self, image: &Image) -> Reading {
        let (first, second) = self.weights.split_at(Network::FIRST);
        let hidden = layer::<HIDDEN>(first, &image.pixels).map(f64::tanh);
        let scores = layer::<DIGITS>(second, &hidden);
        // Softmax. The highest score is taken away first, so that no exponential overflows.
        let top = scores.into_iter().fold(f64::MIN, f64::max);
        let powers = scores.map(|score| (score - top).exp());
        let total: f64 = powers.iter().sum();
        Reading { hidden, probabilities: powers.map(|power| power / total) }
    }

    /// Adds the gradient of this image's loss to `gradient` (back-propagation).
    fn add_gradient(&self, image: &Image, gradient: &mut [f64]) {
        let Reading { hidden, probabilities: mut slopes } = self.read(image);
        slopes[image.digit] -= 1.0;
        let (_, second) = self.weights.split_at(Network::FIRST);
        let mut hidden_slopes = [0.0; HIDDEN];
        for (weights, slope) in second.chunks_exact(HIDDEN + 1).zip(slopes) {
            for ((sum, weight), value) in hidden_slopes.iter_mut().zip(weights).zip(hidden) {
                *sum += slope * weight * (1.0 - value * value);
            }
        }
        let (first, second) = gradient.split_at_mut(Network::FIRST);
        add_layer_gradient(first, &image.pixels, &hidden_slopes);
        add_layer_gradient(second, &hidden, &slopes);
    }
}

impl Reading {
    fn loss(&self, digit: usize) -> f64 {
        -self.probabilities[digit].ln()
    }

    fn best(&self) -> usize {
        (0..DIGITS)
            .max_by(|a, b| self.probabilities[*a].total_cmp(&self.probabilities[*b]))
            .unwrap()
    }
}

/// The weighted sums of `N` units.
fn layer<const N: usize>(weights: &[f64], input: &[f64]) -> [f64; N] {
    let width = input.len();
    std::array::from_fn(|unit| {
        let unit = &weights[unit * (width + 1)..][..width + 1];
        unit[width] + unit.iter().zip(input).map(|(w, x)| w * x).sum::<f64>()
    })
}

fn add_layer_gradient(gradient: &mut [f64], input: &[f64], slopes: &[f64]) {
    let width = input.len();
    for (unit, slope) in gradient.chunks_exact_mut(width + 1).zip(slopes) {
        for (g, x) in unit.iter_mut().zip(input) {
            *g += slope * x;
        }
        unit[width] += slope;
    }
}

struct Image {
    /// Among all.
    number: usize,
    /// From 0 (paper) to 1 (ink).
    pixels: [f64; PIXELS],
    digit: usize,
}

fn read_images() -> Result<Vec<Image>> {
    let mut text = String::new();
    GzDecoder::new(DATA).read_to_string(&mut text)?;
    text.lines().enumerate().map(read_image).collect()
}

fn read_image((number, line): (usize, &str)) -> Result<Image> {
    let numbers: Vec<u8> =
        line.split(',').map(str::parse).collect::<Result<_, _>>().map_err(Error::user)?;
    match numbers.as_slice() {
        [pixels @ .., digit] if pixels.len() == PIXELS && usize::from(*digit) < DIGITS => {
            let pixels = std::array::from_fn(|i| f64::from(pixels[i]) / 16.0);
            Ok(Image { number, pixels, digit: usize::from(*digit) })
        }
        _ => Err(format!("not 64 pixels and a digit: {line}").into()),
    }
}

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): the same numbers on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to 1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, (self.next() % (i as u64 + 1)) as usize);
        }
    }
}
