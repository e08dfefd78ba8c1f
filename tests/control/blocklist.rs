//! The preset `blocklist`: what it forbids whatever else permits it, and how a person lifts one
//! name.

use std::fs;

use crate::program::Program;

#[test]
fn a_blocked_host_is_reached_by_nobody_but_a_session_in_the_group_of_its_name() {
    let program = Program::start("");
    fs::write(
        program.path("rules.cedar"),
        "permit(principal, action, resource);",
    )
    .unwrap();
    let listed =
        program.edit(|text| text.replace("[policy]\n", "[policy]\npresets = [\"blocklist\"]\n"));
    program.reload();
    let (status, said) = program.ask("http://in.webhook.site/");
    assert_eq!(status, 403, "{said}");
    for part in ["policy_forbids", "blocks/webhook/webhook.site"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let (_, why) = program.gateway(&["why", "--last"]);
    let lifts = "lifted for a session by `--group reaches-webhook.site`";
    assert!(why.contains(lifts), "{why}");
    // What is not listed is as it was.
    assert_eq!(program.ask("http://stream.test/").0, 200);
    let query = "GET http://stream.test/ HTTP/1.1\r\nHost: stream.test\r\nAccept: application/dns-message\r\nConnection: close\r\n\r\n";
    let answer = program.through_socks([1, 1, 1, 1], query);
    assert!(answer.is_empty() || answer.contains("403"), "{answer}");
    program.edit(|text| {
        text.replace(
            "\"agent-1\"\n",
            "\"agent-1\"\ngroups = [\"reaches-webhook.site\"]\n",
        )
    });
    program.reload();
    let (_, said) = program.ask("http://in.webhook.site/");
    assert!(!said.contains("policy_forbids"), "{said}");
    assert_eq!(program.ask("http://pastebin.com/").0, 403);
    let (code, said) = program.gateway(&["policy", "check", "--config", "gateway.toml"]);
    assert!(code == 0 && !said.contains("warning: policy"), "{said}");
    let (_, shown) = program.gateway(&["secret", "presets", "blocklist"]);
    assert!(
        shown.contains("forbids paste at ") && shown.contains("application/dns-message"),
        "{shown}"
    );
    program.edit(|_| listed);
}
