//! The table, and its picture.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::process::Command;

use crate::phases::{PHASES, Phase};

/// What one round of one phase told of one proxy.
pub struct Sample {
    /// Microseconds of its processor for an exchange.
    pub cpu: f64,
    /// Microseconds until the first piece of an answer, in half of the exchanges.
    pub first: f64,
    /// Microseconds until its end, in 99 of 100.
    pub tail: f64,
    /// Exchanges.
    pub count: usize,
    /// Connections to the origin.
    pub dialled: u64,
}

/// All rounds, by phase and proxy.
pub type Samples = HashMap<(&'static str, &'static str), Vec<Sample>>;

struct Row {
    title: String,
    cells: Vec<Option<f64>>,
    digits: usize,
    target: Option<f64>,
    spread: f64,
    dialled: Option<f64>,
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

type Value = fn(&Sample) -> f64;

/// What of a phase is told, and by how many digits.
fn told(phase: &Phase) -> Vec<(&'static str, Value, usize)> {
    match &*phase.name {
        "far" => vec![
            ("ms to the first event", |one| one.first / 1e3, 1),
            ("round trips until then", |one| (one.first / 4e4).floor(), 0),
        ],
        "steady" => vec![
            ("CPU µs", |one| one.cpu, 0),
            ("µs, half of them", |one| one.first, 0),
            ("µs, 99 of 100", |one| one.tail, 0),
        ],
        "model" => vec![
            ("CPU µs", |one| one.cpu, 0),
            ("µs to the first event", |one| one.first, 0),
        ],
        "down" | "up" => vec![("CPU s a GiB", |one| one.cpu * 64.0 / 1e6, 2)],
        _ => vec![("CPU µs", |one| one.cpu, 1)],
    }
}

fn rows(samples: &Samples, proxies: &[&'static str]) -> Vec<Row> {
    let mut rows = Vec::new();
    for phase in PHASES.iter() {
        let of = |proxy| samples.get(&(&*phase.name, proxy));
        let Some(own) = of("gateway") else { continue };
        let count: usize = own.iter().map(|one| one.count).sum();
        let dialled: u64 = own.iter().map(|one| one.dialled).sum();
        let dialled = dialled as f64 * 1000.0 / count.max(1) as f64;
        for (nth, (what, value, digits)) in told(phase).into_iter().enumerate() {
            let values = |proxy| of(proxy).map(|all| all.iter().map(value).collect::<Vec<_>>());
            let cell =
                |proxy: &&'static str| values(*proxy).and_then(median).filter(|one| *one > 0.0);
            let cells: Vec<_> = proxies.iter().map(cell).collect();
            let most = own.iter().map(value).fold(f64::MIN, f64::max);
            let least = own.iter().map(value).fold(f64::MAX, f64::min);
            rows.push(Row {
                title: format!("{}: {what}", phase.title),
                spread: (most - least) / cells[0].unwrap_or(f64::MAX) * 100.0,
                target: phase.target.filter(|_| nth == 0),
                dialled: Some(dialled).filter(|_| nth == 0),
                cells,
                digits,
            });
        }
    }
    rows
}

/// The table as Markdown, with a ratio to each of those that the product is compared with.
pub fn table(samples: &Samples, proxies: &[&'static str], rounds: usize) -> String {
    let bases: Vec<usize> = (0..proxies.len())
        .filter(|at| ["against", "ref-rust"].contains(&proxies[*at]))
        .collect();
    let run = |words: &[&str]| {
        let output = Command::new(words[0]).args(&words[1..]).output().ok();
        output.map_or(String::new(), |output| {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        })
    };
    let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let processor = processor
        .lines()
        .find_map(|line| line.strip_prefix("model name\t: "));
    let mut text = format!(
        "Commit {}, {} × {}, Linux {}.\nMedians of {rounds} interleaved rounds; `spread` is the \
         gateway's between them, `dials` is what it\ndialled for 1,000 exchanges.\n\n",
        run(&["git", "describe", "--always", "--dirty"]),
        std::thread::available_parallelism().map_or(1, usize::from),
        processor.unwrap_or("an unknown processor"),
        run(&["uname", "-r"]),
    );
    for name in ["ref-rust", "hudsucker", "nginx"] {
        if !proxies.contains(&name) {
            let _ = writeln!(text, "Not compared with {name}, which is not there.\n");
        }
    }
    let ratios: String = bases
        .iter()
        .map(|at| format!(" to {} |", proxies[*at]))
        .collect();
    let names = proxies.join(" | ");
    let _ = writeln!(text, "| | {names} |{ratios} target | spread | dials |");
    let columns = proxies.len() + bases.len() + 3;
    let _ = writeln!(text, "|---|{}", "---:|".repeat(columns));
    for row in rows(samples, proxies) {
        let shown = |value: Option<f64>, digits| {
            value.map_or("–".to_owned(), |value| format!("{value:.digits$}"))
        };
        let mut cells: Vec<_> = row
            .cells
            .iter()
            .map(|one| shown(*one, row.digits))
            .collect();
        let ratio = |at: &usize| Some(row.cells[0]? / row.cells[*at]?);
        cells.extend(bases.iter().map(|at| shown(ratio(at), 2)));
        cells.push(
            row.target
                .map_or(String::new(), |target| format!("≤ {target}")),
        );
        cells.push(format!("{:.0} %", row.spread));
        cells.push(
            row.dialled
                .map_or(String::new(), |dialled| format!("{dialled:.1}")),
        );
        let _ = writeln!(text, "| {} | {} |", row.title, cells.join(" | "));
    }
    text
}

/// The processor's time of each, in that of `ref-rust`, or of the product where that is not there.
pub fn picture(samples: &Samples, proxies: &[&'static str]) -> String {
    const COLOURS: [&str; 5] = ["#2f6fde", "#8a8a8a", "#3a9d5d", "#c9822b", "#a04fb0"];
    let proxies = &proxies[..proxies.len() - 1]; // the last is no proxy
    let base = proxies
        .iter()
        .position(|name| *name == "ref-rust")
        .unwrap_or(0);
    let mut bars = String::new();
    let mut bar = |x: usize, y: usize, width: f64, colour: &str, text: &str| {
        let end = x as f64 + width + 6.0;
        let _ = writeln!(
            bars,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width:.0}\" height=\"12\" fill=\"{colour}\"/>\
             <text x=\"{end:.0}\" y=\"{}\">{text}</text>",
            y + 10
        );
    };
    for (nth, name) in proxies.iter().enumerate() {
        bar(12 + nth * 150, 26, 12.0, COLOURS[nth], name);
    }
    let mut y = 48;
    for row in rows(samples, proxies)
        .iter()
        .filter(|row| row.title.contains("CPU"))
    {
        bar(6, y, 0.0, "none", &row.title.replace(": CPU µs", ""));
        for (nth, cell) in row.cells.iter().enumerate() {
            let Some((own, one)) = cell.zip(row.cells[base]) else {
                continue;
            };
            y += 14;
            let width = (own / one * 160.0).min(780.0);
            bar(12, y, width, COLOURS[nth], &format!("{:.2}", own / one));
        }
        y += 24;
    }
    let title = format!(
        "The processor's time of an exchange, in that of {}",
        proxies[base]
    );
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 880 {y}\" \
         font-family=\"sans-serif\" font-size=\"12\" fill=\"#202020\">\n\
         <rect width=\"880\" height=\"{y}\" fill=\"#fff\"/>\n\
         <text x=\"12\" y=\"16\">{title}</text>\n{bars}</svg>\n"
    )
}
