//! The rows: each a fact about the sandbox.

use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use gateway::escape;
use gateway::launch::enroll::Capture;

use crate::driver::{ANN, Running, Sandbox, own, plant, scratch, user};

type Row = (&'static str, fn());

macro_rules! rows {
    ($($name:ident),* $(,)?) => { &[$((stringify!($name), $name as fn())),*] };
}

pub const ROWS: &[Row] = rows![
    every_tcp_connection_reaches_the_gateway_with_its_destination,
    redirect_captures_what_tproxy_captures,
    dns_questions_to_any_server_are_answered_by_the_gateway,
    names_resolve_through_the_gateway,
    other_udp_is_refused_at_once,
    the_sandboxs_own_servers_work_on_loopback,
    a_server_of_the_host_is_not_reached,
    curl_node_and_java_trust_the_session,
    editing_the_resolver_the_hosts_and_the_bundle_changes_nothing,
    the_command_runs_as_the_user_and_never_as_root,
    no_capability_is_left_nor_comes_back,
    variables_that_carry_secrets_are_dropped_and_phantoms_set,
    nothing_outside_memory_and_projects_can_be_written,
    every_mount_but_memory_and_projects_is_read_only,
    what_is_not_listed_is_not_there,
    of_the_home_only_what_programs_need_is_seen,
    what_is_named_of_the_home_is_seen_and_writes_to_it_vanish,
    of_gits_settings_only_the_identity_is_seen,
    what_is_named_elsewhere_is_seen_read_only_without_what_is_hidden,
    a_socket_below_what_is_seen_is_not_reached_whenever_and_wherever_it_was_made,
    a_program_that_is_not_seen_is_127_and_named_with_the_flag_that_shows_it,
    a_link_in_a_project_shows_and_gives_nothing_elsewhere,
    a_file_hidden_in_a_project_is_refused,
    a_hidden_directory_or_own_file_that_is_replaced_in_a_project_ends_the_command,
    secrets_in_the_home_are_hidden,
    a_secret_that_is_renamed_into_place_on_the_host_stays_hidden,
    a_secret_that_appears_later_is_hidden,
    what_is_hidden_cannot_be_named_to_be_seen,
    a_store_that_a_variable_has_moved_is_hidden,
    writes_in_the_home_vanish_and_in_the_project_stay,
    a_home_under_tmp_works,
    the_home_as_working_directory_does_not_persist,
    git_hooks_and_config_are_read_only,
    a_repository_made_inside_that_runs_something_is_put_off_while_the_command_runs,
    a_wished_file_is_hidden,
    a_folder_of_the_gateways_own_shows_nothing_that_comes_into_it_later,
    roots_own_directory_is_out_of_sight_but_the_project_in_it_is_there,
    host_sockets_and_temporary_files_are_gone,
    abstract_sockets_of_the_host_are_not_reached,
    sockets_in_the_home_and_elsewhere_are_not_reached,
    a_wished_file_that_is_renamed_into_place_stays_hidden,
    host_processes_are_not_seen_nor_signalled,
    no_inherited_file_reaches_the_command,
    a_directory_as_standard_input_is_refused,
    devices_are_few_and_terminals_are_its_own,
    sys_is_read_only,
    nested_user_namespaces_are_refused_unless_allowed,
    the_command_is_pid_two_in_a_fresh_session_of_keys,
    exit_codes_and_signals_are_the_commands_own,
    a_missing_command_is_127_and_an_unexecutable_one_126,
    a_terminated_launcher_forwards_the_signal,
    a_killed_launcher_takes_the_sandbox_with_it,
    a_killed_gateway_leaves_no_network,
    background_children_die_with_the_command,
    a_dead_or_refusing_gateway_means_125_and_no_command,
    exhausted_namespaces_mean_125_and_no_command,
    a_forbidden_mount_means_125_and_no_command,
    a_target_user_that_cannot_be_means_125_and_no_command,
    standard_streams_pass_through_untouched,
    a_file_as_a_standard_stream_cannot_be_spoilt_nor_read,
    files_as_standard_streams_get_every_byte_in_order,
    a_command_takes_from_a_file_what_it_reads_and_no_more,
    what_outlives_the_command_does_not_hold_its_output,
    output_that_cannot_be_written_is_a_failure,
    a_signal_to_the_commands_group_reaches_nobody_outside,
    the_command_leads_a_group_of_its_own,
    files_in_memory_have_one_bound,
    processes_are_bounded_and_the_users_others_are_not,
    the_command_leaves_half_of_what_may_be_watched_to_others,
    a_command_in_a_pipeline_has_the_terminal_when_it_asks,
    an_interactive_command_stops_and_continues_as_a_job,
    fifty_parallel_launches_leave_no_process,
    a_launch_takes_little_time,
    a_sandbox_in_a_sandbox_works,
    every_published_escape_is_held,
    every_published_escape_is_held_where_user_namespaces_are_allowed,
    the_probes_themselves_see_an_escape_outside_the_sandbox,
];

/// The destination, whichever way the listener wrote it.
fn plain(text: &str) -> String {
    text.replace("[::ffff:", "")
        .replace("]:", ":")
        .replace('[', "")
}

fn shell(script: &str) -> [Sandbox; 2] {
    Sandbox::by_both(&["/bin/sh", "-c", script])
}

const DESTINATIONS: [&str; 6] = [
    "8.8.8.8:80",
    "10.1.2.3:443",
    "192.0.2.2:7099",
    "[2001:db8::1]:65000",
    "1.1.1.1:853",
    "169.254.169.254:80",
];

fn every_tcp_connection_reaches_the_gateway_with_its_destination() {
    for sandbox in Sandbox::probes(&[&["tcp"], &DESTINATIONS[..]].concat()) {
        let expected: String = DESTINATIONS
            .iter()
            .map(|address| format!("reached {address}\n"))
            .collect();
        assert_eq!(plain(&sandbox.text()), plain(&expected));
    }
}

fn redirect_captures_what_tproxy_captures() {
    for mut sandbox in Sandbox::probes(&[&["tcp"], &DESTINATIONS[..]].concat()) {
        sandbox.launch.capture = Some(Capture::Redirect);
        let expected: String = DESTINATIONS
            .iter()
            .map(|address| format!("reached {address}\n"))
            .collect();
        assert_eq!(plain(&sandbox.text()), plain(&expected));
    }
}

fn dns_questions_to_any_server_are_answered_by_the_gateway() {
    let servers = [
        "8.8.8.8:53",
        "127.0.0.53:53",
        "127.0.0.1:53",
        "[2001:4860::8888]:53",
        "[::1]:53",
    ];
    for transport in ["dns", "dns-tcp"] {
        for capture in [None, Some(Capture::Redirect)] {
            for mut sandbox in Sandbox::probes(&[&[transport], &servers[..]].concat()) {
                sandbox.launch.capture = capture;
                assert_eq!(
                    sandbox.text(),
                    "answered [198, 18, 0, 1]\n".repeat(servers.len()),
                    "{transport} {capture:?}"
                );
            }
        }
    }
}

fn names_resolve_through_the_gateway() {
    for sandbox in Sandbox::probes(&["resolve", "whatever.test"]) {
        let text = sandbox.text();
        assert!(
            text.contains("198.18.0.1:80") && text.contains("[fd65::1]:80"),
            "{text}"
        );
    }
}

fn other_udp_is_refused_at_once() {
    let addresses = [
        "1.1.1.1:443",
        "8.8.8.8:123",
        "[2001:db8::1]:443",
        "224.0.0.251:5353",
        "192.0.2.1:40000",
    ];
    for sandbox in Sandbox::probes(&[&["udp"], &addresses[..]].concat()) {
        for line in sandbox.text().lines() {
            assert!(line.ends_with("at once: true"), "{line}");
        }
    }
}

fn the_sandboxs_own_servers_work_on_loopback() {
    let script = "import socket
for family, host in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1')):
    server = socket.socket(family); server.bind((host, 80)); server.listen()
    client = socket.create_connection((host, 80)); peer = server.accept()[0]
    peer.send(b'own'); print(client.recv(9).decode())";
    for sandbox in Sandbox::by_both(&["/usr/bin/env", "python3", "-c", script]) {
        let Ok(python) = std::fs::canonicalize("/usr/bin/python3") else {
            panic!("this row needs python3")
        };
        let mut sandbox = sandbox;
        sandbox.launch.arguments = vec![python.into(), "-c".into(), script.into()];
        assert_eq!(sandbox.text(), "own\nown\n");
    }
}

fn a_server_of_the_host_is_not_reached() {
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap().to_string();
    for sandbox in Sandbox::probes(&["tcp", &address]) {
        assert_eq!(sandbox.text(), "ConnectionRefused\n");
    }
}

fn curl_node_and_java_trust_the_session() {
    for sandbox in Sandbox::by_both(&["/usr/bin/curl", "-sS", "https://trusted.test/"]) {
        assert_eq!(sandbox.text(), "trusted\n");
    }
    // The bind mount over the system's bundle alone is enough, too.
    for sandbox in shell("env -u SSL_CERT_FILE -u CURL_CA_BUNDLE curl -sS https://trusted.test/") {
        assert_eq!(sandbox.text(), "trusted\n");
    }
    let get = "require('https').get('https://trusted.test/',r=>r.on('data',d=>process.stdout.write(d))).on('error',e=>console.log(e.code))";
    for sandbox in Sandbox::by_both(&["/usr/bin/node", "-e", get]) {
        assert_eq!(sandbox.text(), "trusted\n");
    }
    let source = "public class Get { public static void main(String[] a) throws Exception {
        System.out.write(new java.net.URL(\"https://trusted.test/\").openStream().readAllBytes()); System.out.flush(); } }";
    for sandbox in shell("exec java Get.java 2>&1") {
        plant(
            &sandbox.directory.join("Get.java"),
            source,
            if sandbox.uid == 0 { 65534 } else { sandbox.uid },
        );
        assert_eq!(sandbox.text(), "trusted\n");
    }
}

fn editing_the_resolver_the_hosts_and_the_bundle_changes_nothing() {
    let script = "for f in /etc/resolv.conf /etc/hosts /run/gateway/ca-bundle.pem; do
        (echo 'nameserver 9.9.9.9' > $f) 2>/dev/null && echo WROTE $f; done
        curl -s --max-time 3 http://8.8.8.8:80/";
    for sandbox in shell(script) {
        assert_eq!(plain(&sandbox.text()), "reached 8.8.8.8:80\n");
    }
}

fn the_command_runs_as_the_user_and_never_as_root() {
    let [by_root, by_user] =
        shell("id -u; id -g; id -G; echo $HOME; awk '{print $1,$2,$3}' /proc/self/uid_map");
    assert_eq!(
        by_root.text(),
        "65534\n65534\n65534\n/tmp/home\n65534 65534 1\n"
    );
    let home = by_user.home.display().to_string();
    assert_eq!(
        by_user.text(),
        format!("{ANN}\n{ANN}\n{ANN}\n{home}\n{ANN} {ANN} 1\n")
    );
    let [mut by_root, _] = shell("id -u");
    by_root.launch.user = Some(user(4321));
    assert_eq!(by_root.text(), "4321\n");
    let [by_root, _] = shell("id -u");
    let by_sudo = by_root
        .variable("SUDO_UID", "4322")
        .variable("SUDO_GID", "4322");
    assert_eq!(by_sudo.text(), "4322\n");
    let [mut by_root, mut by_user] = shell("id -u");
    by_root.launch.user = Some(user(0));
    by_user.launch.user = Some(user(0));
    assert_eq!(by_root.run().status.code(), Some(125));
    assert_eq!(by_user.run().status.code(), Some(125));
}

fn no_capability_is_left_nor_comes_back() {
    for sandbox in shell(
        "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status | awk '{print $2}' | sort -u | tr '\\n' ' '",
    ) {
        assert_eq!(sandbox.text(), "0000000000000000 1 2 ");
    }
    // A set-user-ID program of root gains nothing.
    let place = scratch("setuid", 0);
    let program = place.join("id");
    std::fs::copy("/usr/bin/id", &program).unwrap();
    own(&program, 0);
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).unwrap();
    for mut sandbox in Sandbox::by_both(&[program.to_str().unwrap(), "-u"]) {
        sandbox.launch.see = vec![place.clone()];
        let expected = if sandbox.uid == 0 { 65534 } else { sandbox.uid };
        assert_eq!(sandbox.text(), format!("{expected}\n"));
    }
}

fn variables_that_carry_secrets_are_dropped_and_phantoms_set() {
    for sandbox in
        shell("env | cut -d= -f1 | sort | tr '\\n' ' '; echo; echo $GITHUB_TOKEN $HTTPS_PROXY")
    {
        let sandbox = sandbox
            .variable("GITHUB_TOKEN", "ghp_real")
            .variable("HTTPS_PROXY", "http://127.0.0.1:1")
            .variable("SSH_AUTH_SOCK", "/x")
            .variable("UNWANTED", "1")
            .variable("CARGO_HOME", "/nonexistent")
            .variable("EDITOR", "ghp_0123456789")
            .variable("DATABASE_URL", "postgres://a:canary@b/c");
        let mut sandbox = sandbox;
        sandbox.launch.environment.allow.push("UNWANTED".into());
        let text = sandbox.text();
        let (names, phantom) = text.split_once('\n').unwrap();
        let names: Vec<&str> = names.split(' ').collect();
        for absent in [
            "HTTPS_PROXY",
            "SSH_AUTH_SOCK",
            "UNWANTED",
            "DATABASE_URL",
            "EDITOR",
            "SUDO_UID",
            "SSL_CERT_DIR",
            // The virtual machine's own store is covered; it would print this on each start.
            "JAVA_TOOL_OPTIONS",
        ] {
            assert!(!names.contains(&absent), "{absent} in {names:?}");
        }
        for present in [
            "CARGO_HOME",
            "PATH",
            "HOME",
            "SSL_CERT_FILE",
            "NODE_EXTRA_CA_CERTS",
        ] {
            assert!(names.contains(&present), "no {present} in {names:?}");
        }
        assert_eq!(phantom, "ghp_phantom\n");
    }
    for mut sandbox in shell("echo $MY_TOKEN") {
        sandbox.launch.environment.allow.push("MY_TOKEN".into());
        assert_eq!(sandbox.variable("MY_TOKEN", "wanted").text(), "wanted\n");
    }
}

/// The script prints the name of everything that it could do.
fn nothing_outside_memory_and_projects_can_be_written() {
    let script = "cd $PLACE; try() { \"$@\" 2>/dev/null && echo \"$*\"; }
        for d in own group all; do
            try sh -c \"echo after > $d/f\"; try sh -c \"echo x > $d/new\"; try mkdir $d/d; try mkfifo $d/p; try ln -s / $d/l; try ln $d/f $d/h
            try rm $d/f; try mv $d/f $d/g; try chmod 777 $d/f; try touch $d/f; try mv $d moved
        done
        try sh -c 'echo x > /etc/x'; try sh -c 'echo x > /usr/x'; try sh -c 'echo x > /x'; try mkdir /var/x; try mkdir /home/x; try mkdir /dev/x
        echo in-memory | tee ~/f /tmp/f /var/tmp/f /run/f /dev/shm/f > $PROJECT/f; true";
    for seen in [false, true] {
        for mut sandbox in shell(script) {
            let owner = if sandbox.uid == 0 { 65534 } else { ANN };
            let place = scratch("beside", sandbox.uid);
            for (folder, mode) in [("own", 0o755), ("group", 0o2775), ("all", 0o1777)] {
                plant(&place.join(folder).join("f"), "before\n", owner);
                std::fs::set_permissions(place.join(folder), std::fs::Permissions::from_mode(mode))
                    .unwrap();
            }
            if seen {
                sandbox.launch.see = vec![place.clone()];
            }
            let project = sandbox.directory.display().to_string();
            sandbox.launch.environment.allow = vec!["PLACE".into(), "PROJECT".into()];
            let sandbox = sandbox
                .variable("PLACE", place.to_str().unwrap())
                .variable("PROJECT", &project);
            assert_eq!(sandbox.text(), "");
            for folder in ["own", "group", "all"] {
                let names: Vec<_> = std::fs::read_dir(place.join(folder)).unwrap().collect();
                assert_eq!(names.len(), 1);
                assert_eq!(
                    std::fs::read_to_string(place.join(folder).join("f")).unwrap(),
                    "before\n"
                );
            }
            assert_eq!(
                std::fs::read_to_string(sandbox.directory.join("f")).unwrap(),
                "in-memory\n"
            );
            assert!(!sandbox.home.join("f").exists());
        }
    }
}

fn every_mount_but_memory_and_projects_is_read_only() {
    for sandbox in shell(
        "awk '$6 ~ /^rw/ {print $5}' /proc/self/mountinfo; awk '$6 !~ /nosuid/ {print $5}' /proc/self/mountinfo | grep -v ^/dev/",
    ) {
        plant(&sandbox.home.join(".cargo/bin/tool"), "", ANN);
        let home = sandbox.home.display().to_string();
        let project = sandbox.directory.display().to_string();
        let output = sandbox.run();
        let text = String::from_utf8_lossy(&output.stdout);
        let mut writable = vec![
            "/run", "/tmp", "/var/tmp", "/dev/pts", "/dev/shm", "/proc", &home, &project,
        ];
        writable.extend([
            "/dev/null",
            "/dev/zero",
            "/dev/full",
            "/dev/random",
            "/dev/urandom",
            "/dev/tty",
            "/dev/console",
        ]);
        for mount in text.lines() {
            assert!(
                writable.contains(&mount)
                    || mount == format!("{home}/.cargo/bin")
                    // A part of the project, with what git obeys in it read-only.
                    || mount == format!("{project}/.git"),
                "{mount}"
            );
        }
        assert!(text.contains(&project));
    }
}

fn what_is_not_listed_is_not_there() {
    let listed = "bin dev etc gnu home lib lib32 lib64 libx32 nix opt proc run sbin snap srv sys tmp usr var";
    for sandbox in shell(
        "ls -A /; echo; ls -A .. /srv/gateway-netns | grep -v '^/' ; ls -A /var /var/lib; cat ../beside /srv/gateway-netns/beside /root/.profile 2>&1",
    ) {
        plant(
            &sandbox.directory.parent().unwrap().join("beside"),
            "SECRET",
            0,
        );
        let output = sandbox.run();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(!text.contains("SECRET"), "{text}");
        let (root, rest) = text.split_once("\n\n").unwrap();
        let links = std::fs::read_dir("/")
            .unwrap()
            .flatten()
            .filter(|entry| entry.file_type().unwrap().is_symlink());
        let links: Vec<String> = links
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        for name in root.lines() {
            assert!(
                listed.split(' ').any(|known| known == name)
                    || links.iter().any(|link| link == name),
                "{name}"
            );
        }
        assert!(
            !rest.contains("log") && !rest.contains("spool") && !rest.contains("docker"),
            "{rest}"
        );
        std::fs::remove_file(sandbox.directory.parent().unwrap().join("beside")).unwrap();
    }
}

fn of_the_home_only_what_programs_need_is_seen() {
    let sandbox = Sandbox::by_user(&[
        "/bin/sh",
        "-c",
        "cd ~; find . -type f | sort; .cargo/bin/tool; tool; echo x > .cargo/registry/x && echo wrote",
    ]);
    for store in escape::stores() {
        plant(&sandbox.home.join(store), "SECRET", ANN);
    }
    for tool in [".cargo/bin/tool", ".local/bin/tool"] {
        plant(&sandbox.home.join(tool), "#!/bin/sh\necho ran\n", ANN);
        std::fs::set_permissions(
            sandbox.home.join(tool),
            std::fs::Permissions::from_mode(0o755),
        )
        .unwrap();
    }
    plant(&sandbox.home.join(".cargo/registry/index"), "", ANN);
    plant(&sandbox.home.join(".local/share/pnpm/store/x"), "", ANN);
    let path = format!(
        "{}:/usr/bin:/bin",
        sandbox.home.join(".local/bin").display()
    );
    let text = sandbox.variable("PATH", &path);
    let directory = text.directory.clone();
    let text = text.text();
    assert_eq!(
        text,
        "./.cargo/bin/tool\n./.cargo/registry/index\n./.local/bin/tool\n./.local/share/pnpm/store/x\nran\nran\nwrote\n",
        "{}",
        directory.display()
    );
}

fn what_is_named_of_the_home_is_seen_and_writes_to_it_vanish() {
    let script = "cd ~; cat .vimrc .claude/skills/s .config/app/x data/y 2>&1; echo changed | tee .vimrc .claude/skills/s data/y .config/app/x | cat .vimrc data/y; find . -type f | sort";
    let mut sandbox = Sandbox::by_user(&["/bin/sh", "-c", script]);
    for name in [
        ".vimrc",
        ".claude/skills/s",
        ".claude/.credentials.json",
        ".config/app/x",
        ".config/gh/hosts.yml",
        "data/y",
        "data/.env",
        "other",
    ] {
        plant(&sandbox.home.join(name), &format!("{name}\n"), ANN);
    }
    let home = sandbox.home.clone();
    sandbox.launch.see_home = vec!["claude".into(), "~/.vimrc".into(), ".config".into()];
    sandbox.launch.see = vec![home.join("data")];
    sandbox.launch.hide = vec![home.join("data/.env")];
    let text = sandbox.text();
    assert!(
        text.starts_with(".vimrc\n.claude/skills/s\n.config/app/x\ndata/y\n"),
        "{text}"
    );
    assert!(
        text.ends_with("./.claude/skills/s\n./.config/app/x\n./.vimrc\n./data/y\n"),
        "{text}"
    );
    assert_eq!(
        std::fs::read_to_string(home.join("data/y")).unwrap(),
        "data/y\n"
    );
    for (asked, why) in [
        ("~", "whole home"),
        ("../other", "leads out"),
        ("/etc", "`--see`"),
    ] {
        let mut sandbox = Sandbox::by_user(&["/bin/true"]);
        sandbox.launch.see_home = vec![asked.into()];
        let output = sandbox.run();
        assert_eq!(output.status.code(), Some(125));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(why), "{errors}");
    }
}

fn of_gits_settings_only_the_identity_is_seen() {
    let sandbox = Sandbox::by_user(&[
        "/bin/sh",
        "-c",
        "git config --global --list; cat ~/.gitconfig ~/.config/git/config 2>&1",
    ]);
    let settings = "[user]\n\tname = Ann\n\temail = ann@example.test\n[credential]\n\thelper = !echo SECRET\n[http]\n\textraHeader = SECRET\n";
    plant(&sandbox.home.join(".gitconfig"), settings, ANN);
    plant(&sandbox.home.join(".config/git/config"), settings, ANN);
    let output = sandbox.run();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("user.name=Ann\n") && text.contains("user.email=ann@example.test\n"),
        "{text}"
    );
    assert!(!text.contains("SECRET"), "{text}");
}

