//! Random programs: the same sequence of collectives, messages and new communicators on every
//! rank, each step checked as the cases of the matrix are. Calls are made at once, or go on while
//! others are made: started, in a scope, persistent; and there are accesses to windows.

mod meanwhile;

use std::cell::RefCell;
use std::rc::Rc;

use crate::prelude::{Result, *};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestError, TestRunner};

use super::case::{Case, LAYOUTS};
use super::fold::{Fold, Folds};
use super::{moves, objects, reductions};
use crate::element::{Sample, random};
use crate::full;
use crate::windows::RandomWindow;
use meanwhile::{End, Repeated, Shape};

/// One step. Numbers that choose among things are taken modulo how many there are.
#[derive(Clone, Debug)]
pub enum Step {
    Collective {
        comm: usize,
        form: usize,
        count: usize,
        root: usize,
        layout: usize,
    },
    /// A message that is received at once, or when so many more steps have begun.
    Message {
        comm: usize,
        from: usize,
        to: usize,
        count: usize,
        delay: usize,
    },
    /// Everybody sends to the rank this far ahead, and receives.
    Shift {
        comm: usize,
        by: usize,
        count: usize,
    },
    /// A collective that is started, and waited for when so many more steps have begun.
    Start {
        comm: usize,
        shape: Shape,
        delay: usize,
    },
    /// As `Shift`, of messages that go on.
    Post {
        comm: usize,
        by: usize,
        count: usize,
        delay: usize,
    },
    /// Some that borrow their buffers, in a scope.
    Scope {
        comm: usize,
        shapes: Vec<Shape>,
    },
    /// Makes a persistent collective.
    Init {
        comm: usize,
        shape: Shape,
    },
    /// Makes persistent messages to the rank this far ahead, and from the one this far behind.
    InitMessages {
        comm: usize,
        by: usize,
        count: usize,
    },
    /// Starts one of these, once more.
    Again {
        which: usize,
        delay: usize,
    },
    Window {
        comm: usize,
    },
    /// Accesses to one of the windows, by all of its ranks.
    Epoch {
        which: usize,
    },
    Dup {
        comm: usize,
    },
    Split {
        comm: usize,
        colors: u32,
        reversed: bool,
    },
    Drop {
        comm: usize,
    },
    /// One rank comes late.
    Late {
        rank: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let number = || 0..64usize;
    let count = || {
        prop_oneof![
            3 => 0..5usize,
            3 => 5..600usize,
            2 => 500..530usize,
            1 => 1000..6000usize,
        ]
    };
    let collective = (number(), 0..1000usize, count(), number(), number()).prop_map(
        |(comm, form, count, root, layout)| Step::Collective { comm, form, count, root, layout },
    );
    let message = (number(), number(), number(), count(), 0..6usize)
        .prop_map(|(comm, from, to, count, delay)| Step::Message { comm, from, to, count, delay });
    let shift =
        (number(), number(), count()).prop_map(|(comm, by, count)| Step::Shift { comm, by, count });
    let split = (number(), 1..4u32, any::<bool>())
        .prop_map(|(comm, colors, reversed)| Step::Split { comm, colors, reversed });
    let shape = move || {
        (number(), count(), number()).prop_map(|(kind, count, root)| Shape { kind, count, root })
    };
    let start = (number(), shape(), 0..8usize).prop_map(|(comm, shape, delay)| Step::Start {
        comm,
        shape,
        delay,
    });
    let post = (number(), number(), count(), 0..8usize)
        .prop_map(|(comm, by, count, delay)| Step::Post { comm, by, count, delay });
    let scope = (number(), prop::collection::vec(shape(), 1..4))
        .prop_map(|(comm, shapes)| Step::Scope { comm, shapes });
    let init = (number(), shape()).prop_map(|(comm, shape)| Step::Init { comm, shape });
    let init_messages = (number(), number(), count())
        .prop_map(|(comm, by, count)| Step::InitMessages { comm, by, count });
    let again = (number(), 0..8usize).prop_map(|(which, delay)| Step::Again { which, delay });
    prop_oneof![
        20 => collective,
        10 => message,
        3 => shift,
        6 => start,
        4 => post,
        2 => scope,
        2 => init,
        2 => init_messages,
        8 => again,
        1 => number().prop_map(|comm| Step::Window { comm }),
        3 => number().prop_map(|which| Step::Epoch { which }),
        1 => number().prop_map(|comm| Step::Dup { comm }),
        2 => split,
        2 => number().prop_map(|comm| Step::Drop { comm }),
        2 => number().prop_map(|rank| Step::Late { rank }),
    ]
}

fn program() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..60)
}

