//! What the compiler must refuse: each file of `tests/compile_fail/` is a violation, and
//! `NAME.stderr` beside it has the words with which the compiler refuses it.
//! `COMPILE_FAIL=overwrite` updates them. No violation may compile, and none may fail for an
//! unrelated reason, so the baseline `an_honest_caller.rs` must compile.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn every_crime_is_refused_in_the_expected_words() {
    let overwrite = std::env::var_os("COMPILE_FAIL").is_some_and(|wish| wish == "overwrite");
    let crimes: Vec<PathBuf> = cases()
        .into_iter()
        .filter(|case| !is_honest(case))
        .collect();
    assert!(crimes.len() >= 15, "where are the cases?");
    let mut wrong = Vec::new();
    for case in crimes {
        let words = errors(&case);
        let expected = case.with_extension("stderr");
        assert!(
            !words.is_empty(),
            "{} compiles, and must not",
            case.display()
        );
        if overwrite {
            std::fs::write(&expected, &words).unwrap();
        }
        let told = std::fs::read_to_string(&expected).unwrap_or_default();
        if told != words {
            wrong.push(format!(
                "{}\nexpected:\n{told}said:\n{words}",
                case.display()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_honest_caller_compiles() {
    let honest: Vec<PathBuf> = cases().into_iter().filter(|case| is_honest(case)).collect();
    assert_eq!(honest.len(), 1);
    assert_eq!(errors(&honest[0]), "");
}

fn is_honest(case: &Path) -> bool {
    case.ends_with("an_honest_caller.rs")
}

fn cases() -> Vec<PathBuf> {
    let mut cases: Vec<PathBuf> = std::fs::read_dir("tests/compile_fail")
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect();
    cases.sort();
    cases
}

/// The compiler's errors on a case, one a line: position, code and words.
fn errors(case: &Path) -> String {
    let output = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc")))
        .args([
            "--edition=2024",
            "--crate-type=lib",
            "--emit=metadata",
            "--error-format=short",
        ])
        .arg("-Awarnings")
        .arg("-L")
        .arg(format!("dependency={}", libraries().display()))
        .arg("--extern")
        .arg(format!("gateway={}", library().display()))
        .arg("-o")
        .arg(std::env::temp_dir().join(format!("compile-fail-{}.rmeta", std::process::id())))
        .arg(case)
        .output()
        .expect("rustc runs");
    let said = String::from_utf8(output.stderr).unwrap();
    let mut errors = String::new();
    for line in said.lines().filter(|line| line.contains(": error")) {
        errors.push_str(line);
        errors.push('\n');
    }
    assert_eq!(
        output.status.success(),
        errors.is_empty(),
        "the compiler did not run as expected: {said}"
    );
    errors
}

/// Where cargo put the library and all that it needs: beside this program.
fn libraries() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.parent().unwrap().to_owned()
}

/// The library as this test was linked with it: the newest, where there are several.
fn library() -> PathBuf {
    std::fs::read_dir(libraries())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("libgateway-") && name.ends_with(".rlib")
        })
        .max_by_key(|path| path.metadata().unwrap().modified().unwrap())
        .expect("cargo built the library before this test")
}
