//! What the harness and the agent in the guest say to each other, over a port of its own.
//!
//! The serial console shows whatever the kernel and its boot say; results never pass there.

use std::io::{Error, ErrorKind, Read, Result, Write};

/// Name of the port of messages, as the guest finds it in sysfs.
pub const PORT: &str = "irdma.control";

/// Longest message; a longer one is a fault of who sent it.
const LONGEST: u32 = 1 << 20;

/// What the harness says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Run a command.
    Run {
        /// Number of this run, in all that is said about it.
        run: u32,
        /// After so many seconds it is killed.
        limit: u32,
        /// TCP port that something must listen on before the command starts; 0 for none.
        port: u16,
        /// For the shell.
        script: String,
    },
    /// Kill a run and all it started.
    Kill {
        /// Its number.
        run: u32,
    },
    /// End the machine.
    PowerOff,
}

/// What the agent says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// The guest has come up, and takes requests.
    Ready,
    /// What a run wrote.
    Output {
        /// Its number.
        run: u32,
        /// To standard output or standard error.
        bytes: Vec<u8>,
    },
    /// A run is over.
    Ended {
        /// Its number.
        run: u32,
        /// How its command ended.
        end: End,
        /// Processes that it left behind, which were killed.
        left_over: u32,
    },
    /// A line of the kernel's log.
    Kernel {
        /// 0 (the machine is unusable) to 7 (debugging).
        level: u8,
        /// Microseconds since the boot.
        time: u64,
        /// Without its time.
        text: String,
    },
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With this exit code.
    Exit(u8),
    /// By this signal.
    Signal(u8),
    /// It was killed at its limit.
    TimeOut,
    /// It did not start: no such port, no such program.
    NotStarted,
}

impl Request {
    /// Sends it.
    pub fn write(&self, sink: &mut impl Write) -> Result<()> {
        let mut bytes = Vec::new();
        match self {
            Request::Run { run, limit, port, script } => {
                bytes.push(0);
                bytes.extend(run.to_le_bytes());
                bytes.extend(limit.to_le_bytes());
                bytes.extend(port.to_le_bytes());
                bytes.extend(script.as_bytes());
            }
            Request::Kill { run } => {
                bytes.push(1);
                bytes.extend(run.to_le_bytes());
            }
            Request::PowerOff => bytes.push(2),
        }
        send(sink, &bytes)
    }

    /// The next one; `None` at the end of the stream.
    pub fn read(source: &mut impl Read) -> Result<Option<Request>> {
        let Some(bytes) = receive(source)? else { return Ok(None) };
        let mut fields = Fields(&bytes);
        Ok(Some(match fields.byte()? {
            0 => Request::Run {
                run: fields.word()?,
                limit: fields.word()?,
                port: u16::from_le_bytes(fields.take()?),
                script: fields.text()?,
            },
            1 => Request::Kill { run: fields.word()? },
            2 => Request::PowerOff,
            other => return Err(unknown("request", other)),
        }))
    }
}

impl Report {
    /// Sends it.
    pub fn write(&self, sink: &mut impl Write) -> Result<()> {
        let mut bytes = Vec::new();
        match self {
            Report::Ready => bytes.push(0),
            Report::Output { run, bytes: output } => {
                bytes.push(1);
                bytes.extend(run.to_le_bytes());
                bytes.extend(output);
            }
            Report::Ended { run, end, left_over } => {
                bytes.push(2);
                bytes.extend(run.to_le_bytes());
                bytes.extend(left_over.to_le_bytes());
                bytes.extend(match end {
                    End::Exit(code) => [0, *code],
                    End::Signal(signal) => [1, *signal],
                    End::TimeOut => [2, 0],
                    End::NotStarted => [3, 0],
                });
            }
            Report::Kernel { level, time, text } => {
                bytes.extend([3, *level]);
                bytes.extend(time.to_le_bytes());
                bytes.extend(text.as_bytes());
            }
        }
        send(sink, &bytes)
    }

