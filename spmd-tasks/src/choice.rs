//! Which of the host and the GPUs carries out a task that has code for both.
//!
//! It is chosen when all is there that the task needs: the one where it is expected to be over first. That is
//! what waits there already, the copies that bring its data there, and how long tasks of its name have run
//! there, all of which is learnt. One that has not been tried is tried.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

use crate::processor::{COPIES, Home, Processor};
use crate::request::{Asks, Request};

/// What a task may ask for that has code for both.
pub(crate) struct Either {
    /// What it asks for on the host, and with a GPU; `None` where it may not run.
    pub(crate) host: Option<Request>,
    pub(crate) gpu: Option<Request>,
    /// Of the data that it uses.
    pub(crate) homes: Vec<Arc<Home>>,
    chosen: OnceLock<Chosen>,
    /// Whether it counts where it was chosen to run.
    counts: AtomicBool,
    /// How long it has run, and copied meanwhile, in nanoseconds.
    ran: AtomicU64,
    copied: AtomicU64,
}

struct Chosen {
    on: On,
    asks: Option<Arc<Asks>>,
    /// For how long it counts there.
    counts: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    Host,
    Gpu,
}

/// What is known of tasks of a name, in nanoseconds: on the host, and with a GPU.
type Runs = [Option<u64>; 2];

/// What has been learnt in a process.
#[derive(Default)]
pub(crate) struct Choices {
    runs: Mutex<BTreeMap<String, Runs>>,
    /// For how long what is chosen and not over is expected to run, on the host and with GPUs.
    load: [AtomicU64; 2],
}

/// Of how many names something is known at most.
const NAMES: usize = 4096;
/// What counts as long as nothing is known.
const UNKNOWN: u64 = 1_000_000;

impl Either {
    pub(crate) fn new(host: Option<Request>, gpu: Option<Request>) -> Either {
        let (homes, chosen, counts, ran, copied) = Default::default();
        Either { host, gpu, homes, chosen, counts, ran, copied }
    }

    /// What it asks for, once that is chosen.
    pub(crate) fn asks(&self) -> Option<&Arc<Asks>> {
        self.chosen.get()?.asks.as_ref()
    }

    /// Where it runs.
    pub(crate) fn processor(&self) -> Processor {
        let units = self.chosen.get().filter(|it| it.on == On::Gpu).and_then(|it| it.asks.as_ref());
        let granted = units.map(|asks| asks.granted()).unwrap_or_default();
        let gpus = granted.iter().find(|(name, _)| **name == *"gpu");
        let gpu = gpus.and_then(|(_, units)| units.first());
        gpu.map_or(Processor::Host, |gpu| Processor::Gpu(*gpu))
    }

    pub(crate) fn has_copied(&self, took: Duration) {
        self.copied.fetch_add(took.as_nanos() as u64, Relaxed);
    }

    pub(crate) fn has_run(&self, took: Duration) {
        let took = took.as_nanos() as u64;
        self.ran.store(took.saturating_sub(self.copied.load(Relaxed)).max(1), Relaxed);
    }

    /// What brings its data there takes, in nanoseconds.
    fn moves(&self, to: Processor) -> u64 {
        let one = |home: &Arc<Home>| {
            let (copies, bytes) = home.copies_to(to);
            u64::from(copies) * COPIES.take(bytes)
        };
        self.homes.iter().map(one).fold(0, u64::saturating_add)
    }
}

impl Choices {
    /// Chooses for a task, once, among so many workers and these GPUs. Says why.
    pub(crate) fn choose(
        &self,
        either: &Either,
        name: &str,
        (workers, gpus): (usize, &[u32]),
    ) -> Option<String> {
        let mut why = None;
        either.chosen.get_or_init(|| {
            let (chosen, text) = self.chosen(either, name, (workers, gpus));
            self.load[chosen.on as usize].fetch_add(chosen.counts, Relaxed);
            why = Some(text);
            chosen
        });
        either.counts.store(true, SeqCst);
        why
    }

