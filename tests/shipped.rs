//! What is shipped beside the program: completions and manual pages, as shells and readers use
//! them.

use std::path::Path;
use std::process::Command;

const GATEWAY: &str = env!("CARGO_BIN_EXE_gateway");

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// What bash proposes after these words, the last of which is being typed.
fn completed(folder: &Path, words: &[&str]) -> Vec<String> {
    let script = output(Command::new(GATEWAY).args(["generate", "completions", "bash"]));
    let file = folder.join("gateway.bash");
    std::fs::write(&file, script).unwrap();
    let typed = "source \"$1\"; shift; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); \
                 _gateway gateway \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\"; \
                 printf '%s\\n' \"${COMPREPLY[@]}\"";
    let mut bash = Command::new("bash");
    bash.args(["-c", typed, "bash"]).arg(file).args(words);
    output(&mut bash).lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_and_flags_and_no_hidden_command() {
    let folder = tempfile::tempdir().unwrap();
    let commands = completed(folder.path(), &["gateway", "re"]);
    assert_eq!(commands, ["reload", "revoke", "restore"]);
    let flags = completed(folder.path(), &["gateway", "exec", "--pre"]);
    assert_eq!(flags, ["--preset"]);
    let all = completed(folder.path(), &["gateway", ""]);
    assert!(all.contains(&"exec".to_owned()), "{all:?}");
    assert!(!all.iter().any(|name| name.starts_with("__")), "{all:?}");
}

#[test]
fn each_shell_gets_completions_of_its_own() {
    for (shell, first) in [("zsh", "#compdef gateway"), ("fish", "# Print an optspec")] {
        let script = output(Command::new(GATEWAY).args(["generate", "completions", shell]));
        assert!(script.starts_with(first), "{shell}: {script:.100}");
    }
}

#[test]
fn a_shell_that_is_unknown_is_named_and_a_reader_who_had_enough_is_no_failure() {
    let unknown = Command::new(GATEWAY)
        .args(["generate", "completions", "csh"])
        .output();
    let said = String::from_utf8(unknown.unwrap().stderr).unwrap();
    assert!(said.contains("invalid value 'csh' for '<SHELL>'"), "{said}");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(GATEWAY);
    let printed = command
        .args(["generate", "completions", "bash"])
        .stdout(writer)
        .output();
    let printed = printed.unwrap();
    let said = String::from_utf8_lossy(&printed.stderr);
    assert!(printed.status.success() && said.is_empty(), "{said}");
}

#[test]
fn every_command_that_help_names_has_a_manual_page_without_a_mistake() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    output(Command::new(GATEWAY).args(["generate", "man"]).arg(&pages));
    let help = output(Command::new(GATEWAY).arg("--help"));
    let listed = help.split_once("\nOptions:").unwrap().0;
    let names = listed
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split_once("  "));
    let names: Vec<&str> = names.map(|(name, _)| name.trim()).collect();
    assert!(names.len() > 15, "{names:?}");
    for name in names {
        let page = pages.join(format!("gateway-{name}.1"));
        let mut groff = Command::new("groff");
        groff
            .args(["-Kutf8", "-man", "-Tutf8", "-ww", "-z"])
            .arg(&page);
        let checked = groff.output().unwrap();
        let said = String::from_utf8_lossy(&checked.stderr);
        assert!(
            checked.status.success() && said.is_empty(),
            "{name}: {said}"
        );
    }
}

#[test]
fn help_of_a_command_is_its_own_help() {
    let asked = output(Command::new(GATEWAY).args(["help", "exec"]));
    assert_eq!(
        asked,
        output(Command::new(GATEWAY).args(["exec", "--help"]))
    );
}
