//! The kernel's log, line by line as it is written.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::thread;

use anyhow::{Context, Result};
use irdma_vm_agent::Report;

use crate::Reports;

/// Longest record that the kernel hands out.
const LONGEST_RECORD: usize = 8192;

/// Reports every line, those of the boot too.
pub fn follow(reports: Reports) -> Result<()> {
    let mut log = File::open("/dev/kmsg").context("cannot read the kernel's log")?;
    thread::spawn(move || {
        let mut record = [0; LONGEST_RECORD];
        loop {
            match log.read(&mut record) {
                Ok(length) => {
                    if let Some(report) = parse(&String::from_utf8_lossy(&record[..length])) {
                        reports.send(&report);
                    }
                }
                // Records were overwritten before they were read: the next read has the oldest left.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
                Err(_) => break,
            }
        }
    });
    Ok(())
}

/// A record: `PRIORITY,NUMBER,TIME,FLAGS;TEXT`, then lines with details that begin with a space.
fn parse(record: &str) -> Option<Report> {
    let (head, text) = record.split_once(';')?;
    let mut fields = head.split(',');
    let priority: u32 = fields.next()?.parse().ok()?;
    let time = fields.nth(1)?.parse().ok()?;
    Some(Report::Kernel { level: (priority & 7) as u8, time, text: text.lines().next()?.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_has_its_level_and_its_first_line() {
        let report = Report::Kernel { level: 4, time: 5_140_900, text: "irdma: what; so".to_owned() };
        assert_eq!(parse("12,339,5140900,-;irdma: what; so\n SUBSYSTEM=pci\n"), Some(report));
        assert_eq!(parse("nothing"), None);
    }
}
