//! Fault injection: commands that are to fail.

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

/// All commands that are to fail.
#[derive(Debug, Default)]
pub struct Faults {
    list: Vec<Fault>,
}

impl Faults {
    /// Lets `command` fail with `errno`, from its `nth` call from now on (1: the next), `count` times or for good.
    pub fn add(&mut self, command: &str, nth: u32, errno: Errno, count: Option<u32>) {
        let pass = nth.saturating_sub(1);
        self.list.push(Fault { command: command.to_owned(), pass, left: count, errno });
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.list.clear();
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
}