fn what_is_named_elsewhere_is_seen_read_only_without_what_is_hidden() {
    for mut sandbox in shell(
        "cat $PLACE/data $PLACE/in/data; cat $PLACE/token $PLACE/in/token 2>&1 | grep -c 'No such'; echo x > $PLACE/data; true",
    ) {
        let owner = if sandbox.uid == 0 { 65534 } else { ANN };
        let place = scratch("seen", sandbox.uid);
        for name in ["data", "in/data", "token", "in/token"] {
            plant(&place.join(name), &format!("{name}\n"), owner);
        }
        sandbox.launch.see = vec![place.clone()];
        sandbox.launch.hide = vec![place.join("token"), place.join("in/token")];
        sandbox.launch.environment.allow = vec!["PLACE".into()];
        let sandbox = sandbox.variable("PLACE", place.to_str().unwrap());
        assert_eq!(sandbox.text(), "data\nin/data\n2\n");
        assert_eq!(
            std::fs::read_to_string(place.join("data")).unwrap(),
            "data\n"
        );
    }
    // Root may show what the command's user could not reach.
    let place = tempfile::tempdir_in("/root").unwrap();
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(place.path().join("tool"), "shown\n").unwrap();
    let mut sandbox = Sandbox::by_root(&["/bin/cat", place.path().join("tool").to_str().unwrap()]);
    sandbox.launch.see = vec![place.path().to_owned()];
    assert_eq!(sandbox.text(), "shown\n");
    let socket = scratch("daemon", 0).join("daemon.sock");
    let _daemon = listen(&socket);
    for mut sandbox in shell("true") {
        sandbox.launch.projects = vec![socket.clone()];
        assert_eq!(sandbox.run().status.code(), Some(125));
    }
    for path in [
        "/",
        "/run",
        "/srv/gateway-netns/absent",
        socket.to_str().unwrap(),
    ] {
        for mut sandbox in shell("true") {
            sandbox.launch.see = vec![path.into()];
            assert_eq!(sandbox.run().status.code(), Some(125), "{path}");
        }
    }
}

