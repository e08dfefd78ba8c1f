//! The whole screen of a terminal, and its keys one by one; the terminal is as before when this is
//! dropped, and when the program panics.

use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;

use rustix::termios::{
    InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize,
    tcsetattr,
};

use super::failure::Failure;

/// A terminal of which the whole screen is ours.
pub(super) struct Screen(Arc<Termios>);

impl Screen {
    /// Whether both the keys and the output are a terminal's.
    pub(super) fn is_there() -> bool {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb" || term.is_empty());
        std::io::stdin().is_terminal() && std::io::stdout().is_terminal() && !dumb
    }

    /// Takes the terminal.
    ///
    /// # Errors
    /// Returns a [`Failure`] if it cannot be set.
    pub(super) fn take() -> Result<Self, Failure> {
        let refused = |error: rustix::io::Errno| {
            Failure::of("the terminal cannot be set", &std::io::Error::from(error))
        };
        let before = tcgetattr(std::io::stdin()).map_err(refused)?;
        let mut raw = before.clone();
        raw.input_modes -= InputModes::ICRNL | InputModes::IXON;
        // No key is a signal, and none is shown.
        raw.local_modes -=
            LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG | LocalModes::IEXTEN;
        raw.special_codes[SpecialCodeIndex::VMIN] = 1;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        let screen = Self(Arc::new(before));
        let of_panic = screen.0.clone();
        let told = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |why| {
            restore(&of_panic);
            told(why);
        }));
        tcsetattr(std::io::stdin(), OptionalActions::Flush, &raw).map_err(refused)?;
        print(ENTER);
        Ok(screen)
    }

    /// The size, in columns and rows.
    pub(super) fn size() -> (usize, usize) {
        let size = tcgetwinsize(std::io::stdout()).ok();
        let of = |part: u16, else_: usize| if part == 0 { else_ } else { usize::from(part) };
        size.map_or((80, 24), |size| (of(size.ws_col, 80), of(size.ws_row, 24)))
    }

    /// Shows these lines, each of which fits in a row.
    pub(super) fn show(&self, lines: &[String]) {
        let rows = lines.iter().map(|line| format!("{line}\x1b[0m\x1b[K"));
        let rows: Vec<String> = rows.collect();
        print(&format!("\x1b[H{}\x1b[J", rows.join("\r\n")));
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore(&self.0);
    }
}

fn restore(before: &Termios) {
    print(LEAVE);
    // Nothing more can be done for a terminal that is gone.
    let _ = tcsetattr(std::io::stdin(), OptionalActions::Flush, before);
}

fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .unwrap_or(());
}

/// Another screen, without a cursor, on which a long line ends at the edge.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
