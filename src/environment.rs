//! Switches that a person sets in the environment of a program.

use core::ffi::CStr;
use core::ptr::NonNull;

/// Queues take no locks: the program uses all of its queues from one thread at a time.
pub const SINGLE_THREADED: &CStr = c"IRDMA_SINGLE_THREADED";

/// Rings of queues are on huge pages, as far as there are any.
pub const HUGE_PAGES: &CStr = c"IRDMA_HUGE_PAGES";

/// Log lines of the provider go to standard error, up to a level: that of `VERBS_LOG_LEVEL`.
pub const DEBUG: &CStr = c"IRDMA_DEBUG";

/// Push pages: `auto` uses what the device offers, `on` says where it offers none, `off` asks for none.
pub const PUSH: &CStr = c"IRDMA_PUSH";

/// Everything that is ever logged.
const HIGHEST_LEVEL: u32 = 4;

/// What `read` makes of a switch's value, unless that is empty.
///
/// Programs that run with more rights than whoever started them do not look.
fn value<T>(switch: &CStr, read: impl FnOnce(&CStr) -> T) -> Option<T> {
    // SAFETY: has no preconditions.
    let has_more_rights = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    if has_more_rights {
        return None;
    }
    // The C library's, as the lock of the standard library is taken by nobody else in the process.
    // SAFETY: a C string.
    let value = NonNull::new(unsafe { libc::getenv(switch.as_ptr()) })?;
    // SAFETY: of the environment, which a program must not change while it opens a device.
    let value = unsafe { CStr::from_ptr(value.as_ptr()) };
    (!value.is_empty()).then(|| read(value))
}

/// Whether a switch is on: set, to neither nothing nor `0`.
pub fn is_on(switch: &CStr) -> bool {
    value(switch, |value| value != c"0").unwrap_or(false)
}

/// A switch's value as text; what is no text is shown as well as can be.
pub fn text(switch: &CStr) -> Option<String> {
    value(switch, |value| value.to_string_lossy().into_owned())
}

/// A level: 0 if the switch is not set, the highest if it is set to anything but a number.
pub fn level(switch: &CStr) -> u32 {
    let number = |value: &CStr| value.to_str().ok()?.parse().ok();
    value(switch, |value| number(value).unwrap_or(HIGHEST_LEVEL)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::os::unix::process::CommandExt;
    use std::process::{Command, id};

    const SWITCH: &CStr = c"IRDMA_SWITCH_OF_A_TEST";
    /// Set in the processes that the tests below start.
    const CHILD: &str = "IRDMA_CHILD_OF_A_TEST";
    const NOBODY: u32 = 65534;

    /// What a process with that value of the switch makes of it: on or off, and the level.
    fn seen_by(command: &mut Command, switch: Option<&str>) -> String {
        let name = SWITCH.to_str().unwrap();
        command
            .args(["--exact", "environment::tests::child", "--nocapture"])
            .env(CHILD, "1")
            .env_remove(name);
        command.envs(switch.map(|value| (name, value)));
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let seen = text.lines().find_map(|line| line.split_once("switch: ")).map(|(_, seen)| seen.to_owned());
        seen.unwrap_or_else(|| panic!("{text}\n{}", String::from_utf8_lossy(&output.stderr)))
    }

    fn this_program() -> Command {
        Command::new(std::env::current_exe().unwrap())
    }

    /// Not a test by itself: what the others start.
    #[test]
    fn child() {
        if std::env::var_os(CHILD).is_some() {
            println!("switch: {} {}", is_on(SWITCH), level(SWITCH));
        }
    }

    #[test]
    fn a_switch_is_on_unless_it_is_nothing_or_zero() {
        for (value, seen) in [
            (None, "false 0"),
            (Some(""), "false 0"),
            (Some("0"), "false 0"),
            (Some("1"), "true 1"),
            (Some("3"), "true 3"),
            (Some("yes"), "true 4"),
            (Some("-1"), "true 4"),
        ] {
            assert_eq!(seen_by(&mut this_program(), value), seen, "{value:?}");
        }
    }

    #[test]
    fn programs_with_more_rights_than_their_user_do_not_look() {
        // SAFETY: has no preconditions.
        if unsafe { libc::geteuid() } != 0 {
            println!("not run: only root can make a program of another user's");
            return;
        }
        // Where others may run it.
        let copy = std::env::temp_dir().join(format!("irdma-secure-{}", id()));
        std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
        chown(&copy, Some(0), Some(0)).unwrap();
        let run = |mode| {
            std::fs::set_permissions(&copy, PermissionsExt::from_mode(mode)).unwrap();
            seen_by(Command::new(&copy).uid(NOBODY).gid(NOBODY), Some("1"))
        };
        let (plain, secure) = (run(0o755), run(0o4755));
        std::fs::remove_file(&copy).unwrap();
        assert_eq!((plain.as_str(), secure.as_str()), ("true 1", "false 0"));
    }
}