fn a_socket_below_what_is_seen_is_not_reached_whenever_and_wherever_it_was_made() {
    let place = scratch("seen", 0);
    let [before, elsewhere, late] =
        ["before.sock", "elsewhere.sock", "late.sock"].map(|name| place.join(name));
    let _before = listen(&before);
    // Like a container's: of another network namespace, at a path of the host.
    let other = elsewhere.clone();
    let _elsewhere = std::thread::spawn(move || {
        // SAFETY: the thread has no other to share with, and ends here.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
        listen(&other)
    })
    .join()
    .unwrap();
    let paths = [&before, &elsewhere, &late].map(|path| path.to_str().unwrap());
    for seen in [true, false] {
        for mut sandbox in Sandbox::probes(&[&["unix-after", "0.5"], &paths[..]].concat()) {
            if seen {
                sandbox.launch.see = vec![place.clone()];
            }
            let mut running = sandbox.spawn();
            assert_eq!(running.line(), "waiting");
            let socket = listen(&late);
            let text = String::from_utf8(running.finish().stdout).unwrap();
            assert!(
                !text.contains("CONNECTED") && text.lines().count() == 3,
                "{text}"
            );
            drop(socket);
            std::fs::remove_file(&late).unwrap();
        }
    }
}

fn a_program_that_is_not_seen_is_127_and_named_with_the_flag_that_shows_it() {
    let tools = scratch("tools", ANN);
    let script = tools.join("our-script");
    let home = Sandbox::by_user(&[]).home;
    let ours = home.join("own/tool");
    plant(&script, &format!("#!{}\n", ours.display()), ANN);
    plant(&ours, "#!/bin/sh\necho ran\n", ANN);
    for path in [&script, &ours] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let outcome = |program: &str, see: &[&Path], see_home: &[&str]| {
        let mut sandbox = Sandbox::by_user(&[program]);
        sandbox.variables.push(("HOME".into(), home.clone().into()));
        sandbox.variables.push((
            "PATH".into(),
            format!("{}:/usr/bin:/bin", tools.display()).into(),
        ));
        sandbox.launch.see = see.iter().map(|path| path.to_path_buf()).collect();
        sandbox.launch.see_home = see_home.iter().map(|name| (*name).to_owned()).collect();
        let output = sandbox.run();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    for program in ["our-script", script.to_str().unwrap()] {
        let (code, errors) = outcome(program, &[], &[]);
        assert!(
            errors.contains(&format!("`--see {}`", tools.display())),
            "{errors}"
        );
        assert_eq!(code, Some(127));
        // Its interpreter is not visible yet.
        let (code, errors) = outcome(program, &[&tools], &[]);
        assert!(errors.contains("`--see-home own`"), "{errors}");
        assert_eq!(code, Some(127));
    }
    let (code, errors) = outcome(ours.to_str().unwrap(), &[], &["own"]);
    assert_eq!(code, Some(0), "{errors}");
}

/// As a command may have left it for the next start.
fn a_link_in_a_project_shows_and_gives_nothing_elsewhere() {
    for mut sandbox in shell("touch started") {
        let owner = if sandbox.uid == 0 { 65534 } else { ANN };
        let elsewhere = scratch("elsewhere", sandbox.uid);
        plant(&elsewhere.join("data/x"), "SECRET", owner);
        plant(&sandbox.directory.join("x"), "", owner);
        let link = sandbox.directory.join("cache");
        std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
        let paths = [link.clone(), link.join("data")];
        for path in paths {
            for (see, projects, hide) in [(1, 0, 0), (0, 1, 0), (0, 0, 1)] {
                sandbox.launch.see = vec![path.clone(); see];
                sandbox.launch.projects = vec![path.clone(); projects];
                sandbox.launch.hide = vec![path.clone(); hide];
                let output = sandbox.run();
                let errors = String::from_utf8_lossy(&output.stderr);
                assert_eq!(output.status.code(), Some(125), "{errors}");
                assert!(errors.contains("name where it leads"), "{errors}");
            }
        }
        assert!(!sandbox.directory.join("started").exists());
    }
    // It removes from the home directory what it would add.
    let mut sandbox = Sandbox::by_user(&["/bin/sh", "-c", "cat ~/.local/bin/note 2>&1; true"]);
    plant(&sandbox.home.join("private/note"), "SECRET", ANN);
    plant(&sandbox.directory.join("x"), "", ANN);
    plant(&sandbox.home.join(".local/x"), "", ANN);
    std::os::unix::fs::symlink(sandbox.home.join("private"), sandbox.directory.join("bin"))
        .unwrap();
    std::os::unix::fs::symlink(
        sandbox.directory.join("bin"),
        sandbox.home.join(".local/bin"),
    )
    .unwrap();
    sandbox.launch.see_home.push(".local".into());
    assert!(!sandbox.text().contains("SECRET"));
    sandbox.launch.see_home.clear();
    assert!(!sandbox.text().contains("SECRET"));
}

fn a_file_hidden_in_a_project_is_refused() {
    for mut sandbox in shell("touch started") {
        let owner = if sandbox.uid == 0 { 65534 } else { ANN };
        plant(&sandbox.directory.join(".env"), "SECRET", owner);
        for name in [".env", "absent"] {
            sandbox.launch.hide = vec![sandbox.directory.join(name)];
            let output = sandbox.run();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(125));
            assert!(errors.contains("move it out of the project"), "{errors}");
            assert!(!sandbox.directory.join("started").exists());
        }
    }
}

fn a_hidden_directory_or_own_file_that_is_replaced_in_a_project_ends_the_command() {
    let replace_file = |at: &Path| {
        plant(&at.join("new"), "SECRET", ANN);
        std::fs::rename(at.join("new"), at.join("gateway.toml")).unwrap();
    };
    let replace_directory = |at: &Path| {
        plant(&at.join("new/token"), "SECRET", ANN);
        std::fs::rename(at.join("in/secrets"), at.join("old")).unwrap();
        std::fs::rename(at.join("new"), at.join("in/secrets")).unwrap();
    };
    let replace_parent = |at: &Path| {
        plant(&at.join("new/secrets/token"), "SECRET", ANN);
        std::fs::rename(at.join("in"), at.join("old")).unwrap();
        std::fs::rename(at.join("new"), at.join("in")).unwrap();
    };
    let replacements: [&dyn Fn(&Path); 3] = [&replace_file, &replace_directory, &replace_parent];
    for replace in replacements {
        let script = "cat gateway.toml in/secrets/token 2>/dev/null; echo ready; sleep 20; cat gateway.toml in/secrets/token; echo went on";
        for mut sandbox in shell(script) {
            let at = sandbox.directory.clone();
            let owner = if sandbox.uid == 0 { 65534 } else { ANN };
            plant(&at.join("gateway.toml"), "SECRET", owner);
            plant(&at.join("in/secrets/token"), "SECRET", owner);
            sandbox.launch.own = vec![at.join("gateway.toml")];
            sandbox.launch.hide = vec![at.join("gateway.toml"), at.join("in/secrets")];
            let mut running = sandbox.spawn();
            assert_eq!(running.line(), "ready");
            // What happens beside it changes nothing.
            plant(&at.join("beside"), "x", owner);
            plant(&at.join("in/beside"), "x", owner);
            std::thread::sleep(Duration::from_millis(100));
            assert!(running.child.try_wait().unwrap().is_none());
            replace(&at);
            let output = running.finish();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(137), "{errors}");
            assert!(errors.contains("was replaced or moved away"), "{errors}");
            assert_eq!(String::from_utf8_lossy(&output.stdout), "");
        }
    }
}

