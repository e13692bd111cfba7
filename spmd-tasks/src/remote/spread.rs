//! Which rank runs a task that any may run.
//!
//! Such tasks wait where they were spawned. Each rank is asked to run so many at a time, and for one more
//! when it has answered: so ranks that are through with theirs take those that wait, and none has many that
//! another one could have. What runs elsewhere has to be worth its way there: a task is moved if its arguments
//! take less time to get there than it takes to run. The first time is measured at the start, and both are learnt
//! from what comes back.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Of what is so short the time on the way is no matter of its length.
const SHORT: usize = 4 << 10;

/// What is sent to a neighbour and back to measure the way: so many bytes each, one after the other. The first
/// ones wake those who do it, beside whatever else begins; the shortest counts.
pub(crate) const MEASURED: [usize; 10] = [8, 8, 8, 8, 8, 8, 8, 8, 64 << 10, 64 << 10];

/// What is taken for true before anything has come back: the time of a way there and back, and that of a
/// byte, in nanoseconds.
const WAY: f64 = 50_000.0;
const BYTE: f64 = 0.5;

/// Something that waits for a rank to run it.
pub(crate) struct Offer<T> {
    pub(crate) name: String,
    pub(crate) args: Vec<u8>,
    /// The ranks that may, if not all: there is one.
    pub(crate) ranks: Option<Vec<usize>>,
    pub(crate) what: T,
}

/// Offers of a rank, and what the ranks run of them.
pub(crate) struct Spread<T> {
    me: usize,
    /// How many a rank is asked to run at a time.
    room: usize,
    /// How many each of them runs, or has been asked to.
    under_way: Vec<usize>,
    /// By the ranks that may run them: those whose ranks have enough hold up no others.
    waiting: BTreeMap<Option<Vec<usize>>, VecDeque<Offer<T>>>,
    costs: Costs,
}

/// What has been learnt, in nanoseconds.
struct Costs {
    way: Option<f64>,
    byte: Option<f64>,
    /// How long each function takes.
    runs: BTreeMap<String, f64>,
}

/// What was asked of a rank.
pub(crate) struct Asked {
    pub(crate) rank: usize,
    name: String,
    bytes: usize,
    at: Instant,
}

impl<T> Spread<T> {
    pub(crate) fn new(me: usize, ranks: usize, workers: usize) -> Spread<T> {
        let costs = Costs { way: None, byte: None, runs: BTreeMap::new() };
        let (under_way, waiting) = (vec![0; ranks], BTreeMap::new());
        Spread { me, room: 2 * workers.max(1), under_way, waiting, costs }
    }

    pub(crate) fn push(&mut self, offer: Offer<T>) {
        self.waiting.entry(offer.ranks.clone()).or_default().push_back(offer);
    }

    /// All that wait.
    pub(crate) fn take(&mut self) -> Vec<Offer<T>> {
        std::mem::take(&mut self.waiting).into_values().flatten().collect()
    }

    /// The next one with the rank that runs it, and why that one does; `None` while all have enough.
    pub(crate) fn next(&mut self) -> Option<(Offer<T>, Asked, String)> {
        let (ranks, (rank, why)) = self.waiting.iter().find_map(|(ranks, offers)| {
            let first = offers.front()?;
            Some((ranks, self.choose(&first.name, first.args.len(), ranks.as_deref())?))
        })?;
        let ranks = ranks.clone();
        let offers = self.waiting.get_mut(&ranks)?;
        let offer = offers.pop_front()?;
        if offers.is_empty() {
            self.waiting.remove(&ranks);
        }
        self.under_way[rank] += 1;
        let (name, bytes, at) = (offer.name.clone(), offer.args.len(), Instant::now());
        Some((offer, Asked { rank, name, bytes, at }, why))
    }

    fn choose(&self, name: &str, bytes: usize, among: Option<&[usize]>) -> Option<(usize, String)> {
        let (me, room) = (self.me, self.room);
        let mine = self.under_way[me];
        // The one with the least, and this one among equals.
        let load = |rank: &usize| (self.under_way[*rank], *rank != me);
        let least = match among {
            None => (0..self.under_way.len()).min_by_key(load)?,
            Some(among) => among.iter().copied().min_by_key(load)?,
        };
        let fewest = self.under_way[least];
        let moves = Duration::from_nanos(self.costs.moves(bytes) as u64);
        let may_stay = among.is_none_or(|among| among.contains(&me));
        let worth = self.costs.runs.get(name).is_none_or(|runs| *runs > self.costs.moves(bytes));
        let worth = worth || !may_stay;
        if least != me && fewest < room && worth {
            let runs = match self.costs.runs.get(name) {
                Some(runs) => format!("runs for {:?}", Duration::from_nanos(*runs as u64)),
                None => "has not come back yet".into(),
            };
            let why = format!(
                "on rank {least}, which had {fewest} such tasks under way where rank {me} had {mine}: \
                 its {bytes} bytes take {moves:?} to move, and {name} {runs}"
            );
            return Some((least, why));
        }
        let why = match worth {
            true => format!("on rank {me}, which spawned it, and had {mine} such tasks under way"),
            false => format!(
                "on rank {me}, which spawned it: its {bytes} bytes would take {moves:?} to move, longer \
                 than {name} runs"
            ),
        };
        (may_stay && mine < room).then_some((me, why))
    }

