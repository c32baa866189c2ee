//! Control commands: what tests and people ask of the device beside the programs.
//!
//! A command is a line of words, the answer text; [`HELP`] lists them.

use std::fmt::Write;

use irdma_engine::Platform;
use irdma_engine::event::{AsyncEvent, Source, Subject};

use crate::abi::number::event;
use crate::device::Device;
use crate::errno::{self, Errno};
use crate::file::OpenFile;
use crate::method;
use crate::object::Object;
use crate::profile::Transport;

/// What `help` answers.
const HELP: &str = "\
status                          objects alive, per open device node and in all
describe                        what the device is: generation, transport, features, limits
fail COMMAND [NTH] ERRNO [COUNT]
                                let a verbs command (create_cq, reg_mr, modify_qp ...) fail from its
                                NTH call on (1: the next) with ERRNO (ENOMEM or 12), COUNT times or for good
answer COMMAND OFFSET HEX [COUNT]
                                let the driver's part of the next answers to a command have these bytes
                                at OFFSET, COUNT times or for good
fail clear                      forget all of these
cqe CQ HEX                      write a CQE made by hand to the CQ of that number; the device
                                sets its valid bit
async qp|cq|srq NUMBER CODE     make the device report an event, CODE in hexadecimal
push                            push pages, and what came of pushes
push drop COUNT                 lose the next COUNT pushes
port up|down                    tell programs that the port came up or went down
connections                     identifiers of rdma_cm: states, addresses of both ends, stages
remove                          take the card out: commands fail with EIO, programs get a fatal event
restart                         begin anew with the first numbers, keys and time; no program may have
                                the device open
stop                            end the device process
help                            this
";

impl Device {
    /// Carries out a command; the error is a line for the person who asked.
    pub fn control(&mut self, line: &str) -> Result<String, String> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words.as_slice() {
            ["help"] => Ok(HELP.to_owned()),
            ["status"] => Ok(self.status()),
            ["list"] => Ok(self.list()),
            ["describe"] => Ok(self.describe()),
            ["fail", "clear"] => {
                self.hardware.faults.clear();
                Ok(String::new())
            }
            ["fail", command, rest @ ..] => self.inject(command, rest),
            ["answer", command, offset, hex] => self.lie(command, offset, hex, None),
            ["answer", command, offset, hex, count] => self.lie(command, offset, hex, Some(count)),
            ["cqe", cq, hex @ ..] => self.write_cqe(cq, &hex.concat()),
            ["async", kind, number, code] => self.report(kind, number, code),
            ["push", rest @ ..] => self.control_push(rest),
            ["port", "up"] => {
                self.port_event(event::PORT_ACTIVE);
                Ok(String::new())
            }
            ["port", "down"] => {
                self.port_event(event::PORT_ERR);
                Ok(String::new())
            }
            ["restart"] => self.restart().map(|()| String::new()),
            ["remove"] => {
                self.remove();
                self.settle();
                Ok(String::new())
            }
            _ => Err(format!("no such control command: {} (try: help)", line.trim())),
        }
    }

    fn inject(&mut self, command: &str, rest: &[&str]) -> Result<String, String> {
        if !method::is_name(command) {
            return Err(format!("no verbs command has the name {command}"));
        }
        let number = |word: &str| word.parse::<u32>().map_err(|_| format!("not a number: {word}"));
        let (nth, errno, count) = match rest {
            [errno] => (1, parse_errno(errno)?, None),
            [first, second] if first.parse::<u32>().is_ok() && parse_errno(second).is_ok() => {
                (number(first)?, parse_errno(second)?, None)
            }
            [errno, count] => (1, parse_errno(errno)?, Some(number(count)?)),
            [nth, errno, count] => (number(nth)?, parse_errno(errno)?, Some(number(count)?)),
            _ => return Err("use: fail COMMAND [NTH] ERRNO [COUNT]".into()),
        };
        self.hardware.faults.add(command, nth, errno, count);
        Ok(String::new())
    }

    fn lie(&mut self, command: &str, offset: &str, hex: &str, count: Option<&str>) -> Result<String, String> {
        if !method::is_name(command) {
            return Err(format!("no verbs command has the name {command}"));
        }
        let number = |word: &str| word.parse::<u32>().map_err(|_| format!("not a number: {word}"));
        let bytes = parse_hex(hex).ok_or_else(|| format!("not hexadecimal bytes: {hex}"))?;
        let count = count.map(number).transpose()?;
        self.hardware.faults.add_lie(command, number(offset)? as usize, bytes, count);
        Ok(String::new())
    }

    fn write_cqe(&mut self, cq: &str, hex: &str) -> Result<String, String> {
        let number = cq.parse().map_err(|_| format!("not a CQ number: {cq}"))?;
        let bytes = parse_hex(hex).ok_or_else(|| format!("not hexadecimal bytes: {hex}"))?;
        let size = self.hardware.profile.cqe_size();
        if bytes.len() != size && bytes.len() != 64 {
            return Err(format!("a CQE has {size} bytes, not {}", bytes.len()));
        }
        let cq = self.hardware.id(number);
        self.hardware.engine.write_cqe(cq, &bytes).map_err(|error| format!("CQ {number}: {error}"))?;
        self.settle();
        Ok(String::new())
    }

    fn report(&mut self, kind: &str, number: &str, code: &str) -> Result<String, String> {
        let number = number.parse().map_err(|_| format!("not a number: {number}"))?;
        let id = self.hardware.id(number);
        let (subject, source) = match kind {
            "qp" => (Subject::Qp(id), Source::Unspecified),
            "cq" => (Subject::Cq(id), Source::CompletionQueue),
            "srq" => (Subject::Srq(id), Source::Unspecified),
            _ => return Err(format!("not qp, cq or srq: {kind}")),
        };
        let digits = code.trim_start_matches("0x");
        let code = u16::from_str_radix(digits, 16).map_err(|_| format!("not an event code: {code}"))?;
        self.hardware.engine.platform().async_event(AsyncEvent { subject, code, source, wqe_index: None });
        self.settle();
        Ok(String::new())
    }

    fn list(&self) -> String {
        let mut text = String::new();
        for file in self.files.values() {
            let queue_pairs = file.objects.iter().filter_map(|object| match object {
                Object::Qp(qp) => Some(qp),
                _ => None,
            });
            for qp in queue_pairs {
                let (send_cq, recv_cq) = (cq_number(file, qp.send_cq), cq_number(file, qp.recv_cq));
                // Writing to a string cannot fail.
                let _ = writeln!(
                    text,
                    "qp {} context {:#x} send_cq {send_cq} recv_cq {recv_cq}",
                    qp.id.number, qp.completion_context
                );
            }
        }
        text
    }

    fn describe(&self) -> String {
        let profile = &self.hardware.profile;
        let limits = profile.limits();
        let transport = match profile.transport {
            Transport::Roce => "roce",
            Transport::Iwarp => "iwarp",
        };
        let numbers = [
            ("generation", limits.hardware_revision.into()),
            ("legacy", profile.legacy.unwrap_or(0).into()),
            ("features", limits.features),
            ("cqe_size", profile.cqe_size() as u64),
            ("fragments", limits.fragments.into()),
            ("read_fragments", limits.read_fragments.into()),
            ("inline_bytes", limits.inline_bytes.into()),
            ("smallest_queue", limits.smallest_queue.into()),
            ("sq_quanta", limits.sq_quanta.into()),
            ("rq_quanta", limits.rq_quanta.into()),
            ("push_pages", profile.push_pages.into()),
            ("push_offset", profile.push_offset.into()),
        ];
        let mut text = format!("transport {transport}\n");
        for (name, value) in numbers {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name} {value}");
        }
        text
    }

    fn status(&self) -> String {
        let mut text = String::new();
        let mut all = Census::default();
        for (token, file) in &self.files {
            let census = Census::of(file);
            // Writing to a string cannot fail.
            let _ = writeln!(text, "file {token}: {census}");
            all.add(&census);
        }
        let _ = writeln!(text, "total: files {} {all}", self.files.len());
        text
    }
}