fn secrets_in_the_home_are_hidden() {
    let mut sandbox = Sandbox::by_user(&[
        "/bin/sh",
        "-c",
        "cd ~; grep -rl CANARY . 2>/dev/null; cat .visible .config/other/file; ls .ssh .aws 2>&1",
    ]);
    for name in [
        ".ssh/id_ed25519",
        ".aws/credentials",
        ".netrc",
        ".config/gh/hosts.yml",
        ".cargo/credentials.toml",
        ".docker/config.json",
    ] {
        plant(&sandbox.home.join(name), "CANARY", ANN);
    }
    plant(&sandbox.home.join(".visible"), "seen\n", ANN);
    plant(&sandbox.home.join(".config/other/file"), "seen too\n", ANN);
    // Below what is named, known credential stores are still hidden.
    sandbox.launch.see_home = vec![".visible".into(), ".config".into(), ".cargo".into()];
    let output = sandbox.run();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("seen\nseen too\n"), "{text}");
    assert!(
        !text.contains("CANARY") && text.contains("No such file"),
        "{text}"
    );
}

fn a_secret_that_is_renamed_into_place_on_the_host_stays_hidden() {
    let sandbox = Sandbox::by_user(&[
        "/bin/sh",
        "-c",
        "echo ready; read line < fifo; cat ~/.netrc ~/.aws/credentials 2>&1",
    ]);
    plant(&sandbox.home.join(".netrc"), "OLD-SECRET", ANN);
    plant(&sandbox.home.join(".aws/credentials"), "OLD-SECRET", ANN);
    let fifo = fifo(&sandbox);
    let mut running = sandbox.spawn();
    assert_eq!(running.line(), "ready");
    plant(&sandbox.home.join("new"), "NEW-SECRET", ANN);
    std::fs::rename(sandbox.home.join("new"), sandbox.home.join(".netrc")).unwrap();
    std::fs::remove_dir_all(sandbox.home.join(".aws")).unwrap();
    plant(&sandbox.home.join(".aws/credentials"), "NEW-SECRET", ANN);
    std::fs::write(&fifo, "go\n").unwrap();
    let text = String::from_utf8(running.finish().stdout).unwrap();
    assert!(
        !text.contains("SECRET") && text.matches("No such file").count() == 2,
        "{text}"
    );
}

/// A FIFO of the command's, in its directory.
fn fifo(sandbox: &Sandbox) -> PathBuf {
    fifo_of(sandbox, ANN)
}

fn fifo_of(sandbox: &Sandbox, owner: u32) -> PathBuf {
    let fifo = sandbox.directory.join("fifo");
    let made = std::process::Command::new("mkfifo")
        .arg(&fifo)
        .status()
        .unwrap();
    assert!(made.success());
    own(&fifo, owner);
    fifo
}

fn a_secret_that_appears_later_is_hidden() {
    let mut sandbox = Sandbox::by_user(&[
        "/bin/sh",
        "-c",
        "echo ready; read line < fifo; cat ~/.kube/config ~/.config/gh/hosts.yml 2>&1",
    ]);
    plant(&sandbox.home.join(".config/x"), "", ANN);
    sandbox.launch.see_home.push(".config".into());
    let fifo = fifo(&sandbox);
    let mut running = sandbox.spawn();
    assert_eq!(running.line(), "ready");
    plant(&sandbox.home.join(".kube/config"), "NEW-SECRET", ANN);
    plant(
        &sandbox.home.join(".config/gh/hosts.yml"),
        "NEW-SECRET",
        ANN,
    );
    std::fs::write(&fifo, "go\n").unwrap();
    let text = String::from_utf8(running.finish().stdout).unwrap();
    assert!(!text.contains("SECRET"), "{text}");
}

fn writes_in_the_home_vanish_and_in_the_project_stay() {
    for mut sandbox in shell("echo evil >> ~/.bashrc; cat ~/.bashrc; echo kept > file") {
        if sandbox.uid == ANN {
            sandbox.launch.see_home.push(".bashrc".into());
        }
        plant(&sandbox.home.join(".bashrc"), "good\n", ANN);
        let text = sandbox.text();
        if sandbox.uid == ANN {
            assert_eq!(text, "good\nevil\n");
        }
        assert_eq!(
            std::fs::read_to_string(sandbox.home.join(".bashrc")).unwrap(),
            "good\n"
        );
        assert_eq!(
            std::fs::read_to_string(sandbox.directory.join("file")).unwrap(),
            "kept\n"
        );
    }
    let mut sandbox = Sandbox::by_user(&["/bin/sh", "-c", "echo kept > file; pwd"]);
    sandbox.directory = sandbox.home.join("src/app");
    plant(&sandbox.directory.join("file"), "", ANN);
    assert_eq!(sandbox.text(), format!("{}\n", sandbox.directory.display()));
    assert_eq!(
        std::fs::read_to_string(sandbox.directory.join("file")).unwrap(),
        "kept\n"
    );
}

fn a_home_under_tmp_works() {
    let directory = tempfile::tempdir().unwrap();
    own(directory.path(), ANN);
    let home = directory.path().join("home");
    let mut sandbox = Sandbox::by_user(&[
        "/bin/sh",
        "-c",
        "cat ~/.profile; cat ~/.netrc 2>&1; pwd; ls -A /tmp",
    ]);
    sandbox.launch.see_home.push(".profile".into());
    plant(&home.join(".profile"), "mine\n", ANN);
    plant(&home.join(".netrc"), "SECRET", ANN);
    sandbox.variables.push(("HOME".into(), home.clone().into()));
    sandbox.directory = home.join("app");
    plant(&sandbox.directory.join("x"), "", ANN);
    let text = String::from_utf8(sandbox.run().stdout).unwrap();
    assert!(
        text.starts_with("mine\n") && !text.contains("SECRET"),
        "{text}"
    );
    let names = format!(
        "{}\n{}\n",
        sandbox.directory.display(),
        directory.path().file_name().unwrap().display()
    );
    assert!(text.ends_with(&names), "{text}");
}

fn the_home_as_working_directory_does_not_persist() {
    let mut sandbox = Sandbox::by_user(&["/bin/sh", "-c", "pwd; echo x > new && cat new"]);
    sandbox.directory = sandbox.home.clone();
    assert_eq!(sandbox.text(), format!("{}\nx\n", sandbox.home.display()));
    assert!(!sandbox.home.join("new").exists());
}

fn git_hooks_and_config_are_read_only() {
    let script = "echo x > .git/config; echo x > .git/hooks/pre-commit; mv .git other; rm -rf .git/hooks
        echo x > .git/commondir; echo x > .git/config.worktree; echo ok > .git/ORIG_HEAD; cat .git/config";
    for sandbox in shell(script) {
        let owner = if sandbox.uid == 0 { 65534 } else { sandbox.uid };
        plant(&sandbox.directory.join(".git/config"), "mine\n", owner);
        plant(
            &sandbox.directory.join(".git/hooks/sample"),
            "mine\n",
            owner,
        );
        assert_eq!(sandbox.text(), "mine\n");
        let git = sandbox.directory.join(".git");
        assert!(!git.join("hooks/pre-commit").exists() && git.join("hooks/sample").exists());
        // The placeholders in their stead are gone, too.
        assert!(!git.join("commondir").exists() && !git.join("config.worktree").exists());
        assert!(git.join("ORIG_HEAD").exists());
    }
}

fn a_repository_made_inside_that_runs_something_is_put_off_while_the_command_runs() {
    let armed = "mkdir .git .git/objects .git/refs; echo '[core] fsmonitor = x' > .git/config; echo ref: refs/heads/x > .git/HEAD";
    for sandbox in shell(&format!(
        "{armed}; for i in $(seq 200); do [ -e .git ] || break; sleep 0.05; done; ls -A"
    )) {
        let said = sandbox.text();
        let names: Vec<&str> = said.lines().collect();
        assert!(!names.contains(&".git"), "{said}");
        assert!(said.contains(".git.off-"), "{said}");
    }
}

fn a_wished_file_is_hidden() {
    for mut sandbox in
        shell("cat gateway.toml audit/log /srv/gateway-netns/elsewhere-secret 2>&1; true")
    {
        let owner = if sandbox.uid == 0 { 65534 } else { sandbox.uid };
        plant(&sandbox.directory.join("gateway.toml"), "SECRET", owner);
        plant(&sandbox.directory.join("audit/log"), "SECRET", owner);
        plant(
            Path::new("/srv/gateway-netns/elsewhere-secret"),
            "SECRET",
            owner,
        );
        sandbox.launch.own = vec![sandbox.directory.join("gateway.toml")];
        sandbox.launch.hide = vec![
            sandbox.directory.join("gateway.toml"),
            sandbox.directory.join("audit"),
            "/srv/gateway-netns/elsewhere-secret".into(),
        ];
        let text = sandbox.text();
        assert!(!text.contains("SECRET"), "{text}");
    }
}

