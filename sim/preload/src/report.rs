//! One line on standard error, without allocating.

use core::fmt::{self, Write};

use crate::system;

/// A line under construction; what does not fit is cut.
struct Line {
    bytes: [u8; 256],
    length: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.len() - 1 - self.length;
        let taken = text.len().min(room);
        self.bytes[self.length..self.length + taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.length += taken;
        Ok(())
    }
}

/// Writes the line, with our name before it.
pub fn line(text: fmt::Arguments<'_>) {
    let mut line = Line { bytes: [0; 256], length: 0 };
    // Writing to a `Line` cannot fail.
    let _ = write!(line, "irdma-sim: {text}");
    line.bytes[line.length] = b'\n';
    system::write_error(&line.bytes[..=line.length]);
}
