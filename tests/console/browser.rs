//! A real Chromium, headless, over the pipe of its DevTools protocol.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// A browser with one page.
pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    calls: u64,
    session: String,
    /// What the page told of mistakes: scripts that were kept from running, exceptions.
    pub told: Vec<String>,
    _home: tempfile::TempDir,
}

impl Browser {
    /// Starts it, with an empty page of this size.
    pub fn start(width: u32, height: u32) -> Self {
        let home = tempfile::tempdir().unwrap();
        // The protocol reads descriptor 3 and writes descriptor 4.
        let line = format!(
            "exec chromium --headless=new --no-sandbox --disable-gpu --no-first-run \
             --disable-background-networking --disable-component-update --disable-sync \
             --remote-debugging-pipe --window-size={width},{height} --user-data-dir={} about:blank \
             3<&0 4>&1 </dev/null >/dev/null 2>&1",
            home.path().join("profile").display()
        );
        let mut child = Command::new("sh")
            .args(["-c", &line])
            .env("HOME", home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut browser = Self {
            to: child.stdin.take().unwrap(),
            from: BufReader::new(child.stdout.take().unwrap()),
            child,
            calls: 0,
            session: String::new(),
            told: Vec::new(),
            _home: home,
        };
        let targets = browser.call("Target.getTargets", json!({}));
        let all = targets["targetInfos"].as_array().unwrap();
        let page = all
            .iter()
            .find(|one| one["type"] == "page")
            .expect("a page");
        let attach = json!({ "targetId": page["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = attached["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            browser.call(domain, json!({}));
        }
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
        });
        browser.call("Emulation.setDeviceMetricsOverride", size);
        browser
    }

    /// Makes a call of the protocol.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.calls += 1;
        let id = self.calls;
        let mut call = json!({ "id": id, "method": method, "params": params });
        if !self.session.is_empty() {
            call["sessionId"] = json!(self.session);
        }
        self.to.write_all(call.to_string().as_bytes()).unwrap();
        self.to.write_all(b"\0").unwrap();
        loop {
            let mut text = Vec::new();
            let read = self.from.read_until(0, &mut text).unwrap();
            assert!(read > 0, "the browser ended");
            text.pop();
            let answer: Value = serde_json::from_slice(&text).unwrap();
            if answer["id"] == id {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
            let method = answer["method"].as_str();
            if matches!(method, Some("Runtime.exceptionThrown" | "Log.entryAdded")) {
                self.told.push(answer["params"].to_string());
            }
        }
    }

    /// Goes to a page.
    pub fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({ "url": url }));
    }

    /// Evaluates an expression in the page. A page that is just left has no value.
    pub fn eval(&mut self, expression: &str) -> Value {
        let asked = json!({
            "expression": expression, "returnByValue": true, "awaitPromise": true,
        });
        self.call("Runtime.evaluate", asked)["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub fn wait(&mut self, expression: &str) {
        let until = Instant::now() + Duration::from_secs(20);
        let ready = format!("document.readyState === 'complete' && ({expression})");
        while self.eval(&ready) != true {
            if Instant::now() >= until {
                let text = self.text();
                panic!("never: {expression}\n{text}\n{:#?}", self.told);
            }
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    /// Waits until the page has a text.
    pub fn shows(&mut self, text: &str) {
        self.wait(&format!(
            "document.body.innerText.includes({})",
            json!(text)
        ));
    }

    pub fn text(&mut self) -> String {
        let text = self.eval("document.location.href + '\\n' + document.body.innerText");
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Presses a key.
    pub fn press(&mut self, key: &str) {
        let text = match key {
            "Enter" => "\r",
            one if one.chars().count() == 1 => one,
            _ => "",
        };
        let code = if key == "Enter" { 13 } else { 0 };
        let mut event = json!({
            "type": "keyDown", "key": key, "text": text, "windowsVirtualKeyCode": code,
        });
        self.call("Input.dispatchKeyEvent", event.clone());
        event["type"] = json!("keyUp");
        self.call("Input.dispatchKeyEvent", event);
    }

    /// Clicks into the middle of the first element that fits, as a mouse does.
    pub fn click(&mut self, selector: &str) {
        self.wait(&format!("!!document.querySelector({})", json!(selector)));
        let place = self.eval(&format!(
            "(() => {{ const one = document.querySelector({}); one.scrollIntoView({{block: 'center'}}); \
             const at = one.getBoundingClientRect(); \
             return [at.x + at.width / 2, at.y + at.height / 2]; }})()",
            json!(selector)
        ));
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({
                "type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1,
            });
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    /// Shows the page as it is with the colours of the night.
    pub fn darken(&mut self) {
        let dark = json!({ "features": [{ "name": "prefers-color-scheme", "value": "dark" }] });
        self.call("Emulation.setEmulatedMedia", dark);
    }

    /// Finds no error with axe-core, which judges what a page is to those who do not see it.
    pub fn is_accessible(&mut self) {
        let clients = std::env::var("GATEWAY_CLIENTS")
            .expect("GATEWAY_CLIENTS names the directory that `.ci/install` prints");
        let axe = Path::new(&clients).join("axe/node_modules/axe-core/axe.min.js");
        let axe = std::fs::read_to_string(axe).unwrap();
        self.eval(&format!("{axe}; 0"));
        let found = "axe.run().then((all) => [all.passes.length > 5, all.violations.map((one) => \
                     one.id + ' ' + one.nodes.map((node) => node.html))])";
        assert_eq!(self.eval(found), json!([true, []]));
    }

    /// Takes a picture, and keeps it in the documentation if `GATEWAY_WRITE` is set.
    pub fn picture(&mut self, name: &str) {
        // The test's own folder is of no interest to a reader.
        self.eval(
            "scrollTo(0, 0); for (const one of document.querySelectorAll('#head p, #rule code')) \
             one.textContent = one.textContent.replace(/\\/tmp\\/[^/]*/, '/home/you/agent');",
        );
        let taken = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        let png = STANDARD.decode(taken["data"].as_str().unwrap()).unwrap();
        assert!(
            png.starts_with(b"\x89PNG") && png.len() > 5000,
            "{}",
            png.len()
        );
        if std::env::var_os("GATEWAY_WRITE").is_some() {
            let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
            std::fs::write(docs.join(name), png).unwrap();
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
