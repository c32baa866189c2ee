//! What a program did and saw, as lines of text: `kind name=value name=value`.

use std::fmt::{Display, Write};

/// Lines so far.
#[derive(Debug, Default)]
pub struct Trace {
    text: String,
}

impl Trace {
    /// Begins a line of that kind.
    pub fn line(&mut self, kind: impl Display) -> Line<'_> {
        // Writing to a string cannot fail.
        let _ = write!(self.text, "{kind}");
        Line { text: &mut self.text }
    }

    /// All lines so far.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Takes all lines.
    pub fn take(&mut self) -> String {
        std::mem::take(&mut self.text)
    }
}

/// A line, which ends when it is dropped.
#[derive(Debug)]
pub struct Line<'a> {
    text: &'a mut String,
}

impl Line<'_> {
    /// Adds a value.
    pub fn with(self, name: impl Display, value: impl Display) -> Self {
        let _ = write!(self.text, " {name}={value}");
        self
    }

    /// Adds a value as hexadecimal number.
    pub fn hex(self, name: impl Display, value: u64) -> Self {
        let _ = write!(self.text, " {name}={value:#x}");
        self
    }

    /// Adds bytes.
    pub fn bytes(self, name: impl Display, bytes: &[u8]) -> Self {
        let _ = write!(self.text, " {name}=");
        for byte in bytes {
            let _ = write!(self.text, "{byte:02x}");
        }
        self
    }

    /// Adds how a call that returns an error number ended: its result, and `errno` where it says more.
    pub fn result(self, result: i32, errno: i32) -> Self {
        let line = self.with("result", result);
        if result < 0 { line.with("errno", errno) } else { line }
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        self.text.push('\n');
    }
}
