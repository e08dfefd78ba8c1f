//! Credentials outside of fields, cookies and queries: in the path.

use crate::rig::origin::ok;
use crate::rig::way::Way;
use crate::rig::{Rig, TELEGRAM};
use crate::rows;
use crate::verdicts::allowed;

rows![
    a_credential_in_the_path_is_put_in_there_alone,
    a_credential_in_the_path_goes_out_over_http2_alike,
    a_path_is_judged_and_recorded_without_the_phantom,
    what_stands_in_a_place_of_the_path_and_is_not_lent_is_refused,
];

fn get(target: &str) -> String {
    format!("GET {{T}}{target} HTTP/1.1\r\nHost: {{H}}\r\n\r\n")
}

fn a_credential_in_the_path_is_put_in_there_alone(rig: &Rig) {
    let secret = rig.secret("telegram").to_owned();
    for way in Way::SECURE {
        for (target, sent) in [
            (
                "/bot{PH:telegram}/sendMessage?chat_id=1&text={}",
                "/bot{S}/sendMessage?chat_id=1&text=%7B%7D",
            ),
            ("/a/../bot{PH:telegram}/getMe", "/bot{S}/getMe"),
            (
                "/file/bot{PH:telegram}/photos/%7B%7D.jpg",
                "/file/bot{S}/photos/%7B%7D.jpg",
            ),
        ] {
            allowed(rig, way, TELEGRAM, &get(target));
            assert_eq!(
                rig.seen().remove(0).target,
                sent.replace("{S}", &secret),
                "{way:?}"
            );
        }
        // An answer that repeats the path shows the phantom.
        let echo = secret.clone();
        rig.origins.on(&format!("/bot{secret}/getMe"), move |_| {
            ok(
                &format!("Location: /bot{echo}/x\r\n"),
                format!("/bot{echo}/getMe").as_bytes(),
            )
        });
        let answer = allowed(rig, way, TELEGRAM, &get("/bot{PH:telegram}/getMe"));
        let phantom = rig.phantom(way, "telegram");
        assert!(
            answer.head.contains(&format!("/bot{phantom}/x")),
            "{answer:?}"
        );
        assert_eq!(answer.body, format!("/bot{phantom}/getMe").as_bytes());
        rig.seen();
    }
}

fn a_credential_in_the_path_goes_out_over_http2_alike(rig: &Rig) {
    for way in Way::SECURE {
        let path = format!("/bot{}/getUpdates", rig.phantom(way, "telegram"));
        let mut frames = rig.frames(way, TELEGRAM);
        let fields = [
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", TELEGRAM),
            (":path", &path),
        ];
        frames.headers(1, &fields, true);
        assert!(frames.fate(1).answered, "{way:?}");
        let record = rig.record(way);
        assert_eq!(record["path"], "/bot{}/getUpdates", "{record}");
        let seen = rig.seen().remove(0);
        assert_eq!(
            seen.target,
            format!("/bot{}/getUpdates", rig.secret("telegram"))
        );
    }
}

fn a_path_is_judged_and_recorded_without_the_phantom(rig: &Rig) {
    for way in Way::SECURE {
        allowed(rig, way, TELEGRAM, &get("/bot{PH:telegram}/getMe"));
        rig.seen();
        for (target, reason) in [
            ("/bot{PH:telegram}/getUpdates?repo=bad", "policy_forbids"),
            ("/bot{PH:telegram}/logOut", "policy_forbids"),
        ] {
            let answer = rig.ask(way, TELEGRAM, &get(target));
            let record = rig.record(way);
            assert_eq!(
                (answer.status, record["reason"].as_str()),
                (403, Some(reason)),
                "{record}"
            );
            let path = record["path"].as_str().unwrap();
            assert!(path.starts_with("/bot{}/"), "{record}");
        }
    }
}

fn what_stands_in_a_place_of_the_path_and_is_not_lent_is_refused(rig: &Rig) {
    let theirs = format!("/bot{}/getMe", rig.phantoms_b["telegram"]);
    for (target, reason) in [
        ("/bot7123456789:AAattackers/getMe", "foreign_credential"),
        ("//bot7123456789:AAattackers/getMe", "foreign_credential"),
        ("/BOT7123456789:AAattackers;x=1/getMe", "foreign_credential"),
        ("/file/bot7123456789:AAattackers/x", "foreign_credential"),
        ("/bot{}/getMe", "foreign_credential"),
        ("//bot{PH:telegram}/getMe", "phantom_position"),
        ("/bot{PH:telegram}x/getMe", "phantom_position"),
        ("/bot{PH:telegram}/{PH:telegram}", "phantom_position"),
        ("/x?token={PH:telegram}", "phantom_position"),
        ("/bot{PH:gitlab}/getMe", "phantom_out_of_scope"),
        (&theirs, "phantom_foreign_session"),
    ] {
        for way in Way::SECURE {
            if way.is_transparent() && target == theirs {
                continue;
            }
            let answer = rig.ask(way, TELEGRAM, &get(target));
            let record = rig.record(way);
            let refused = (answer.status, record["reason"].as_str());
            assert_eq!(refused, (403, Some(reason)), "{way:?} {target} {record}");
            assert!(rig.seen().is_empty());
            let path = record["path"].as_str().unwrap();
            assert!(
                !path.contains("attackers") && !path.contains(&theirs),
                "{record}"
            );
        }
    }
}