    /// A rank has answered, after it has run what was asked for so long.
    pub(crate) fn is_answered(&mut self, asked: &Asked, ran: Duration) {
        self.under_way[asked.rank] -= 1;
        let ran = ran.as_nanos() as f64;
        let known = self.costs.runs.entry(asked.name.clone()).or_insert(ran);
        *known += (ran - *known) / 4.0;
        if asked.rank != self.me {
            let way = (asked.at.elapsed().as_nanos() as f64 - ran).max(0.0);
            self.costs.learn(asked.bytes, way);
        }
    }

    /// So many bytes were there and back after so long.
    pub(crate) fn is_measured(&mut self, bytes: usize, way: Duration) {
        self.costs.learn(bytes, way.as_nanos() as f64);
    }
}

impl Costs {
    fn moves(&self, bytes: usize) -> f64 {
        self.way.unwrap_or(WAY) + self.byte.unwrap_or(BYTE) * bytes as f64
    }

    /// So many bytes were on the way for so long, with the time that they have waited for a worker there: the
    /// shortest is right.
    fn learn(&mut self, bytes: usize, way: f64) {
        let shortest = |known: &mut Option<f64>, new: f64| {
            *known = Some(known.map_or(new, |known| known.min(new)));
        };
        match bytes <= SHORT {
            true => shortest(&mut self.way, way),
            false => {
                let rest = (way - self.way.unwrap_or(WAY)).max(0.0);
                shortest(&mut self.byte, rest / bytes as f64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(name: &str, bytes: usize) -> Offer<()> {
        Offer { name: name.into(), args: vec![0; bytes], ranks: None, what: () }
    }

    #[test]
    fn ranks_have_few_at_a_time() {
        let mut spread = Spread::new(1, 3, 2);
        (0..20).for_each(|_| spread.push(offer("f", 8)));
        let asked: Vec<Asked> = std::iter::from_fn(|| spread.next()).map(|it| it.1).collect();
        assert_eq!(asked.len(), 12, "four each");
        assert_eq!(asked[0].rank, 1, "its own rank first");
        // Who has answered gets the next one.
        spread.is_answered(&asked[2], Duration::from_millis(5));
        assert_eq!(spread.next().map(|it| it.1.rank), Some(asked[2].rank));
        assert!(spread.next().is_none());
        assert_eq!(spread.take().len(), 7);
    }

    #[test]
    fn some_ranks_alone() {
        let mut spread = Spread::new(0, 3, 1);
        let of = |ranks: &[usize]| Offer { ranks: Some(ranks.to_vec()), ..offer("f", 8) };
        (0..5).for_each(|_| spread.push(of(&[1])));
        (0..3).for_each(|_| spread.push(of(&[0, 2])));
        let mut asked: Vec<usize> =
            std::iter::from_fn(|| spread.next()).map(|it| it.1.rank).collect();
        asked.sort_unstable();
        assert_eq!(asked, [0, 0, 1, 1, 2], "rank 1 has enough, and holds up nobody");
        // Also what is not worth its way goes where it must.
        let mut spread = Spread::new(0, 2, 1);
        spread.costs.runs.insert("f".into(), 1.0);
        spread.push(Offer { ranks: Some(vec![1]), ..offer("f", 1 << 20) });
        assert_eq!(spread.next().map(|it| it.1.rank), Some(1));
    }

    #[test]
    fn ways_are_measured() {
        let mut costs = Spread::<()>::new(0, 2, 1).costs;
        assert_eq!(costs.moves(1000), WAY + 1000.0 * BYTE);
        // The first takes the place of what was assumed though it is longer, then the shortest counts.
        costs.learn(8, 2.0 * WAY);
        costs.learn(100_000, 2.0 * WAY + 300_000.0);
        assert_eq!(costs.moves(1000), 2.0 * WAY + 3000.0);
        costs.learn(8, WAY / 2.0);
        costs.learn(8, WAY);
        assert_eq!(costs.moves(0), WAY / 2.0);
    }

    #[test]
    fn what_is_not_worth_its_way_stays() {
        let mut spread = Spread::new(0, 2, 1);
        spread.push(offer("short", 1 << 20));
        let (_, asked, _) = spread.next().unwrap();
        spread.is_answered(&asked, Duration::from_micros(3));
        for _ in 0..4 {
            spread.push(offer("short", 1 << 20));
        }
        let (_, first, why) = spread.next().unwrap();
        assert!(first.rank == 0 && why.contains("longer than short runs"), "{why}");
        assert_eq!(spread.next().unwrap().1.rank, 0);
        assert!(spread.next().is_none(), "it waits rather than move");
    }
}