/// The files of a rotated log appear after the sandbox has started.
fn a_folder_of_the_gateways_own_shows_nothing_that_comes_into_it_later() {
    let folder = Path::new("/srv/gateway-netns/own-folder");
    let script = "touch here; until [ -e go ]; do sleep 0.05; done; ls -A /srv/gateway-netns/own-folder; cat /srv/gateway-netns/own-folder/*; \
                  echo x > /srv/gateway-netns/own-folder/new; mv /srv/gateway-netns/own-folder /srv/gateway-netns/other; echo done";
    for mut sandbox in shell(&format!("({script}) 2>/dev/null")) {
        let owner = if sandbox.uid == 0 { 65534 } else { sandbox.uid };
        plant(&folder.join("audit.jsonl"), "SECRET", owner);
        sandbox.launch.own_folders = vec![folder.to_owned()];
        let at = sandbox.directory.clone();
        let later = std::thread::spawn(move || {
            while !at.join("here").exists() {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            let turned = "/srv/gateway-netns/own-folder/audit.jsonl.00000000000000000000";
            std::fs::rename(folder.join("audit.jsonl"), turned).unwrap();
            plant(&folder.join("audit.jsonl"), "SECRET", owner);
            std::fs::write(at.join("go"), "").unwrap();
        });
        assert_eq!(sandbox.text(), "done\n");
        later.join().unwrap();
        let left: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left.len(), 2, "{left:?}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}

fn roots_own_directory_is_out_of_sight_but_the_project_in_it_is_there() {
    let directory = tempfile::tempdir_in("/root").unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(directory.path().join("readme"), "project\n").unwrap();
    let mut sandbox = Sandbox::by_root(&["/bin/sh", "-c", "cat readme; ls -A /root | wc -l; pwd"]);
    sandbox.directory = directory.path().to_owned();
    assert_eq!(
        sandbox.text(),
        format!("project\n1\n{}\n", directory.path().display())
    );
}

fn host_sockets_and_temporary_files_are_gone() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = directory.path().join("agent.sock");
    let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
    for sandbox in Sandbox::probes(&[
        "unix",
        path.to_str().unwrap(),
        "/run/dbus/system_bus_socket",
        "/var/run/docker.sock",
    ]) {
        assert_eq!(sandbox.text(), "NotFound\n".repeat(3));
    }
    for sandbox in
        shell("ls -A /tmp /var/tmp /dev/shm | grep -v : | grep -v home; find /run -type s")
    {
        assert_eq!(sandbox.text().trim(), "");
    }
}

fn abstract_sockets_of_the_host_are_not_reached() {
    use std::os::linux::net::SocketAddrExt;
    let name = format!("gateway-netns-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind_addr(&address).unwrap();
    for sandbox in Sandbox::probes(&["unix", &format!("@{name}")]) {
        assert_eq!(sandbox.text(), "ConnectionRefused\n");
    }
}

fn host_processes_are_not_seen_nor_signalled() {
    let pid = std::process::id();
    for sandbox in shell(&format!(
        "ls -d /proc/[0-9]* | wc -l; kill -0 {pid} 2>&1 | grep -c -i 'no such'; cat /proc/1/environ 2>&1 | grep -ci denied"
    )) {
        let text = sandbox.text();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].parse::<u32>().unwrap() <= 5, "{text}");
        assert_eq!(lines[1..], ["1", "1"], "{text}");
    }
}

fn no_inherited_file_reaches_the_command() {
    for sandbox in Sandbox::probes(&["fds"]) {
        let secret = std::fs::File::open("/etc/passwd").unwrap();
        let (number, mut command) = (secret.as_raw_fd(), sandbox.command());
        // SAFETY: `dup2` is async-signal-safe and touches no memory.
        unsafe {
            command.pre_exec(move || {
                libc::dup2(number, 9);
                libc::dup2(number, 77);
                Ok(())
            })
        };
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = Running { child }.finish();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "[0, 1, 2, 3]\n"); // 3 is the listing's own.
    }
}

fn a_directory_as_standard_input_is_refused() {
    for sandbox in shell("ls -la /proc/self/fd/0/") {
        let root = std::fs::File::open("/").unwrap();
        let output = sandbox.command().stdin(root).output().unwrap();
        assert_eq!(output.status.code(), Some(125));
        assert!(
            String::from_utf8_lossy(&output.stderr).contains("standard stream 0 is a directory")
        );
    }
}

fn devices_are_few_and_terminals_are_its_own() {
    for sandbox in shell(
        "ls /dev; ls /dev/pts; echo x > /dev/null && head -c1 /dev/urandom | wc -c; (exec 3>/dev/ptmx) && echo pty",
    ) {
        assert_eq!(
            sandbox.text().replace('\n', " "),
            "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero ptmx 1 pty "
        );
    }
}

fn sys_is_read_only() {
    for sandbox in shell(
        "awk '$5 ~ /^\\/sys/ && $6 !~ /^ro/' /proc/self/mountinfo; test -d /sys/kernel && echo there",
    ) {
        assert_eq!(sandbox.text(), "there\n");
    }
}

fn nested_user_namespaces_are_refused_unless_allowed() {
    for sandbox in shell("unshare -Ur true 2>&1 || echo refused") {
        let text = sandbox.text();
        assert!(
            text.contains("No space left") && text.ends_with("refused\n"),
            "{text}"
        );
    }
    let wget = "curl -s --max-time 2 http://8.8.8.8/ || echo nothing";
    for mut sandbox in shell(&format!(
        "unshare -Unr /bin/sh -c '{wget}'; umount /run 2>/dev/null; mount -t tmpfs x /etc 2>/dev/null || echo refused"
    )) {
        sandbox.launch.allow_userns = true;
        let text = String::from_utf8(sandbox.run().stdout).unwrap();
        assert_eq!(text, "nothing\nrefused\n");
    }
    // In a nested user namespace, what is hidden cannot be uncovered.
    let mut sandbox = Sandbox::by_user(&[
        "/bin/sh",
        "-c",
        "unshare -Urm /bin/sh -c 'umount -l ~; umount -l /run; umount -l /tmp; mount --move /run /mnt; cat ~/.netrc; ls /run/dbus' 2>/dev/null; true",
    ]);
    sandbox.launch.allow_userns = true;
    plant(&sandbox.home.join(".netrc"), "SECRET", ANN);
    assert_eq!(sandbox.text(), "");
}

fn the_command_is_pid_two_in_a_fresh_session_of_keys() {
    for sandbox in shell("echo $$; cat /proc/keys 2>/dev/null | grep -c _ses || true") {
        assert!(sandbox.text().starts_with("2\n"));
    }
}

fn exit_codes_and_signals_are_the_commands_own() {
    for sandbox in shell("exit 42") {
        assert_eq!(sandbox.run().status.code(), Some(42));
    }
    for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGSEGV, libc::SIGINT] {
        for sandbox in shell(&format!("kill -{signal} $$")) {
            assert_eq!(sandbox.run().status.signal(), Some(signal));
        }
    }
}

fn a_missing_command_is_127_and_an_unexecutable_one_126() {
    for sandbox in Sandbox::by_both(&["no-such-command-anywhere"]) {
        let output = sandbox.run();
        assert_eq!(output.status.code(), Some(127));
        assert!(
            String::from_utf8_lossy(&output.stderr)
                .contains("`no-such-command-anywhere`: command not found")
        );
    }
    for sandbox in Sandbox::by_both(&["/etc/passwd"]) {
        assert_eq!(sandbox.run().status.code(), Some(126));
    }
}

fn a_terminated_launcher_forwards_the_signal() {
    for sandbox in shell("trap 'echo got; exit 7' TERM; echo ready; while :; do sleep 0.05; done") {
        let mut running = sandbox.spawn();
        assert_eq!(running.line(), "ready");
        // SAFETY: a child of ours that has not been waited for.
        unsafe { libc::kill(running.id(), libc::SIGTERM) };
        let output = running.finish();
        assert_eq!(
            (output.status.code(), output.stdout.as_slice()),
            (Some(7), b"got\n".as_slice())
        );
    }
}

/// Counts the processes whose command line holds a mark.
fn processes_with(mark: &str) -> usize {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter(|entry| {
        std::fs::read(entry.path().join("cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).contains(mark))
            && std::fs::read_to_string(entry.path().join("stat"))
                .is_ok_and(|stat| !stat.contains(") Z "))
    })
    .filter(|entry| entry.file_name().to_str() != Some(&std::process::id().to_string()))
    .count()
}

/// The command lines of the other processes of this very test program: its launchers and gateways.
fn own_processes() -> Vec<String> {
    let own = std::fs::read_link("/proc/self/exe").unwrap();
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter(|entry| std::fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe == own))
        .filter(|entry| entry.file_name().to_str() != Some(&std::process::id().to_string()))
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(" __"))
        .collect()
}

fn within(limit: Duration, what: &str, condition: impl Fn() -> bool) {
    let until = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn a_killed_launcher_takes_the_sandbox_with_it() {
    for sandbox in shell("echo ready; sleep 4711.5 & sleep 4711.5") {
        let mut running = sandbox.spawn();
        assert_eq!(running.line(), "ready");
        running.child.kill().unwrap();
        running.child.wait().unwrap();
        within(
            Duration::from_secs(2),
            "the sandbox outlives its launcher",
            || processes_with("4711.5") == 0,
        );
    }
}

fn a_killed_gateway_leaves_no_network() {
    for mut sandbox in Sandbox::probes(&["wait-tcp", "8.8.8.8:80"]) {
        let file = sandbox.directory.join("gateway.pid");
        sandbox.launch.environment.allow.push("TEST_*".into());
        let sandbox = sandbox.variable("TEST_GATEWAY_PID_FILE", file.to_str().unwrap());
        let mut running = sandbox.spawn();
        assert_eq!(plain(&running.line()), "reached 8.8.8.8:80");
        let pid: i32 = std::fs::read_to_string(&file).unwrap().parse().unwrap();
        // SAFETY: the gateway of this very sandbox, which lives as long as nothing ends it.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        let output = running.finish();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            !text.contains("answered") && !text.contains("sent"),
            "{text}"
        );
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{errors}");
        assert!(
            errors.contains(
                "the gateway process ended (killed by signal 9); the command was stopped"
            ),
            "{errors}"
        );
    }
}

fn background_children_die_with_the_command() {
    for sandbox in shell(
        "setsid sleep 4712.5 >/dev/null 2>&1 & (setsid sleep 4712.5 >/dev/null 2>&1 &); exit 3",
    ) {
        assert_eq!(sandbox.run().status.code(), Some(3));
        within(
            Duration::from_secs(2),
            "children outlive the command",
            || processes_with("4712.5") == 0,
        );
    }
}

fn a_dead_or_refusing_gateway_means_125_and_no_command() {
    for (manner, message) in [("die", "gateway"), ("refuse", "no session for you")] {
        for mut sandbox in shell("touch started") {
            sandbox.manner = manner;
            let output = sandbox.run();
            assert_eq!(output.status.code(), Some(125));
            assert!(String::from_utf8_lossy(&output.stderr).contains(message));
            assert!(!sandbox.directory.join("started").exists());
        }
    }
}