fn config(cases: u32) -> Config {
    Config { cases, failure_persistence: None, max_shrink_iters: 300, ..Config::default() }
}

/// The same on every run, but with `SPMD_TEST_FULL=1`.
fn runner(cases: u32) -> TestRunner {
    if full() {
        return TestRunner::new(config(10 * cases));
    }
    TestRunner::new_with_rng(
        config(cases),
        proptest::test_runner::TestRng::deterministic_rng(Default::default()),
    )
}

/// Runs random programs by `run`; the error is that of the shortest that fails, with the program.
pub fn explore(cases: u32, mut run: impl FnMut(&[Step]) -> Result<()>) -> Result<()> {
    let run = std::cell::RefCell::new(&mut run);
    let outcome = runner(cases).run(&program(), |steps| {
        (run.borrow_mut())(&steps).map_err(|error| TestCaseError::fail(error.to_string()))
    });
    match outcome {
        Ok(()) => Ok(()),
        Err(TestError::Fail(why, steps)) => Err(Error::from(format!("{why}\n{steps:#?}"))),
        Err(other) => Err(Error::from(other.to_string())),
    }
}

/// Some programs, the same in every process.
pub fn fixed(cases: u32) -> Vec<Vec<Step>> {
    let rng = proptest::test_runner::TestRng::deterministic_rng(Default::default());
    let mut runner = TestRunner::new_with_rng(config(cases), rng);
    let one = |_| program().new_tree(&mut runner).expect("nothing is rejected").current();
    (0..cases).map(one).collect()
}

/// A message that has been sent and not received yet.
struct Underway {
    comm: usize,
    from: usize,
    count: usize,
    tag: u32,
    due: usize,
}

/// A call that has been started and not waited for yet.
struct Started {
    end: End,
    due: usize,
}

/// One rank's state in a program.
struct Machine<'a> {
    ctx: &'a Ctx,
    /// Every rank has one of each number; some have gone.
    comms: Vec<Option<Comm>>,
    underway: Vec<Underway>,
    started: Vec<Started>,
    persistent: Vec<Rc<RefCell<Repeated>>>,
    windows: Vec<RandomWindow>,
}

/// Runs a program on this rank.
pub fn execute(ctx: &Ctx, steps: &[Step]) -> Result<()> {
    let comms = vec![Some(ctx.dup()?)];
    let (underway, started, persistent, windows) = Default::default();
    let mut machine = Machine { ctx, comms, underway, started, persistent, windows };
    for (number, step) in steps.iter().enumerate() {
        machine.receive_until(number, None)?;
        machine.end_until(number)?;
        machine.step(number, step)?;
    }
    machine.receive_until(usize::MAX, None)?;
    machine.end_until(usize::MAX)
}

fn data(tag: u32, from: usize, count: usize) -> Vec<u32> {
    (0..count).map(|index| u32::made(random(u64::from(tag), from, index))).collect()
}

/// The tag of a step's messages, which the forms don't use.
fn tag(number: usize) -> u32 {
    1000 + number as u32
}

/// Bytes up to which a send returns without a receive.
const EAGER: usize = 8 * 1024;

