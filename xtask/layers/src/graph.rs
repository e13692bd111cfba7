//! Files and their imports as a graph: cycles, and the arrows that close them.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::algo::{greedy_feedback_arc_set, tarjan_scc};
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;

use crate::modules::Tree;

/// Shows the cycles of a crate; their number.
pub(crate) fn report(root: &str, tree: &Tree) -> usize {
    let graph = graph(tree);
    let cycles: Vec<_> = tarjan_scc(&graph).into_iter().filter(|files| files.len() > 1).collect();
    println!("{root}: {} files, {} cycles", tree.files.len(), cycles.len());
    for cycle in &cycles {
        println!("  {} files import each other; these imports go back up:", cycle.len());
        let within = graph.filter_map(
            |node, file| cycle.contains(&node).then_some(*file),
            |_, names| Some(names),
        );
        let mut back: Vec<String> = greedy_feedback_arc_set(&within)
            .map(|arrow| {
                let path = |node: NodeIndex| tree.files[within[node]].path.display();
                let names: Vec<&str> = arrow.weight().iter().map(String::as_str).collect();
                format!(
                    "    {} -> {}: {}",
                    path(arrow.source()),
                    path(arrow.target()),
                    names.join(", ")
                )
            })
            .collect();
        back.sort();
        back.iter().for_each(|line| println!("{line}"));
    }
    cycles.len()
}

/// Shows every import of a crate.
pub(crate) fn arrows(tree: &Tree) {
    let graph = graph(tree);
    for arrow in graph.edge_references() {
        let path = |node: NodeIndex| tree.files[graph[node]].path.display();
        let names: Vec<&str> = arrow.weight().iter().map(String::as_str).collect();
        println!("{} -> {}: {}", path(arrow.source()), path(arrow.target()), names.join(", "));
    }
}

/// An arrow from each file to those that define what it names, with these names.
fn graph(tree: &Tree) -> DiGraph<usize, BTreeSet<String>> {
    let mut arrows: BTreeMap<(usize, usize), BTreeSet<String>> = BTreeMap::new();
    for (from, file) in tree.files.iter().enumerate() {
        for import in &file.imports {
            let defined = tree.defines(&import.within, &import.path);
            for to in defined.into_iter().filter(|to| *to != from) {
                let name = import.path.last().cloned().unwrap_or_default();
                arrows.entry((from, to)).or_default().insert(name);
            }
        }
    }
    let mut graph = DiGraph::new();
    let nodes: Vec<_> = (0..tree.files.len()).map(|file| graph.add_node(file)).collect();
    for ((from, to), names) in arrows {
        graph.add_edge(nodes[from], nodes[to], names);
    }
    graph
}