fn exhausted_namespaces_mean_125_and_no_command() {
    let sandbox = Sandbox::by_user(&["/bin/sh", "-c", "touch started"]);
    let inner = sandbox.command();
    let mut outer = std::process::Command::new("setpriv");
    outer.args([
        "--reuid=12345",
        "--regid=12345",
        "--clear-groups",
        "unshare",
        "-U",
        "--map-current-user",
        "--keep-caps",
    ]);
    outer.args([
        "/bin/sh",
        "-c",
        "echo 0 > /proc/sys/user/max_user_namespaces; exec \"$@\"",
        "sh",
    ]);
    outer
        .arg(inner.get_program())
        .args(inner.get_args())
        .current_dir(&sandbox.directory);
    outer.env_clear().envs(sandbox.variables.iter().cloned());
    let output = outer.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{errors}");
    assert!(!sandbox.directory.join("started").exists());
    assert!(
        errors.contains("new namespaces (clone3)") && errors.contains("`user.max_user_namespaces`"),
        "{errors}"
    );
}

fn a_forbidden_mount_means_125_and_no_command() {
    // A masked /proc, as in a container: no fresh one may be mounted.
    let sandbox = Sandbox::by_user(&["/bin/sh", "-c", "touch started"]);
    let inner = sandbox.command();
    let mut outer = std::process::Command::new("unshare");
    let script = "mount -t tmpfs none /proc/scsi 2>/dev/null || mount -t tmpfs none /proc/acpi 2>/dev/null || mount -t tmpfs none /proc/bus; \
                  exec setpriv --reuid=12345 --regid=12345 --clear-groups \"$@\"";
    outer
        .args(["-m", "/bin/sh", "-c", script, "sh"])
        .arg(inner.get_program())
        .args(inner.get_args());
    outer
        .current_dir(&sandbox.directory)
        .env_clear()
        .envs(sandbox.variables.iter().cloned());
    let output = outer.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{errors}");
    assert!(
        errors.contains("fresh /proc") && errors.contains("systempaths=unmasked"),
        "{errors}"
    );
    assert!(!sandbox.directory.join("started").exists());
}

fn a_target_user_that_cannot_be_means_125_and_no_command() {
    let sandbox = Sandbox::by_user(&["/bin/sh", "-c", "touch started"]);
    let mut sandbox = sandbox;
    sandbox.launch.user = Some(user(1));
    let output = sandbox.run();
    assert_eq!(output.status.code(), Some(125));
    assert!(!sandbox.directory.join("started").exists());
}

fn standard_streams_pass_through_untouched() {
    use std::io::Write;
    for sandbox in shell("cat; echo error >&2") {
        let mut command = sandbox.command();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || input.write_all(&vec![b'x'; 300_000]).unwrap());
        let output = Running { child }.finish();
        writer.join().unwrap();
        assert_eq!(
            (output.stdout.len(), output.stderr.as_slice()),
            (300_000, b"error\n".as_slice())
        );
    }
}

/// A file of the user's, outside everything visible.
fn file_of(sandbox: &Sandbox, name: &str, content: &str) -> PathBuf {
    let path = scratch("stream", sandbox.uid).join(name);
    plant(
        &path,
        content,
        if sandbox.uid == 0 { 65534 } else { sandbox.uid },
    );
    path
}

fn append(path: &Path) -> std::fs::File {
    std::fs::OpenOptions::new().append(true).open(path).unwrap()
}

fn a_file_as_a_standard_stream_cannot_be_spoilt_nor_read() {
    for sandbox in Sandbox::probes(&["spoil"]) {
        let (input, log) = (
            file_of(&sandbox, "input", "mine\n"),
            file_of(&sandbox, "log", "earlier\n"),
        );
        let mut command = sandbox.command();
        command.stdin(std::fs::File::open(&input).unwrap());
        command.stdout(append(&log)).stderr(append(&log));
        let status = command.status().unwrap();
        let said = "0 false false \nerred\n1 false false \nerred\n2 false false \nerred\n";
        assert_eq!(
            std::fs::read_to_string(&log).unwrap(),
            format!("earlier\n{said}")
        );
        assert_eq!(std::fs::read_to_string(&input).unwrap(), "mine\n");
        assert!(status.success());
    }
    // A file opened for writing from its start keeps what was there before, even if the command
    // seeks.
    for sandbox in Sandbox::probes(&["spoil"]) {
        use std::io::Write;
        let log = file_of(&sandbox, "log", "");
        let mut file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(&log)
            .unwrap();
        file.write_all(b"earlier\n").unwrap();
        let mut command = sandbox.command();
        command
            .stdin(file.try_clone().unwrap())
            .stdout(file)
            .stderr(Stdio::null());
        assert!(command.status().unwrap().success());
        let text = std::fs::read_to_string(&log).unwrap();
        assert!(
            text.starts_with("earlier\n0 false false \n1 false"),
            "{text}"
        );
    }
}

fn files_as_standard_streams_get_every_byte_in_order() {
    let script =
        "cat; i=0; while [ $i -lt 300 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done; exit 7";
    let line = "a line of sixty-four bytes, the last of which is the line's end\n";
    let lines: String = (0..300).map(|i| format!("out {i}\nerr {i}\n")).collect();
    for sandbox in shell(script) {
        let content = line.repeat(50_000);
        let (input, log) = (
            file_of(&sandbox, "input", &content),
            file_of(&sandbox, "log", ""),
        );
        let file = std::fs::File::create(&log).unwrap();
        let mut command = sandbox.command();
        command.stdin(std::fs::File::open(&input).unwrap());
        command.stdout(file.try_clone().unwrap()).stderr(file);
        assert_eq!(command.status().unwrap().code(), Some(7));
        assert!(
            std::fs::read_to_string(&log).unwrap() == content + &lines,
            "bytes are missing, or elsewhere"
        );
    }
}

fn a_command_takes_from_a_file_what_it_reads_and_no_more() {
    use std::io::Read;
    for (script, rest) in [
        ("read line; echo $line", "two\nthree\n"),
        ("true", "one\ntwo\nthree\n"),
        ("cat", ""),
    ] {
        for sandbox in shell(script) {
            let mut input =
                std::fs::File::open(file_of(&sandbox, "input", "one\ntwo\nthree\n")).unwrap();
            let output = sandbox
                .command()
                .stdin(input.try_clone().unwrap())
                .output()
                .unwrap();
            assert!(output.status.success());
            let mut left = String::new();
            input.read_to_string(&mut left).unwrap();
            assert_eq!(left, rest, "{script}");
        }
    }
}

fn what_outlives_the_command_does_not_hold_its_output() {
    for sandbox in shell("echo said; (setsid sleep 4713.5 &) ; exit 3") {
        let log = file_of(&sandbox, "log", "");
        let begun = Instant::now();
        let status = sandbox
            .command()
            .stdin(Stdio::null())
            .stdout(append(&log))
            .status()
            .unwrap();
        assert_eq!(status.code(), Some(3));
        assert!(begun.elapsed() < Duration::from_secs(10));
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "said\n");
    }
}

fn output_that_cannot_be_written_is_a_failure() {
    for sandbox in shell("echo said; exit 0") {
        let log = std::fs::File::open(file_of(&sandbox, "log", "")).unwrap();
        let output = sandbox
            .command()
            .stdin(Stdio::null())
            .stdout(log)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.contains("standard output"), "{errors}");
    }
}