impl Machine<'_> {
    /// The number of a communicator that there is, and how many ranks this rank's has.
    fn comm(&self, wanted: usize) -> usize {
        let there: Vec<usize> =
            (0..self.comms.len()).filter(|index| self.comms[*index].is_some()).collect();
        there[wanted % there.len()]
    }

    fn at(&self, comm: usize) -> &Comm {
        self.comms[comm].as_ref().expect("chosen among those that are there")
    }

    fn step(&mut self, number: usize, step: &Step) -> Result<()> {
        match *step {
            Step::Collective { comm, form, count, root, layout } => {
                let comm = self.at(self.comm(comm));
                let (root, layout) = (root % comm.size(), LAYOUTS[layout % LAYOUTS.len()]);
                let ctx = Some(self.ctx);
                let seed = number as u64;
                collective(&Case { ctx, comm, count, root, layout, seed }, form)
            }
            Step::Message { comm, from, to, count, delay } => {
                self.message(number, self.comm(comm), (from, to), count, delay)
            }
            Step::Shift { comm, by, count } => {
                let comm = self.at(self.comm(comm));
                let (n, me, tag) = (comm.size(), comm.rank(), tag(number));
                let (to, from) = ((me + by) % n, (me + n - by % n) % n);
                let mut got = vec![0; count];
                comm.sendrecv(&data(tag, me, count), to, tag, &mut got, from, tag)?;
                check(got == data(tag, from, count), "sendrecv", step)
            }
            Step::Start { comm, shape, delay } => {
                let comm = self.at(self.comm(comm));
                let end = meanwhile::started(comm, shape, tag(number))?;
                self.started.push(Started { end, due: number + delay });
                Ok(())
            }
            Step::Post { comm, by, count, delay } => {
                let comm = self.at(self.comm(comm));
                let ends = meanwhile::posted(comm, (by, count), tag(number))?;
                self.started.extend(ends.map(|end| Started { end, due: number + delay }));
                Ok(())
            }
            Step::Scope { comm, ref shapes } => {
                meanwhile::scoped(self.at(self.comm(comm)), shapes, tag(number))
            }
            Step::Init { comm, shape } => {
                let made = Repeated::collective(self.at(self.comm(comm)), shape)?;
                self.persistent.push(Rc::new(RefCell::new(made)));
                Ok(())
            }
            Step::InitMessages { comm, by, count } => {
                let comm = self.at(self.comm(comm));
                let made = Repeated::messages(comm, (by, count), tag(number))?;
                self.persistent.push(Rc::new(RefCell::new(made)));
                Ok(())
            }
            Step::Again { which, delay } => {
                let Some(last) = self.persistent.len().checked_sub(1) else { return Ok(()) };
                let call = self.persistent[which % (last + 1)].clone();
                call.borrow_mut().end()?;
                call.borrow_mut().start(tag(number))?;
                let end = Box::new(move || call.borrow_mut().end());
                self.started.push(Started { end, due: number + delay });
                Ok(())
            }
            Step::Window { comm } => {
                let comm = self.at(self.comm(comm));
                self.windows.push(RandomWindow::new(comm, number as u64)?);
                Ok(())
            }
            Step::Epoch { which } => {
                let all = self.windows.len().max(1);
                let window = self.windows.get_mut(which % all);
                window.map_or(Ok(()), |window| window.epoch(number as u64))
            }
            Step::Dup { comm } => {
                let copy = self.at(self.comm(comm)).dup()?;
                self.comms.push(Some(copy));
                Ok(())
            }
            Step::Split { comm, colors, reversed } => {
                let comm = self.at(self.comm(comm));
                let me = comm.rank() as i32;
                let key = if reversed { -me } else { me };
                let part = comm.split(Some(comm.rank() as u32 % colors), key)?;
                check(part.is_some(), "split", step)?;
                self.comms.push(part);
                Ok(())
            }
            Step::Drop { comm } => {
                let comm = self.comm(comm);
                if comm > 0 {
                    self.receive_until(usize::MAX, Some(comm))?;
                    self.comms[comm] = None;
                }
                Ok(())
            }
            Step::Late { rank } => {
                if self.ctx.rank() == rank % self.ctx.size() {
                    for _ in 0..50 {
                        self.ctx.iprobe(ANY, u32::MAX)?;
                        std::hint::spin_loop();
                    }
                }
                Ok(())
            }
        }
    }

    /// Small messages can be received later; large ones must be at once.
    fn message(
        &mut self,
        number: usize,
        comm: usize,
        (from, to): (usize, usize),
        count: usize,
        delay: usize,
    ) -> Result<()> {
        let n = self.at(comm).size();
        let (from, to, me, tag) = (from % n, to % n, self.at(comm).rank(), tag(number));
        let count = if from == to { count.min(EAGER / 4) } else { count };
        let large = 4 * count > EAGER;
        if me == from {
            let values = data(tag, from, count);
            match count % 5 {
                0 if from != to && large => self.at(comm).ssend(&values, to, tag)?,
                _ => self.at(comm).send(&values, to, tag)?,
            }
        }
        if me == to {
            let due = number + if large { 0 } else { delay };
            self.underway.push(Underway { comm, from, count, tag, due });
        }
        self.receive_until(number, None)
    }

    /// Receives what is due before a step has begun, the youngest first; or all on one
    /// communicator.
    fn receive_until(&mut self, number: usize, comm: Option<usize>) -> Result<()> {
        let due = |message: &Underway| {
            message.due <= number && comm.is_none_or(|comm| comm == message.comm)
        };
        while let Some(at) = self.underway.iter().rposition(due) {
            let message = self.underway.swap_remove(at);
            let comm = self.at(message.comm);
            let (got, status) = match message.count % 3 {
                0 => comm.recv_vec::<u32>(message.from, message.tag)?,
                1 => comm.recv_vec::<u32>(ANY, message.tag)?,
                _ => {
                    let status = comm.probe(ANY, message.tag)?;
                    let mut got = vec![0; status.len()];
                    let received = comm.recv(&mut got, status.source(), status.tag())?;
                    (got, received)
                }
            };
            let right = got == data(message.tag, message.from, message.count)
                && status.source() == message.from;
            check(right, "recv", &(message.from, message.count, message.tag))?;
        }
        Ok(())
    }
}