    /// The next one; `None` at the end of the stream.
    pub fn read(source: &mut impl Read) -> Result<Option<Report>> {
        let Some(bytes) = receive(source)? else { return Ok(None) };
        let mut fields = Fields(&bytes);
        Ok(Some(match fields.byte()? {
            0 => Report::Ready,
            1 => Report::Output { run: fields.word()?, bytes: fields.0.to_vec() },
            2 => Report::Ended {
                run: fields.word()?,
                left_over: fields.word()?,
                end: match fields.take()? {
                    [0, code] => End::Exit(code),
                    [1, signal] => End::Signal(signal),
                    [2, _] => End::TimeOut,
                    [3, _] => End::NotStarted,
                    [other, _] => return Err(unknown("end", other)),
                },
            },
            3 => Report::Kernel {
                level: fields.byte()?,
                time: u64::from_le_bytes(fields.take()?),
                text: fields.text()?,
            },
            other => return Err(unknown("report", other)),
        }))
    }
}

/// What is left of a message.
struct Fields<'message>(&'message [u8]);

impl Fields<'_> {
    fn take<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH]> {
        let (field, rest) = self.0.split_first_chunk().ok_or(ErrorKind::UnexpectedEof)?;
        self.0 = rest;
        Ok(*field)
    }

    fn byte(&mut self) -> Result<u8> {
        Ok(u8::from_le_bytes(self.take()?))
    }

    fn word(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    fn text(&mut self) -> Result<String> {
        Ok(String::from_utf8_lossy(self.0).into_owned())
    }
}

fn unknown(what: &str, number: u8) -> Error {
    Error::new(ErrorKind::InvalidData, format!("there is no {what} {number}"))
}

fn send(sink: &mut impl Write, bytes: &[u8]) -> Result<()> {
    let length = u32::try_from(bytes.len()).ok().filter(|length| *length <= LONGEST);
    let length = length.ok_or_else(|| Error::new(ErrorKind::InvalidInput, "the message is too long"))?;
    // In one piece: several threads may share the port.
    let mut message = length.to_le_bytes().to_vec();
    message.extend(bytes);
    sink.write_all(&message)?;
    sink.flush()
}

fn receive(source: &mut impl Read) -> Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match source.read_exact(&mut length) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        result => result?,
    }
    let length = u32::from_le_bytes(length);
    if length > LONGEST {
        return Err(Error::new(ErrorKind::InvalidData, format!("a message of {length} bytes")));
    }
    let mut bytes = vec![0; length as usize];
    source.read_exact(&mut bytes)?;
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_arrives_as_sent() {
        let sent = [
            Request::Run { run: 7, limit: 30, port: 18515, script: "echo é".to_owned() },
            Request::Kill { run: u32::MAX },
            Request::PowerOff,
        ];
        let mut bytes = Vec::new();
        sent.iter().for_each(|request| request.write(&mut bytes).unwrap());
        let mut source = bytes.as_slice();
        for request in sent {
            assert_eq!(Request::read(&mut source).unwrap(), Some(request));
        }
        assert_eq!(Request::read(&mut source).unwrap(), None);
    }

    #[test]
    fn every_report_arrives_as_sent() {
        let ended = |end| Report::Ended { run: 3, end, left_over: 2 };
        let sent = [
            Report::Ready,
            Report::Output { run: 1, bytes: vec![0, 255, 10] },
            ended(End::Exit(77)),
            ended(End::Signal(9)),
            ended(End::TimeOut),
            ended(End::NotStarted),
            Report::Kernel { level: 4, time: 5, text: "WARNING: at".to_owned() },
        ];
        let mut bytes = Vec::new();
        sent.iter().for_each(|report| report.write(&mut bytes).unwrap());
        let mut source = bytes.as_slice();
        for report in sent {
            assert_eq!(Report::read(&mut source).unwrap(), Some(report));
        }
    }

    #[test]
    fn damaged_messages_are_errors() {
        for bytes in [&[1, 0, 0, 0, 9][..], &[2, 0, 0, 0, 0, 1], &[255, 255, 255, 255], &[5, 0, 0, 0, 0]] {
            assert!(Request::read(&mut &bytes[..]).is_err(), "{bytes:?}");
            assert!(!matches!(Report::read(&mut &bytes[..]), Ok(Some(Report::Output { .. }))), "{bytes:?}");
        }
    }
}