/// Makes the kernel look like one without Landlock to what a command starts.
fn without_landlock(command: &mut std::process::Command) {
    let step = |code: u16, jt: u8, jf: u8, k: u32| libc::sock_filter { code, jt, jf, k };
    let refused = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
    let program = [
        step(0x20, 0, 0, 0),   // The system call's number …
        step(0x15, 0, 1, 444), // … is that of `landlock_create_ruleset`.
        step(0x06, 0, 0, refused),
        step(0x06, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    // SAFETY: the calls are async-signal-safe, and the program lives across the one that reads it.
    unsafe {
        command.pre_exec(move || {
            let filter = libc::sock_fprog {
                len: 4,
                filter: program.as_ptr().cast_mut(),
            };
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            match libc::syscall(libc::SYS_seccomp, 1, 0, &raw const filter) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        })
    };
}

/// A script in its own session, without a terminal, which starts the sandbox with `"$@"`.
fn script_around(sandbox: &Sandbox, text: &str) -> std::process::Command {
    let inner = sandbox.command();
    let mut script = std::process::Command::new("/bin/sh");
    script
        .args(["-c", text, "sh"])
        .arg(inner.get_program())
        .args(inner.get_args());
    script
        .env_clear()
        .envs(sandbox.variables.iter().cloned())
        .current_dir(&sandbox.directory)
        .stdin(Stdio::null());
    if sandbox.uid != 0 {
        script.uid(sandbox.uid).gid(sandbox.uid);
    }
    // SAFETY: the call is async-signal-safe, and touches no memory.
    unsafe {
        script.pre_exec(|| {
            libc::setsid();
            Ok(())
        })
    };
    script
}

fn a_signal_to_the_commands_group_reaches_nobody_outside() {
    for kill in [
        "kill -TERM 0",
        "kill -KILL 0",
        "kill -KILL -1; kill -KILL $$",
        "kill -INT 0; kill -KILL 0",
    ] {
        for sandbox in shell(&format!("{kill}; sleep 5")) {
            let mut script = script_around(&sandbox, "\"$@\"; echo outside $?");
            without_landlock(&mut script);
            let output = script.output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(
                text.starts_with("outside 1"),
                "{kill}: {}: {output:?}",
                output.status
            );
        }
    }
}

fn the_command_leads_a_group_of_its_own() {
    // The priority of a group is not a signal: no Landlock scope keeps it inside. Without a
    // terminal the command leads a session, too.
    for sandbox in Sandbox::probes(&["renice"]) {
        let output = script_around(&sandbox, "\"$@\"; awk '{print $19}' /proc/$$/stat")
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "0 2 2\n0\n");
    }
}

fn files_in_memory_have_one_bound() {
    let sizes = "df -B1 --output=size,itotal ~ /tmp /run /var/tmp /dev/shm | tail -n +2 | sort -u";
    let fill = "head -c 40M /dev/zero > ~/.cargo/bin/big && echo half; head -c 40M /dev/zero > /tmp/big 2>/dev/null || echo full";
    let script =
        &format!("stat -c %d ~ /tmp /run /var/tmp /dev/shm | sort -u | wc -l; {sizes}; {fill}");
    for mut sandbox in shell(script) {
        sandbox.launch.bounds.memory_files = Some(64 << 20);
        plant(&sandbox.home.join(".cargo/bin/tool"), "", ANN);
        let is_own = sandbox.uid != 0;
        let text = String::from_utf8(sandbox.run().stdout).unwrap();
        let mut lines = text.lines();
        assert_eq!(
            lines.next(),
            Some("1"),
            "all of them are one file system: {text}"
        );
        let words: Vec<u64> = lines
            .next()
            .unwrap()
            .split_whitespace()
            .map(|word| word.parse().unwrap())
            .collect();
        assert_eq!(words[0], 64 << 20, "{text}");
        assert!(words[1] > 0 && words[1] <= 1 << 20, "{text}");
        if is_own {
            assert!(text.ends_with("half\nfull\n"), "{text}");
        }
    }
    // By default: half of the memory.
    let half = format!("{sizes}; awk '/MemTotal/ {{printf \"%.0f\", $2 * 1024}}' /proc/meminfo");
    for sandbox in shell(&half) {
        let text = sandbox.text();
        let numbers: Vec<u64> = text
            .split_whitespace()
            .map(|word| word.parse().unwrap())
            .collect();
        let (size, memory) = (numbers[0], numbers[2]);
        assert!(
            size > memory / 4 && size <= memory / 2 + (1 << 20),
            "{text}"
        );
    }
}

fn the_command_leaves_half_of_what_may_be_watched_to_others() {
    let limit = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_instances").unwrap();
    let limit: u32 = limit.trim().parse().unwrap();
    let script = "import ctypes\nlibc = ctypes.CDLL(None)\nprint(sum(libc.inotify_init1(0) >= 0 for _ in range(1000)))";
    for sandbox in Sandbox::by_both(&["python3", "-c", script]) {
        let text = sandbox.text();
        let made: u32 = text.trim().parse().unwrap();
        assert!((1..=limit / 2).contains(&made), "{made} of {limit}");
    }
}

fn processes_are_bounded_and_the_users_others_are_not() {
    for sandbox in shell("grep -E '^Max (core|processes)' /proc/self/limits | tr -s ' '") {
        assert_eq!(
            sandbox.text(),
            "Max core file size 1 1 bytes \nMax processes 4096 4096 processes \n"
        );
    }
    for mut sandbox in shell(
        "(ulimit -p 100000) 2>/dev/null; i=0; while [ $i -lt 60 ]; do sleep 60 & i=$((i+1)); done; echo never",
    ) {
        sandbox.launch.bounds.processes = Some(30);
        let running: Vec<Running> = (0..2).map(|_| sandbox.spawn()).collect();
        for sandbox in running {
            let output = sandbox.finish();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.stdout.is_empty() && errors.contains("fork"),
                "{errors}"
            );
        }
    }
    // While one sandbox is full, the same user starts processes outside and in another.
    let mut full = Sandbox::by_user(&[
        "/bin/sh",
        "-c",
        "i=0; while [ $i -lt 25 ]; do sleep 60 & i=$((i+1)); done; echo full; read line < fifo",
    ]);
    full.launch.bounds.processes = Some(30);
    let fifo = fifo(&full);
    let mut running = full.spawn();
    assert_eq!(running.line(), "full");
    let outside = std::process::Command::new("/bin/true")
        .uid(ANN)
        .gid(ANN)
        .status()
        .unwrap();
    assert!(outside.success());
    let mut another = Sandbox::by_user(&[
        "/bin/sh",
        "-c",
        "i=0; while [ $i -lt 10 ]; do /bin/true & i=$((i+1)); done; wait; echo fine",
    ]);
    another.launch.bounds.processes = Some(30);
    assert_eq!(another.text(), "fine\n");
    std::fs::write(&fifo, "go\n").unwrap();
    running.finish();
}

/// An interactive shell on a pseudo-terminal, and the person at it.
struct Console {
    shell: std::process::Child,
    typing: std::fs::File,
    hears: std::sync::mpsc::Receiver<String>,
    heard: String,
}

impl Console {
    fn open(sandbox: &Sandbox) -> Self {
        use std::io::Read;
        let (master, slave) = pseudo_terminal();
        let mut shell = std::process::Command::new("/bin/bash");
        shell
            .args(["--norc", "--noprofile", "-i"])
            .env_clear()
            .envs(sandbox.variables.iter().cloned())
            .env("PS1", "$ ");
        shell
            .current_dir(&sandbox.directory)
            .stdin(slave.try_clone().unwrap())
            .stdout(slave.try_clone().unwrap())
            .stderr(slave);
        if sandbox.uid != 0 {
            shell.uid(sandbox.uid).gid(sandbox.uid);
        }
        // SAFETY: both calls are async-signal-safe, and touch no memory.
        unsafe {
            shell.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            })
        };
        let shell = shell.spawn().unwrap();
        let (said, hears) = std::sync::mpsc::channel();
        let mut reading = master.try_clone().unwrap();
        std::thread::spawn(move || {
            let mut bytes = [0; 1024];
            while let Ok(count) = reading.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
                if count == 0 || said.send(text).is_err() {
                    break;
                }
            }
        });
        Self {
            shell,
            typing: master,
            hears,
            heard: String::new(),
        }
    }

    #[track_caller]
    fn expect(&mut self, wanted: &str) {
        let until = Instant::now() + Duration::from_secs(10);
        while !self.heard.contains(wanted) {
            let left = until.saturating_duration_since(Instant::now());
            match self.hears.recv_timeout(left) {
                Ok(text) => self.heard += &text,
                Err(_) => panic!("no `{wanted}` in {:?}", self.heard),
            }
        }
        self.heard.clear();
    }

    fn say(&mut self, text: &str) {
        use std::io::Write;
        self.typing.write_all(text.as_bytes()).unwrap();
    }

    fn close(mut self) {
        self.say("exit\n");
        self.shell.wait().unwrap();
    }
}

/// What a person types to start a sandbox whose command does what the variable `DO` says.
fn typed(sandbox: &Sandbox) -> String {
    let command = sandbox.command();
    let words = [command.get_program()]
        .into_iter()
        .chain(command.get_args());
    let quoted = words.map(|word| format!("'{}'", word.to_str().unwrap().replace('\'', "'\\''")));
    quoted.collect::<Vec<_>>().join(" ")
}

fn told_by_variable() -> [Sandbox; 2] {
    shell("eval \"$DO\"").map(|mut sandbox| {
        sandbox.launch.environment.allow.push("DO".into());
        sandbox
    })
}

fn an_interactive_command_stops_and_continues_as_a_job() {
    for sandbox in told_by_variable() {
        let quoted = typed(&sandbox);
        let mut console = Console::open(&sandbox);
        console
            .say("export DO='echo in-the-sandbox; read line; echo got-$line; sleep ${NAP:-30}'\n");
        console.say(&format!("{quoted}\n"));
        console.expect("in-the-sandbox\r\n");
        console.say("hello\n");
        console.expect("got-hello\r\n");
        // dash forks by vfork, and a stop between its two halves leaves it hanging, with or without
        // a sandbox.
        std::thread::sleep(Duration::from_millis(300));
        console.say("\x1a");
        console.expect("Stopped");
        console.say("echo the-shell-is-$((40+2))\n");
        console.expect("the-shell-is-42\r\n");
        console.say("fg\n");
        console.expect("__driver"); // The shell names the job that it continues.
        std::thread::sleep(Duration::from_millis(200));
        console.say("\x03");
        console.say("echo ended-with-$?\n");
        console.expect("ended-with-130\r\n");
        // In a pipeline the terminal belongs to the neighbours as well.
        console.say("export DO='read line; echo got-$line; sleep 1'\n");
        console.say(&format!(
            "{{ sleep 0.2; echo line; sleep 0.2; }} | {quoted} | {{ cat; read answer < /dev/tty; echo neighbour-$answer; }}\n"
        ));
        console.expect("got-line\r\n");
        console.say("reads\n");
        console.expect("neighbour-reads\r\n");
        console.close();
    }
}

fn a_command_in_a_pipeline_has_the_terminal_when_it_asks() {
    for sandbox in told_by_variable() {
        let pipeline = format!("echo x | {} | cat\n", typed(&sandbox));
        let mut console = Console::open(&sandbox);
        console.say("export DO='echo first; read answer < /dev/tty; echo asked-$answer'\n");
        console.say(&pipeline);
        console.expect("first\r\n");
        console.say("me\n");
        console.expect("asked-me\r\n");
        console.say("export DO='echo begun; sleep 30; echo never'\n");
        console.say(&pipeline);
        console.expect("begun\r\n");
        std::thread::sleep(Duration::from_millis(300));
        console.say("\x1a");
        console.expect("Stopped");
        console.say("fg\n");
        console.expect("cat\r\n");
        std::thread::sleep(Duration::from_millis(200));
        console.say("\x03");
        console.say("echo ended-with-$?\n");
        console.expect("ended-with-130\r\n");
        // In the background it waits for the person.
        console.say("export DO='read answer < /dev/tty; echo asked-$answer'\n");
        console.say(&format!("{} &\n", typed(&sandbox)));
        std::thread::sleep(Duration::from_millis(700));
        console.say("\n"); // The shell tells at its next prompt.
        console.expect("Stopped");
        console.say("fg\n");
        console.expect("__driver");
        std::thread::sleep(Duration::from_millis(200));
        console.say("me-too\n");
        console.expect("asked-me-too\r\n");
        // A script whose command took the terminal gets it back.
        console.say("export DO='python3 -c \"import os,signal; signal.signal(signal.SIGTTOU, signal.SIG_IGN); os.tcsetpgrp(os.open(\\\"/dev/tty\\\", os.O_RDWR), os.getpgrp())\"'\n");
        console.say(&format!(
            "sh -c '{}; read answer; echo script-$answer' < /dev/tty | cat\n",
            typed(&sandbox).replace('\'', "'\\''")
        ));
        std::thread::sleep(Duration::from_millis(1000));
        console.say("reads\n");
        console.expect("script-reads\r\n");
        console.close();
    }
}

fn pseudo_terminal() -> (std::fs::File, std::fs::File) {
    let master = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/ptmx")
        .unwrap();
    let (unlocked, mut number) = (0_i32, 0_i32);
    // SAFETY: each request reads or writes one `i32`.
    unsafe {
        assert_eq!(
            libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlocked),
            0
        );
        assert_eq!(
            libc::ioctl(master.as_raw_fd(), libc::TIOCGPTN, &raw mut number),
            0
        );
    }
    let path = format!("/dev/pts/{number}");
    std::os::unix::fs::chown(&path, Some(ANN), None).unwrap();
    let slave = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    (master, slave)
}