impl Machine<'_> {
    /// Waits for what is due, the youngest first.
    fn end_until(&mut self, number: usize) -> Result<()> {
        while let Some(at) = self.started.iter().rposition(|call| call.due <= number) {
            (self.started.swap_remove(at).end)()?;
        }
        Ok(())
    }
}

fn check(right: bool, what: &str, of: &dyn std::fmt::Debug) -> Result<()> {
    if right { Ok(()) } else { Err(Error::from(format!("{what} got wrong data in {of:?}"))) }
}

/// Runs one of the forms, on one of some element types.
fn collective(case: &Case<'_>, form: usize) -> Result<()> {
    fn moving<T: Sample>(case: &Case<'_>, form: usize) -> Result<()> {
        let forms = moves::forms::<T>();
        (forms[form % forms.len()].run)(case)
    }
    fn reducing<T: Sample>(case: &Case<'_>, form: usize, fold: &dyn Folds<T>) -> Result<()> {
        let forms = reductions::forms::<T>();
        (forms[form % forms.len()].run)(case, fold)
    }
    let (which, form) = (form % 9, form / 9);
    match which {
        0 => moving::<f64>(case, form),
        1 => moving::<u8>(case, form),
        2 => moving::<bool>(case, form),
        3 => moving::<[f32; 3]>(case, form),
        4 => reducing::<f64>(case, form, &Fold { op: Sum, oracle: |a, b| a + b }),
        5 => reducing::<u8>(case, form, &Fold { op: BitXor, oracle: |a, b| a ^ b }),
        6 => reducing::<bool>(case, form, &Fold { op: LogicalOr, oracle: |a, b| a || b }),
        7 => reducing::<i32>(case, form, &Fold { op: Min, oracle: |a: i32, b| a.min(b) }),
        _ => {
            let forms = objects::forms();
            (forms[form % forms.len()].run)(case)
        }
    }
}
