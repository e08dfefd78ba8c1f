//! What one exchange costs in instructions and allocations, which a loaded machine does not change.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::load::Clients;
use crate::origin::{Origin, dialled};
use crate::phases::{PHASES, Phase, World};
use crate::proxies::{Failure, Process, Proxy, gateway};

/// So many rules the short form has: valgrind takes long to read 10,000.
const RULES: usize = 1_000;
/// What only the thread runs that keeps sessions' records.
const RECORDS: &str = "sqlite3VdbeExec";

/// What callgrind counted for one exchange, and the connections that all of them took.
#[derive(Clone, Copy, Default, serde::Deserialize, serde::Serialize)]
pub struct Count {
    /// Instructions in user space, without those that stand for SHA-256: valgrind has none of the
    /// processor's for it.
    pub instructions: f64,
    /// Calls of the allocator.
    pub allocations: f64,
    /// Connections to the origin.
    #[serde(skip)]
    pub connections: u64,
    /// What was subtracted of both, which is known no better: little on a quiet machine.
    #[serde(skip)]
    pub by_clock: [f64; 2],
}

/// Counts phases, one after the other, over one connection each, at one thread. Of each it prints
/// so many functions.
pub async fn count(
    program: &Path,
    origin: &Origin,
    is_asked: impl Fn(&Phase) -> bool,
    functions: usize,
) -> Result<BTreeMap<String, Count>, Failure> {
    let mut counts = BTreeMap::new();
    let before = "valgrind --tool=callgrind --separate-threads=yes --callgrind-out-file=out \
                  --instr-atstart=no";
    for world in [World::Plain, World::Rules] {
        let is_counted =
            |phase: &&Phase| phase.world == world && phase.counted > 0 && is_asked(phase);
        let mut phases = PHASES.iter().filter(is_counted).peekable();
        if phases.peek().is_none() {
            continue;
        }
        let process = gateway(before, program, world, (1, RULES), origin)?;
        control(&process, "-i on")?;
        let proxy = Proxy {
            name: "counted",
            processes: vec![process],
        };
        let process = &proxy.processes[0];
        let mut counted = Vec::new();
        for (nth, phase) in phases.enumerate() {
            let (door, phantom) = (proxy.door(phase, origin), proxy.phantom(phase));
            let before = dialled();
            let clients = Clients::open(door, phase, (1, 1), &phantom).await?;
            clients.run(phase.counted.div_ceil(5), 300.0).await?;
            control(process, "-z")?;
            let began = Instant::now();
            clients.run(phase.counted, 600.0).await?;
            let sum = dump(process, nth + 1, functions)?;
            counted.push((phase, sum, began.elapsed(), dialled() - before));
        }
        // What it does by the clock, such as to look at its files, is not the exchanges'.
        control(process, "-z")?;
        let began = Instant::now();
        tokio::time::sleep(Duration::from_secs(10)).await;
        let idle = dump(process, counted.len() + 1, 0)?;
        let idle = idle.map(|sum| sum / began.elapsed().as_secs_f64());
        for (phase, sum, took, connections) in counted {
            let by_clock = idle.map(|sum| sum * took.as_secs_f64() / phase.counted as f64);
            let each = |at: usize| sum[at] / phase.counted as f64 - by_clock[at];
            let instructions = each(0).round();
            let allocations = (each(1) * 10.0).round() / 10.0;
            eprintln!(
                "{:9} {instructions:>12} instructions, {allocations:>7} allocations, \
                 {connections} connections",
                phase.name
            );
            let count = Count {
                instructions,
                allocations,
                connections,
                by_clock,
            };
            counts.insert(phase.name.clone(), count);
        }
        eprintln!(
            "not counted: {:.0} instructions, {:.0} allocations a second",
            idle[0], idle[1]
        );
    }
    Ok(counts)
}

/// Ends what is counted, and reads it: of all threads but the one that keeps sessions' records,
/// which works by the clock.
fn dump(process: &Process, nth: usize, functions: usize) -> Result<[f64; 2], Failure> {
    control(process, "-d")?;
    let mut profiles = String::new();
    for entry in std::fs::read_dir(process.folder.path())? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(&format!("out.{nth}-")) {
            let text = String::from_utf8_lossy(&std::fs::read(entry.path())?).into_owned();
            if !text.contains(RECORDS) {
                profiles.push_str(&text);
            }
        }
    }
    Ok(read(&profiles, functions))
}

fn control(process: &Process, what: &str) -> Result<(), Failure> {
    let mut command = Command::new("callgrind_control");
    let output = command
        .args(what.split(' '))
        .arg(process.id().to_string())
        .output()?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(())
}

fn is_allocator(function: &str) -> bool {
    let name = function.split("@@").next().unwrap_or_default();
    let name = name.strip_prefix("mi_").unwrap_or(name);
    let name = name.strip_suffix("_aligned").unwrap_or(name);
    ["malloc", "zalloc", "calloc", "realloc", "posix_memalign"].contains(&name)
}

/// Instructions and allocations of a profile (<https://valgrind.org/docs/manual/cl-format.html>).
fn read<'a>(text: &'a str, functions: usize) -> [f64; 2] {
    let mut names = HashMap::<&str, &str>::new();
    let mut costs = HashMap::<&str, u64>::new();
    let (mut current, mut callee, mut is_call, mut allocations) = ("", "", false, 0);
    for line in text.lines() {
        let number = |line: &str, nth| line.split_whitespace().nth(nth)?.parse::<u64>().ok();
        // A name is given once, behind its number.
        let mut name = |text: &'a str| {
            let (number, given) = text.split_once(' ').unwrap_or((text, ""));
            *names.entry(number).or_insert(given)
        };
        if let Some(text) = line.strip_prefix("fn=") {
            current = name(text);
        } else if let Some(text) = line.strip_prefix("cfn=") {
            callee = name(text);
        } else if let Some(calls) = line.strip_prefix("calls=") {
            is_call = true;
            if is_allocator(callee) && !is_allocator(current) && !current.starts_with("mi_") {
                allocations += number(calls, 0).unwrap_or(0);
            }
        } else if line.starts_with(|first: char| "+-*0123456789".contains(first)) {
            // The line behind `calls=` is the callee's cost.
            if !is_call {
                *costs.entry(current).or_default() += number(line, 1).unwrap_or(0);
            }
            is_call = false;
        }
    }
    let mut costs: Vec<_> = costs.into_iter().map(|(name, cost)| (cost, name)).collect();
    costs.sort_unstable_by(|one, other| other.cmp(one));
    for (cost, name) in costs.iter().take(functions) {
        println!("{cost:14}  {}", name.chars().take(110).collect::<String>());
    }
    let own = costs.iter().filter(|(_, name)| !name.contains("sha256"));
    [own.map(|(cost, _)| *cost as f64).sum(), allocations as f64]
}