/// The device's number of the CQ with that handle.
fn cq_number(file: &OpenFile, handle: u32) -> u32 {
    match file.objects.get(handle) {
        Some(Object::Cq(cq)) => cq.id.number,
        _ => 0,
    }
}

/// How many objects of each kind there are.
#[derive(Debug, Default)]
struct Census {
    counts: [usize; 9],
}

impl Census {
    const NAMES: [&str; 9] = ["pd", "mr", "ring", "mw", "cq", "qp", "srq", "ah", "channel"];

    fn of(file: &OpenFile) -> Census {
        let mut census = Census::default();
        for object in file.objects.iter() {
            let kind = match object {
                Object::Pd(_) => 0,
                Object::Mr(mr) if mr.key.is_some() => 1,
                Object::Mr(_) => 2,
                Object::Mw(_) => 3,
                Object::Cq(_) => 4,
                Object::Qp(_) => 5,
                Object::Srq(_) => 6,
                Object::Ah(_) => 7,
            };
            census.counts[kind] += 1;
        }
        census.counts[8] = file.channels.len();
        census
    }

    fn add(&mut self, other: &Census) {
        for (sum, count) in self.counts.iter_mut().zip(other.counts) {
            *sum += count;
        }
    }
}

impl std::fmt::Display for Census {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, (name, count)) in Census::NAMES.iter().zip(self.counts).enumerate() {
            let space = if index > 0 { " " } else { "" };
            write!(formatter, "{space}{name} {count}")?;
        }
        Ok(())
    }
}

/// An errno by name or number.
fn parse_errno(word: &str) -> Result<Errno, String> {
    if let Some(errno) = errno::by_name(word) {
        return Ok(errno);
    }
    match word.parse::<i32>() {
        Ok(number @ 1..=4095) => Ok(Errno(number)),
        _ => Err(format!("not an errno: {word}")),
    }
}

/// Bytes written as hexadecimal digits.
fn parse_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|letter| letter.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits?;
    if digits.len() % 2 != 0 {
        return None;
    }
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_parsed_or_named() {
        assert_eq!(parse_errno("ENOMEM"), Ok(errno::ENOMEM));
        assert_eq!(parse_errno("12"), Ok(errno::ENOMEM));
        assert!(parse_errno("0").is_err());
        assert!(parse_errno("EWHAT").is_err());
        assert_eq!(parse_hex("00ff1A"), Some(vec![0, 0xff, 0x1a]));
        assert_eq!(parse_hex("0"), None);
        assert_eq!(parse_hex("0x"), None);
    }
}
