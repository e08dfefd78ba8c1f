//! Messages of SSH agents, and what git has signed: what is read was written so, and of the data
//! only one form passes.
#![no_main]

use gateway_wire::ssh_agent::{Answer, Request, check_signed};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let counted = |bytes: &[u8]| [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat();
    match Request::read(bytes) {
        Ok(Request::Other) | Err(_) => {}
        Ok(request) => assert_eq!(request.write(), counted(bytes)),
    }
    match Answer::read(bytes) {
        // Comments are not kept.
        Ok(Answer::Identities(keys)) => {
            let written = Answer::Identities(keys.clone()).write();
            assert_eq!(Answer::read(&written[4..]), Ok(Answer::Identities(keys)));
        }
        Ok(answer) => assert_eq!(answer.write(), counted(bytes)),
        Err(_) => {}
    }
    if check_signed(bytes).is_ok() {
        let digest = match bytes.len() {
            63 => [&counted(b"sha256")[..], &counted(&bytes[31..])].concat(),
            _ => [&counted(b"sha512")[..], &counted(&bytes[31..])].concat(),
        };
        let written = [&b"SSHSIG"[..], &counted(b"git"), &counted(b""), &digest].concat();
        assert_eq!(bytes, written);
    }
});
