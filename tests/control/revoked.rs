//! A credential is revoked after its exchange was given up.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::program::{CANARY, Program, RULES};

/// An origin whose kernel takes little for it.
fn narrow() -> TcpListener {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(2304).unwrap();
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    socket.bind(&any.into()).unwrap();
    socket.listen(8).unwrap();
    socket.into()
}

/// Asks with the credential, behind more than the origin's kernel takes, and gives up. Returns the
/// origin's side.
fn given_up(program: &Program, origin: &TcpListener) -> TcpStream {
    let url = format!("http://{}", origin.local_addr().unwrap());
    let origin_of = format!(
        "[[origin]]\nmatch = \"{url}\"\naddresses = [\"127.0.0.0/8\"]\ncleartext = true\n\
         [[credential]]\nname = \"doomed\"\nfrom = \"env:KEY\"\norigins = [\"{url}\"]\n\
         places = [\"header:authorization:Bearer\"]\nenv = [\"DOOMED\"]\n"
    );
    program.edit(|config| format!("{config}{origin_of}"));
    fs::write(
        program.path("rules.cedar"),
        format!("{RULES}permit(principal, action, resource);"),
    )
    .unwrap();
    program.reload();
    let phantoms = fs::read_to_string(program.path("phantoms.env")).unwrap();
    let mut lines = phantoms.lines();
    let phantom = lines.find_map(|line| line.strip_prefix("DOOMED="));
    let (phantom, long) = (phantom.unwrap(), "f".repeat(1000));
    let fill: String = (0..12).map(|i| format!("X-Fill-{i}: {long}\r\n")).collect();
    let host = url.trim_start_matches("http://");
    let mut client = TcpStream::connect(program.proxy).unwrap();
    let head = format!(
        "GET {url}/{} HTTP/1.1\r\nHost: {host}\r\n{fill}Authorization: Bearer {phantom}\r\n\r\n",
        "p".repeat(7000)
    );
    client.write_all(head.as_bytes()).unwrap();
    let (theirs, _) = origin.accept().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let (code, said) = program.gateway(&["end", "agent-1"]);
    assert_eq!(code, 0, "{said}");
    std::thread::sleep(Duration::from_millis(300));
    theirs
}

fn holds_the_secret(mut theirs: TcpStream) -> bool {
    theirs
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    let mut read = Vec::new();
    let _ = theirs.read_to_end(&mut read);
    assert!(!read.is_empty());
    memchr::memmem::find(&read, CANARY.as_bytes()).is_some()
}

#[test]
fn a_revocation_reaches_what_the_kernel_has_yet_to_send_of_an_exchange_that_was_given_up() {
    let program = Program::start("");
    let origin = narrow();
    let theirs = given_up(&program, &origin);
    let (code, said) = program.gateway(&["revoke", "doomed"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("1 connection"), "{said}");
    assert!(!holds_the_secret(theirs));
}

#[test]
fn without_a_revocation_a_closed_connection_loses_no_bytes() {
    let program = Program::start("");
    let origin = narrow();
    assert!(holds_the_secret(given_up(&program, &origin)));
}