fn fifty_parallel_launches_leave_no_process() {
    let sandboxes: Vec<Sandbox> = (0..25).flat_map(|_| shell("exit 5")).collect();
    let running: Vec<Running> = sandboxes.iter().map(Sandbox::spawn).collect();
    for sandbox in running {
        assert_eq!(sandbox.finish().status.code(), Some(5));
    }
    let until = Instant::now() + Duration::from_secs(5);
    while !own_processes().is_empty() {
        assert!(
            Instant::now() < until,
            "processes remain: {:?}",
            own_processes()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn a_launch_takes_little_time() {
    let mut times: Vec<Duration> = (0..15)
        .map(|_| {
            let mut sandbox = Sandbox::by_user(&["/bin/true"]);
            sandbox.manner = "plain";
            let begun = Instant::now();
            assert!(sandbox.run().status.success());
            begun.elapsed()
        })
        .collect();
    times.sort_unstable();
    println!(
        "    median launch, with the processes around it: {:?}",
        times[7]
    );
    assert!(times[7] < Duration::from_millis(500));
}

fn escapes(mut sandbox: Sandbox) -> String {
    let home = if sandbox.uid == 0 {
        None
    } else {
        Some(sandbox.home.clone())
    };
    for store in escape::stores() {
        plant(&sandbox.home.join(store), "SECRET", ANN);
    }
    plant(&sandbox.home.join(".local/state/gateway/x"), "x", ANN);
    plant(
        &sandbox.directory.join(".git/config"),
        "",
        if sandbox.uid == 0 { 65534 } else { ANN },
    );
    plant(
        &sandbox.directory.join(".git/hooks/x"),
        "",
        if sandbox.uid == 0 { 65534 } else { ANN },
    );
    let mut fixtures = escape::Fixtures::plant(home.as_deref(), &sandbox.directory).unwrap();
    let owner = if sandbox.uid == 0 { 65534 } else { ANN };
    fixtures
        .plant_repositories(&sandbox.directory, Some(owner))
        .unwrap();
    sandbox.launch.own_program = true;
    sandbox
        .launch
        .environment
        .allow
        .push(escape::TARGETS_VARIABLE.into());
    let mut command = sandbox.command();
    fixtures.tell(&mut command).unwrap();
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "by {}: {}\n{text}{}",
        sandbox.uid,
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(fixtures.breaches(), Vec::<String>::new());
    if std::env::var_os("SHOW_ESCAPES").is_some() {
        println!("{text}");
    }
    assert_eq!(text.lines().count(), escape::PROBES.len(), "{text}");
    text
}

fn every_published_escape_is_held() {
    for sandbox in Sandbox::by_both(&["gateway", escape::SUBCOMMAND]) {
        let by_user = sandbox.uid != 0;
        let text = escapes(sandbox);
        // A probe that finds nothing to try proves nothing.
        let idle: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("n/a"))
            // `doctor --escape` opens ports, which this gateway does not serve.
            .filter(|line| !line.contains("no port was opened"))
            .collect();
        let expected = if by_user { 0 } else { 1 }; // Nobody's home has no credential stores.
        assert_eq!(idle.len(), expected, "{idle:?}");
    }
}

fn every_published_escape_is_held_where_user_namespaces_are_allowed() {
    for mut sandbox in Sandbox::by_both(&["gateway", escape::SUBCOMMAND]) {
        sandbox.launch.allow_userns = true;
        let text = escapes(sandbox);
        assert!(text.contains("nothing was uncovered or reached"), "{text}");
    }
}

fn the_probes_themselves_see_an_escape_outside_the_sandbox() {
    let home = scratch("home", ANN);
    for store in escape::stores() {
        plant(&home.join(store), "SECRET", ANN);
    }
    let project = scratch("project", ANN);
    let mut fixtures = escape::Fixtures::plant(Some(&home), &project).unwrap();
    fixtures.plant_repositories(&project, Some(ANN)).unwrap();
    let mut outside = std::process::Command::new(std::env::current_exe().unwrap());
    outside.arg(escape::SUBCOMMAND);
    fixtures.tell(&mut outside).unwrap();
    outside.uid(ANN).gid(ANN).current_dir("/");
    let output = outside.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success());
    for name in [
        "tcp-host",
        "udp-host",
        "abstract-sockets",
        "path-sockets",
        "canary-files",
        "hidden-paths",
        "write-outside",
        "late-sockets",
        "host-processes",
        "32-bit-calls",
        "capabilities",
        "git-settings",
        "git-absent-hooks",
        "git-commondir",
        "git-worktree-settings",
        "git-file",
        "git-submodule",
        "git-nested",
        "variables",
        "standard-files",
    ] {
        assert!(
            text.lines()
                .any(|line| line.starts_with("ESCAPED") && line.contains(name)),
            "{name} saw nothing:\n{text}"
        );
    }
    let breaches = fixtures.breaches();
    assert!(breaches.len() >= 3, "{breaches:?}");
    // What git outside runs, after all.
    for name in [
        "git-settings",
        "git-absent-hooks",
        "git-commondir",
        "git-worktree-settings",
        "git-file",
        "git-submodule",
        "git-nested",
        "git-new",
        "git-new-bare",
    ] {
        assert!(
            breaches.iter().any(|breach| breach.contains(name)),
            "{name} ran nothing: {breaches:?}"
        );
    }
}

fn listen(path: &Path) -> std::os::unix::net::UnixListener {
    let socket = std::os::unix::net::UnixListener::bind(path).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    socket
}

fn sockets_in_the_home_and_elsewhere_are_not_reached() {
    let elsewhere = scratch("daemon", 0);
    let path = elsewhere.join("daemon.sock");
    let _daemon = listen(&path);
    let probe = |seconds: &str| {
        Sandbox::probes(&[
            "unix-after",
            seconds,
            path.to_str().unwrap(),
            elsewhere.join("late.sock").to_str().unwrap(),
        ])
    };
    for sandbox in probe("0") {
        assert_eq!(sandbox.text(), "NotFound\nNotFound\n");
    }
    // Nor one that is created there after the launch.
    for sandbox in probe("0.5") {
        let mut running = sandbox.spawn();
        assert_eq!(running.line(), "waiting");
        let late = listen(&elsewhere.join("late.sock"));
        let text = String::from_utf8(running.finish().stdout).unwrap();
        assert!(!text.contains("CONNECTED"), "{text}");
        drop(late);
        std::fs::remove_file(elsewhere.join("late.sock")).unwrap();
    }
    let [_, mut sandbox] = Sandbox::probes(&["unix-after", "0"]);
    let path = sandbox.home.join("agent.sock");
    let _agent = listen(&path);
    sandbox.launch.arguments.push(path.into());
    let text = sandbox.text();
    assert!(
        !text.contains("CONNECTED") && text.lines().count() == 1,
        "{text}"
    );
}

fn a_wished_file_that_is_renamed_into_place_stays_hidden() {
    for mut sandbox in shell("echo ready; read line < fifo; cat $SECRET_PLACE 2>&1; true") {
        let owner = if sandbox.uid == 0 { 65534 } else { ANN };
        let place = scratch("config", sandbox.uid);
        let file = place.join("secrets.toml");
        plant(&file, "OLD-SECRET", owner);
        sandbox.launch.see.push(place.clone());
        sandbox.launch.hide.push(file.clone());
        sandbox.launch.environment.allow.push("SECRET_PLACE".into());
        let fifo = sandbox.directory.join("fifo");
        assert!(
            std::process::Command::new("mkfifo")
                .arg(&fifo)
                .status()
                .unwrap()
                .success()
        );
        own(&fifo, owner);
        let mut running = sandbox
            .variable("SECRET_PLACE", file.to_str().unwrap())
            .spawn();
        assert_eq!(running.line(), "ready");
        plant(&place.join("new"), "NEW-SECRET", owner);
        std::fs::rename(place.join("new"), &file).unwrap();
        std::fs::write(&fifo, "go\n").unwrap();
        let text = String::from_utf8(running.finish().stdout).unwrap();
        assert!(
            text.contains("No such file") && !text.contains("-SECRET"),
            "{text}"
        );
    }
}

fn a_sandbox_in_a_sandbox_works() {
    let script = "curl -sS http://8.8.8.8/ | tr -d '\\n'; cat ~/.netrc 2>/dev/null; ls ~/.local/bin; echo x > ~/new && echo wrote";
    let inner = Sandbox::by_user(&["/bin/sh", "-c", script]);
    let command = inner.command();
    let mut outer = Sandbox::by_user(&[]);
    outer.launch.arguments = [command.get_program()]
        .into_iter()
        .chain(command.get_args())
        .map(Into::into)
        .collect();
    outer.launch.allow_userns = true;
    outer.launch.see = vec![
        std::env::current_exe()
            .unwrap()
            .parent()
            .unwrap()
            .to_owned(),
    ];
    plant(&outer.home.join(".netrc"), "SECRET", ANN);
    plant(&outer.home.join(".local/bin/tool"), "", ANN);
    // The inner sandbox can only take the outer one's mounts in it as a whole.
    plant(&outer.directory.join(".git/config"), "", ANN);
    assert_eq!(plain(&outer.text()), "reached 8.8.8.8:80tool\nwrote\n");
}

fn what_is_hidden_cannot_be_named_to_be_seen() {
    let mut sandbox = Sandbox::by_user(&["/bin/true"]);
    let place = scratch("secret", ANN);
    plant(&place.join("token"), "SECRET", ANN);
    sandbox.launch.hide = vec![place.join("token")];
    sandbox.launch.see = vec![place.join("token")];
    let output = sandbox.run();
    assert_eq!(output.status.code(), Some(125));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("is hidden from the command"), "{errors}");
}

fn a_store_that_a_variable_has_moved_is_hidden() {
    let mut sandbox = Sandbox::by_user(&[
        "/bin/sh",
        "-c",
        "cat $XDG_CONFIG_HOME/gh/hosts.yml $KUBECONFIG ~/keys.json 2>&1; cat $XDG_CONFIG_HOME/app",
    ]);
    let moved = scratch("config", ANN);
    plant(&moved.join("gh/hosts.yml"), "SECRET", ANN);
    plant(&moved.join("app"), "seen\n", ANN);
    plant(&sandbox.home.join("keys.json"), "SECRET", ANN);
    sandbox.launch.see.push(moved.clone());
    sandbox.launch.see_home.push("keys.json".into());
    let (moved, keys) = (
        moved.display().to_string(),
        sandbox.home.join("keys.json").display().to_string(),
    );
    let text = sandbox
        .variable("XDG_CONFIG_HOME", &moved)
        .variable("GOOGLE_APPLICATION_CREDENTIALS", &keys)
        .text();
    assert!(
        !text.contains("SECRET") && text.ends_with("seen\n"),
        "{text}"
    );
}