    fn chosen(
        &self,
        either: &Either,
        name: &str,
        (workers, gpus): (usize, &[u32]),
    ) -> (Chosen, String) {
        let runs = self.runs.lock().get(name).copied().unwrap_or_default();
        let may = |gpu: &&u32| {
            let only = either.gpu.as_ref().and_then(|request| request.gpus.as_ref());
            only.is_none_or(|only| only.contains(gpu))
        };
        if let (Some(home), Some(gpu)) = (either.homes.first(), gpus.iter().find(may)) {
            home.measures(*gpu);
        }
        let near =
            gpus.iter().filter(may).map(|gpu| (either.moves(Processor::Gpu(*gpu)), *gpu)).min();
        let end = |on: On, moves: u64, among: usize| {
            let waits = self.load[on as usize].load(Relaxed) / among.max(1) as u64;
            waits.saturating_add(moves).saturating_add(runs[on as usize].unwrap_or(0))
        };
        let host = either.host.as_ref().map(|request| {
            let moves = either.moves(Processor::Host);
            (end(On::Host, moves, workers), moves, request)
        });
        let gpu = either.gpu.as_ref().zip(near).map(|(request, (moves, gpu))| {
            (end(On::Gpu, moves, gpus.iter().filter(may).count()), moves, request, gpu)
        });
        let said = |on: On| match runs[on as usize] {
            Some(runs) => format!("{:?}", Duration::from_nanos(runs)),
            None => "not known".into(),
        };
        let learnt = format!("{} on the host, {} with a GPU", said(On::Host), said(On::Gpu));
        let counts =
            |on: On, moves: u64| runs[on as usize].unwrap_or(UNKNOWN).saturating_add(moves);
        let asks = |request: &Request| {
            (*request != Request::default()).then(|| Arc::new(Asks::new(request.clone())))
        };
        match (host, gpu) {
            (Some((host_end, ..)), Some((end, moves, request, gpu))) if end < host_end => {
                let moves_there = Duration::from_nanos(moves);
                let why = format!(
                    "with a GPU, where it should be over in {:?}, not in {:?} as on the host: its \
                     data take {moves_there:?} to come there, and tasks of its name {learnt}",
                    Duration::from_nanos(end),
                    Duration::from_nanos(host_end)
                );
                (with_gpu(asks(request), gpu, counts(On::Gpu, moves)), why)
            }
            (None, Some((_, moves, request, gpu))) => (
                with_gpu(asks(request), gpu, counts(On::Gpu, moves)),
                "with a GPU, its scope".into(),
            ),
            (host, gpu) => {
                let why = match gpu {
                    None if gpus.is_empty() => "on the host, as its process has no GPU".to_owned(),
                    None => "on the host, its scope".to_owned(),
                    Some((end, ..)) => format!(
                        "on the host, where it should be over before the {:?} of a GPU: tasks of its \
                         name take {learnt}",
                        Duration::from_nanos(end)
                    ),
                };
                let (moves, request) = host.map_or((0, None), |(_, moves, it)| (moves, Some(it)));
                let asks = request.and_then(asks);
                (Chosen { on: On::Host, asks, counts: counts(On::Host, moves) }, why)
            }
        }
    }

    /// A task of this name is over: it counts no more, if it did. Told by who ends it, and by who has chosen for
    /// it and finds that it is over.
    pub(crate) fn is_over(&self, either: &Either, name: &str) {
        if !either.counts.swap(false, SeqCst) {
            return;
        }
        let Some(chosen) = either.chosen.get() else { return };
        self.load[chosen.on as usize].fetch_sub(chosen.counts, Relaxed);
        let ran = either.ran.load(Relaxed);
        let mut all = self.runs.lock();
        if ran > 0 && (all.len() < NAMES || all.contains_key(name)) {
            let known = &mut all.entry(name.to_owned()).or_default()[chosen.on as usize];
            *known = Some(known.map_or(ran, |known| known / 4 * 3 + ran / 4));
        }
    }
}

/// What it asks for, near a GPU.
fn with_gpu(asks: Option<Arc<Asks>>, gpu: u32, counts: u64) -> Chosen {
    asks.iter().for_each(|asks| asks.would_be_on("gpu", gpu));
    Chosen { on: On::Gpu, asks, counts }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn either(bytes: usize) -> Either {
        let mut with_gpu = Request::default();
        with_gpu.add("gpu", spmd_core::internal::PARTS);
        let mut either = Either::new(Some(Request::default()), Some(with_gpu));
        either.homes = vec![Arc::new(Home::new(bytes, |_| None))];
        either
    }

    fn on(choices: &Choices, either: &Either) -> On {
        choices.choose(either, "f", (1, &[0, 1])).expect("it is chosen once");
        either.chosen.get().expect("it is chosen").on
    }

    /// One after the other: what runs longer is chosen no more.
    #[test]
    fn times_decide() {
        let choices = Choices::default();
        for (host, gpu) in [(90_000_000, 5_000_000), (1_000, 5_000_000)] {
            let mut last = None;
            for _ in 0..40 {
                let task = either(8);
                let here = on(&choices, &task);
                let took = if here == On::Host { host } else { gpu };
                task.has_run(Duration::from_nanos(took));
                choices.is_over(&task, "f");
                last = Some(here);
            }
            let expected = if host > gpu { On::Gpu } else { On::Host };
            // The other one was tried, and forgotten with the second turn's times.
            assert!(last == Some(expected) || host < gpu);
        }
        assert!(choices.load.iter().all(|load| load.load(Relaxed) == 0));
    }

    /// Several at a time: who has enough gets no more.
    #[test]
    fn both_have_work() {
        let choices = Choices::default();
        let tasks: Vec<Either> = (0..30).map(|_| either(8)).collect();
        let on_gpu = tasks.iter().filter(|task| on(&choices, task) == On::Gpu).count();
        assert!((15..=25).contains(&on_gpu), "{on_gpu} of 30 on two GPUs beside a worker");
    }

    #[test]
    fn data_that_are_there_decide() {
        let choices = Choices::default();
        choices.runs.lock().insert("f".into(), [Some(1_000_000), Some(1_000_000)]);
        let task = either(1 << 30);
        assert!(on(&choices, &task) == On::Host, "a gigabyte would have to move");
        let task = either(1 << 30);
        task.homes[0].is_on(Processor::Gpu(1));
        choices.load[0].store(0, Relaxed);
        let why = choices.choose(&task, "f", (1, &[0, 1])).expect("it is chosen");
        assert!(why.starts_with("with a GPU, where it should be over in 1ms"), "{why}");
        let asks = task.asks().expect("it asks for a GPU");
        assert!(asks.prefers()("gpu", 1) && !asks.prefers()("gpu", 0));
        assert_eq!(task.processor(), Processor::Host, "it has none yet");
    }

    #[test]
    fn where_there_is_no_gpu() {
        let choices = Choices::default();
        let why = choices.choose(&either(8), "f", (2, &[])).expect("it is chosen");
        assert_eq!(why, "on the host, as its process has no GPU");
    }
}
