//! The graph of a rank's tasks, recorded and shown.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};

use spmd::prelude::*;
use spmd::tasks::spawn;

use crate::support::World;

/// What a graph says: of each task, by name or line, its state; and arrows, with `-->` for dashed ones.
#[derive(Debug, Default, PartialEq)]
struct Shown {
    title: String,
    tasks: BTreeMap<String, String>,
    arrows: Vec<String>,
}

fn shown(ctx: &Ctx) -> Shown {
    let text = ctx.task_graph().to_string();
    let inner = text.strip_prefix("digraph tasks {\n").and_then(|text| text.strip_suffix("}\n"));
    let (mut shown, mut names) = (Shown::default(), BTreeMap::new());
    for line in inner.expect("a graph").lines() {
        let line = line.trim().strip_suffix(';').expect("a statement");
        let label =
            || line.split_once("label=\"").expect("a label").1.rsplit_once('"').expect("its end").0;
        let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
        if line.starts_with("label=") {
            shown.title = label().into();
        } else if let Some(to) = rest.strip_prefix("-> ") {
            let (to, arrow) = match to.strip_suffix(" [style=dashed]") {
                Some(to) => (to, "-->"),
                None => (to, "->"),
            };
            let name = |task: &str| names.get(task).cloned().expect("a task");
            shown.arrows.push(format!("{} {arrow} {}", name(first), name(to)));
        } else if first != "node" {
            let parts: Vec<&str> = label().split("\\n").collect();
            let [name, .., state] = parts[..] else { panic!("{line}") };
            names.insert(first.to_owned(), name.to_owned());
            shown.tasks.insert(name.into(), state.into());
        }
    }
    drawn(&text);
    shown
}

/// Has `dot` draw it, where that is installed.
fn drawn(text: &str) {
    let dot = Command::new("dot").arg("-Tsvg").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut dot) = dot else { return println!("SKIPPED: there is no dot (graphviz)") };
    dot.stdin.take().expect("its input").write_all(text.as_bytes()).expect("it reads");
    let drawn = dot.wait_with_output().expect("it ends");
    assert!(drawn.status.success(), "{text}");
    let tasks = text.matches("fillcolor=").count();
    assert_eq!(String::from_utf8_lossy(&drawn.stdout).matches("class=\"node\"").count(), tasks);
}

fn add_one(x: &mut i32) -> Result<()> {
    *x += 1;
    Ok(())
}

#[test]
fn states_and_needs() -> Result<()> {
    World::default().everywhere("recording::states_and_needs", &[1, 2], |ctx| {
        let before = ctx.spawn(|| Ok(1));
        ctx.record_tasks(100);
        let named = |name| ctx.task().name(name);
        let (open, opened) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (gate, running) = (open.clone(), opened.clone());
        let gate = named("gate").spawn(move || {
            running.store(true, Release);
            while !gate.load(Acquire) {
                std::thread::yield_now();
            }
            Ok(1)
        });
        let fails = named("fails").spawn(|| Err::<u32, _>("no".into()));
        let after = named("after").spawn_after((&gate, &before, &fails), |a, b, c| Ok(a + b + c));
        let cancelled = named("cancelled").spawn_after((&gate,), |_| Ok(()));
        let quoted = named("\"quoted\"\\").spawn(|| spawn(|| Ok(1)).take());
        quoted.fetch()?;
        assert!(fails.fetch().is_err());
        while !opened.load(Acquire) {
            std::thread::yield_now();
        }
        let first = shown(ctx);
        assert_eq!(first.title, format!("Tasks of rank {}", ctx.rank()));
        let state = |shown: &Shown, name: &str| shown.tasks[name].clone();
        let states = ["gate", "fails", "after", "cancelled", "\\\"quoted\\\"\\\\"];
        assert_eq!(
            states.map(|name| state(&first, name)),
            ["running", "failed", "waiting", "waiting", "over"]
        );
        // The one within the last has no name.
        assert_eq!(first.tasks.len(), 6, "{first:?}");
        assert_eq!(first.arrows, ["gate -> after", "fails -> after", "gate -> cancelled"]);
        cancelled.cancel();
        open.store(true, Release);
        assert!(after.take().is_err() && cancelled.take().is_err());
        gate.fetch()?;
        let last = shown(ctx);
        let states = ["gate", "after", "cancelled"].map(|name| state(&last, name));
        assert_eq!(states, ["over", "failed", "cancelled"]);
        Ok(())
    })
}

#[test]
fn data_order_tasks() -> Result<()> {
    World::default().everywhere("recording::data_order_tasks", &[1], |ctx| {
        ctx.record_tasks(10);
        let data = Data::new(0);
        let lines = ctx.datadeps(|d| {
            let first = line!() + 1;
            d.spawn((d.write(&data),), add_one);
            d.spawn((d.read(&data),), |_| Ok(()));
            d.spawn((d.read(&data),), |_| Ok(()));
            d.spawn((d.write(&data),), add_one);
            Ok([0, 1, 2, 3].map(|more| format!("tests/tasks/recording.rs:{}", first + more)))
        })?;
        let shown = shown(ctx);
        let arrow = |from: usize, to: usize| format!("{} --> {}", lines[from], lines[to]);
        let expected = [(0, 1), (0, 2), (0, 3), (1, 3), (2, 3)].map(|(from, to)| arrow(from, to));
        assert_eq!(shown.arrows, expected);
        assert!(lines.iter().all(|line| shown.tasks[line] == "over"), "{shown:?}");
        Ok(())
    })
}

/// What goes beyond the limit is counted; the next record begins anew.
#[test]
fn at_the_limit() -> Result<()> {
    World::default().everywhere("recording::at_the_limit", &[1, 2], |ctx| {
        let empty = shown(ctx);
        assert!(empty.title.contains("are not recorded: call record_tasks"), "{empty:?}");
        let many = |needed: usize| -> Result<()> {
            let parts: Vec<Task<usize>> = (0..needed)
                .map(|i| ctx.task().name(&format!("part {i}")).spawn(move || Ok(i)))
                .collect();
            ctx.task().name("sum").spawn_after(&parts, |parts| Ok(parts.len())).take().map(drop)
        };
        ctx.record_tasks(4);
        many(3)?;
        let full = shown(ctx);
        assert_eq!(full.title, format!("Tasks of rank {}", ctx.rank()));
        assert_eq!((full.tasks.len(), full.arrows.len()), (4, 3), "{full:?}");
        many(1)?;
        let beyond = shown(ctx);
        assert!(
            beyond.title.ends_with(", the first 4; 2 tasks and 1 arrows more are not recorded")
        );
        assert_eq!((beyond.tasks, beyond.arrows), (full.tasks, full.arrows));
        // Eight arrows for each task.
        ctx.record_tasks(2);
        let one = ctx.task().name("one").spawn(|| Ok(1));
        let copies = [&one; 8];
        let [a, b, c, d, e, f, g, h] = copies;
        let all = (a, b, c, d, e, f, g, h);
        for _ in 0..3 {
            let sum = ctx
                .task()
                .name("sum")
                .spawn_after(all, |a, b, c, d, e, f, g, h| Ok(a + b + c + d + e + f + g + h));
            assert_eq!(sum.take()?, 8);
        }
        let shown = shown(ctx);
        assert_eq!(shown.arrows, ["one -> sum"; 8]);
        assert!(shown.title.ends_with("; 2 tasks and 16 arrows more are not recorded"));
        ctx.record_tasks(0);
        many(2)?;
        assert!(self::shown(ctx).tasks.is_empty());
        Ok(())
    })
}
