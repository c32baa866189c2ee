//! Fault injection: commands that are to fail, answers that are to be wrong.

use crate::errno::{Errno, Result};

/// A command that is to fail.
#[derive(Debug)]
struct Fault {
    command: String,
    /// Calls that still succeed first.
    pass: u32,
    /// Calls that fail after that; `None`: all.
    left: Option<u32>,
    errno: Errno,
}

/// Bytes that are to be others in the driver's part of an answer.
#[derive(Debug)]
struct Lie {
    command: String,
    offset: usize,
    bytes: Vec<u8>,
    /// Answers left to change; `None`: all.
    left: Option<u32>,
}

/// All commands that are to fail, all answers that are to be wrong.
#[derive(Debug, Default)]
pub struct Faults {
    list: Vec<Fault>,
    lies: Vec<Lie>,
}

impl Faults {
    /// Lets `command` fail with `errno`, from its `nth` call from now on (1: the next), `count` times or for good.
    pub fn add(&mut self, command: &str, nth: u32, errno: Errno, count: Option<u32>) {
        let pass = nth.saturating_sub(1);
        self.list.push(Fault { command: command.to_owned(), pass, left: count, errno });
    }

    /// Lets the driver's part of the next answers to `command` have `bytes` at `offset`, `count` times or for good.
    pub fn add_lie(&mut self, command: &str, offset: usize, bytes: Vec<u8>, count: Option<u32>) {
        self.lies.push(Lie { command: command.to_owned(), offset, bytes, left: count });
    }

    /// Changes the driver's part of an answer to a command, as far as it reaches.
    pub fn distort(&mut self, command: &str, answer: &mut [u8]) {
        for lie in self.lies.iter_mut().filter(|lie| lie.command == command) {
            match &mut lie.left {
                Some(0) => continue,
                Some(left) => *left -= 1,
                None => {}
            }
            let place = answer.iter_mut().skip(lie.offset);
            place.zip(&lie.bytes).for_each(|(byte, told)| *byte = *told);
        }
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.list.clear();
        self.lies.clear();
    }

    /// Called once per call of a command; the error if it is to fail.
    pub fn check(&mut self, command: &str) -> Result<()> {
        for fault in self.list.iter_mut().filter(|fault| fault.command == command) {
            if fault.pass > 0 {
                fault.pass -= 1;
                continue;
            }
            match &mut fault.left {
                Some(0) => continue,
                Some(left) => *left -= 1,
                None => {}
            }
            return Err(fault.errno);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errno::{ENOMEM, EPERM};

    #[test]
    fn the_nth_call_fails_as_often_as_asked() {
        let mut faults = Faults::default();
        faults.add("create_cq", 2, ENOMEM, Some(2));
        assert_eq!(faults.check("create_qp"), Ok(()));
        let results: Vec<_> = (0..5).map(|_| faults.check("create_cq")).collect();
        assert_eq!(results, [Ok(()), Err(ENOMEM), Err(ENOMEM), Ok(()), Ok(())]);
        faults.add("create_cq", 1, EPERM, None);
        assert_eq!(faults.check("create_cq"), Err(EPERM));
        assert_eq!(faults.check("create_cq"), Err(EPERM));
        faults.clear();
        assert_eq!(faults.check("create_cq"), Ok(()));
    }

    #[test]
    fn answers_change_as_far_as_they_reach_and_as_often_as_asked() {
        let mut faults = Faults::default();
        faults.add_lie("create_qp", 2, vec![7, 8], Some(2));
        let told = |faults: &mut Faults, command: &str, length: usize| {
            let mut answer = vec![0; length];
            faults.distort(command, &mut answer);
            answer
        };
        assert_eq!(told(&mut faults, "create_cq", 4), [0, 0, 0, 0]);
        assert_eq!(told(&mut faults, "create_qp", 5), [0, 0, 7, 8, 0]);
        assert_eq!(told(&mut faults, "create_qp", 3), [0, 0, 7]);
        assert_eq!(told(&mut faults, "create_qp", 5), [0; 5]);
        faults.add_lie("create_qp", 0, vec![1], None);
        faults.clear();
        assert_eq!(told(&mut faults, "create_qp", 1), [0]);
    }
}
